from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules import describe
from trainlint.rules.rule import Hit, Rule
from trainlint.semantic import masks, walk
from trainlint.semantic.facts import Assign, Attribute, Call, Expr, Subscript
from trainlint.semantic.values import External, Tensor, each

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_ALWAYS = frozenset("nonzero unique unique_consecutive masked_select bincount argwhere".split())
_FUNCTIONS = frozenset({f"torch.{n}" for n in _ALWAYS} | {"torch.where", "torch.repeat_interleave"})
_SUPPRESSION = frozenset(
    {
        "torchvision.ops.nms",
        "torchvision.ops.batched_nms",
        "torchvision.ops.boxes.nms",
        "torchvision.ops.boxes.batched_nms",
    }
)


class DataDependentShapeInHotLoop(Rule):
    """The size of a result depends on the values of a tensor: `x[mask]`, `nonzero`, `unique`, `nms` on every step.

    ## Why is this bad?

    Python cannot know the size before the device has counted, so each of these waits for all queued work, as `.item()`
    does. It also keeps `torch.compile` from capturing the step in one graph.

    ## Example

    ```python
    for frame, depth in loader:
        seen = depth > 0
        loss = (model(frame)[seen] - depth[seen]).abs().mean()
    ```

    ## Use instead

    ```python
    for frame, depth in loader:
        seen = depth > 0
        gap = torch.where(seen, (model(frame) - depth).abs(), 0.0)
        loss = gap.sum() / seen.sum().clamp(min=1)
    ```

    `torch.nonzero_static`, `repeat_interleave(..., output_size=n)` and `masked_fill` know their size beforehand.

    ## When it is silent

    `x[mask] = number` (a masked fill), three-argument `torch.where`, `nonzero_static`, `output_size=` given, tensors
    on the host, conditions that make it rare. It is advice: often there is no other way.

    ## Fix safety

    No fix.

    ## Measured by `trainlint verify`

    Synchronisations per step at this line, and the step time without them.

    ## References

    - PyTorch, `torch.cuda.set_sync_debug_mode`; `torch.nonzero`: "causes host-device synchronization"
    """

    code = "TL108"
    name = "data-dependent-shape-in-hot-loop"
    level = Level.ADVICE
    claim = Claim.SYNC
    message = "the size of {what} depends on values, so {loop} waits for the device on every step"
    why = "Python must know the size before it can go on, so it waits for all queued work"
    help = "use a form of fixed size: torch.where(mask, x, 0), masked_fill, nonzero_static, output_size="
    triggers = ((b"torch",), (b"backward",))

    def check(self, script: Script) -> Iterator[Hit]:
        if not script.uses_accelerator():
            return
        for expr in walk.of_module(script.module):
            if not self._is_sized_by_values(script, expr):
                continue
            hot = script.hot(expr)
            if hot is not None:
                values = {"what": describe.text(expr), "loop": describe.loop_name(hot.loop, hot)}
                yield Hit(expr, values, None, describe.notes(hot))

    def _is_sized_by_values(self, script: Script, expr: Expr) -> bool:
        if isinstance(expr, Call):
            return self._called(script, expr)
        if not isinstance(expr, Subscript) or script.device_tensor(expr.value) is None:
            return False
        return masks.is_mask(script, expr.index) and not self._filled(script, expr)

    def _called(self, script: Script, call: Call) -> bool:
        attr = call.attr
        if attr not in _ALWAYS and attr not in ("where", "repeat_interleave", "nms", "batched_nms"):
            return False
        if any(
            isinstance(v, External) and v.name in _FUNCTIONS | _SUPPRESSION for v in each(script.value(call.callee))
        ):
            tensor, rest = call.argument(0), 1
        elif (
            isinstance(call.callee, Attribute)
            and isinstance(script.value(call.callee.value), Tensor)
            and attr not in ("nms", "where")
        ):
            tensor, rest = call.callee.value, 0
        else:
            return False
        if tensor is None or script.device_tensor(tensor) is None:
            return False
        if attr == "where":
            return len(call.args) == 1 and not call.keywords
        if attr == "repeat_interleave":
            repeats = call.argument(rest, "repeats")
            return (
                repeats is not None
                and script.device_tensor(repeats) is not None
                and call.keyword("output_size") is None
            )
        return True

    def _filled(self, script: Script, expr: Subscript) -> bool:
        """`x[mask] = 0`, also `x[mask] = value` where the value is no tensor: a fill that needs no size."""
        for statement in script.module.statements:
            if isinstance(statement, Assign) and any(t is expr for t in statement.targets):
                return statement.value is None or script.tensor(statement.value) is None or statement.op is not None
        return False

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules import describe
from trainlint.rules.rule import Hit, Rule
from trainlint.rules.sync import implicit_syncs
from trainlint.rules.sync.hot_values import host_level, in_loop, in_parameter_loop
from trainlint.semantic.facts import Expr

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class SyncPerParameter(Rule):
    """The host waits for the device once per parameter, on every step: a gradient norm summed with `.item()`.

    ## Why is this bad?

    A model has hundreds of parameter tensors. One `.item()` or truth test for each of them is hundreds of waits per
    step, each for a kernel that takes microseconds.

    ## Example

    ```python
    total = 0.0
    for p in model.parameters():
        total += p.grad.norm().item() ** 2
    ```

    ## Use instead

    ```python
    total = torch.nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
    ```

    `clip_grad_norm_` returns the norm too. Both work on lists of tensors at once and leave the result on the device.

    ## When it is silent

    Outside of hot code, under a condition that makes it rare, for what Python knows by itself (`p.grad is None`,
    `numel`).

    ## Fix safety

    No fix.

    ## Measured by `trainlint verify`

    Synchronisations per step at this line, and the step time without them.

    ## References

    - PyTorch, `torch.nn.utils.clip_grad_norm_`, `torch.nn.utils.get_total_norm` (from 2.6), `torch._foreach_norm`
    """

    code = "TL109"
    name = "sync-per-parameter"
    level = Level.WARNING
    claim = Claim.SYNC
    message = "{what} waits for the device once per parameter, on every step of {loop}"
    why = "a model has hundreds of parameter tensors, so this is hundreds of waits per step"
    help = "compute it for all at once (clip_grad_norm_ returns the norm; from torch 2.6, get_total_norm too) and read one value"
    triggers = ((b"parameters(",), (b".item",), (b".grad",))

    def check(self, script: Script) -> Iterator[Hit]:
        if not script.uses_accelerator():
            return
        for expr, what in self._syncs(script):
            hot = script.hot(expr)
            if hot is not None and in_parameter_loop(script, expr):
                values = {"what": what, "loop": describe.loop_name(hot.loop, hot)}
                yield Hit(expr, values, host_level(hot), describe.notes(hot))

    def _syncs(self, script: Script) -> Iterator[tuple[Expr, str]]:
        for call in script.methods("item"):
            if not in_loop(call.context):
                continue
            if call.receiver is not None and not call.args and script.device_tensor(call.receiver) is not None:
                yield call, describe.text(call)
        for expr, what in implicit_syncs.tests(script, in_loop):
            if what.startswith("`"):
                yield expr, what.strip("`") if what.count("`") == 2 else what

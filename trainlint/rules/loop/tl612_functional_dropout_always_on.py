from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules import describe
from trainlint.rules.rule import Hit, Rule
from trainlint.semantic import walk
from trainlint.semantic.facts import Assign, Attribute, Call, Context, Function, Name

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

# those whose `training` is True by default; alpha_dropout's is False
_FUNCTIONS = tuple(f"torch.nn.functional.{n}" for n in ("dropout", "dropout1d", "dropout2d", "dropout3d"))
_LAYERS = frozenset(f"torch.nn.{n}" for n in ("Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "AlphaDropout"))
_MEANT = re.compile(
    r"mc_?drop|monte_?carlo|bayes|uncertain|stochastic_?depth|always_?on|augment|corrupt|^noise|perturb", re.I
)


class FunctionalDropoutAlwaysOn(Rule):
    """`F.dropout(x)` without `training=`, or `nn.Dropout()` built in `forward`: it drops in evaluation, too.

    ## Why is this bad?

    `F.dropout` has `training=True` as its default and knows nothing of `model.eval()`. A layer built in `forward` is new,
    so in training mode, on every call. Evaluation is noisy and worse than the model is.

    ## Example

    ```python
    def forward(self, x):
        return self.fc(F.dropout(x, 0.5))
    ```

    ## Use instead

    ```python
    def forward(self, x):
        return self.fc(F.dropout(x, 0.5, training=self.training))
    ```

    ## When it is silent

    `training=` given in any way; under `if self.training`; Monte Carlo dropout named so; functions that no module calls.

    ## Fix safety

    Unsafe: evaluation changes, which is the point. Only where `self` is a module.

    ## Measured by `trainlint verify`

    Whether two evaluations of one batch differ.

    ## References

    - PyTorch, `torch.nn.functional.dropout`
    """

    code = "TL612"
    name = "functional-dropout-always-on"
    level = Level.ERROR
    claim = Claim.BEHAVIOUR
    message = "{call} drops in evaluation, too{why_}"
    why = "model.eval() does not reach it, so evaluation and inference are noisy"
    help = "pass training=self.training, or make an nn.Dropout in __init__"
    triggers = ((b"dropout", b"torch"), (b"Dropout", b"torch"))

    def check(self, script: Script) -> Iterator[Hit]:
        for call in script.calls(*_FUNCTIONS):
            if call.keyword("training") is not None or len(call.args) > 2 or call.unpacks:
                continue
            if (
                self._is_off(script, call)
                or self._asks_mode(call.context)
                or not self._in_module(script, call.context, 0)
            ):
                continue
            yield Hit(call, {"call": describe.text(call), "why_": ": training=True is its default"})
        for call, layer in script.objects("module"):
            function = call.context.function
            if layer.name not in _LAYERS or function is None or function.name != "forward" or self._is_kept(call):
                continue
            if (
                self._is_off(script, call)
                or self._asks_mode(call.context)
                or not self._in_module(script, call.context, 0)
            ):
                continue
            yield Hit(call, {"call": describe.text(call), "why_": ": a layer built in forward is in training mode"})

    def _is_off(self, script: Script, call: Call) -> bool:
        rate = call.argument(1 if call.attr and call.attr[0].islower() else 0, "p")
        return rate is not None and script.constant(rate) in (0, 0.0)

    def _is_kept(self, call: Call) -> bool:
        """Put on `self`, or switched: `nn.Dropout(p).train(self.training)(x)`."""
        statement = call.statement
        if (
            isinstance(statement, Assign)
            and statement.value is call
            and any(isinstance(t, Attribute) for t in statement.targets)
        ):
            return True
        return any(
            isinstance(e, Call)
            and e.attr in ("train", "eval")
            and any(inner is call for inner in walk.inside(e.callee))
            for e in walk.inside(statement)
        )

    def _asks_mode(self, context: Context) -> bool:
        """Under a condition that names the mode: `if self.training:`."""
        for frame in context.local_frames():
            if frame.kind == "branch" and frame.test is not None:
                for expr in walk.inside(frame.test):
                    named = expr.attr if isinstance(expr, Attribute) else expr.id if isinstance(expr, Name) else ""
                    if "train" in named or "eval" in named:
                        return True
        return False

    def _in_module(self, script: Script, context: Context, depth: int) -> bool:
        """In a method of a module, or in a function that one calls."""
        function = context.function
        if function is None or depth > 3 or self._is_meant(function):
            return False
        if function.cls is not None:
            return script.role(function.cls) == "module" and not _MEANT.search(function.cls.name)
        owner = function.inner.cls
        if owner is not None and script.role(owner) == "module":
            return not _MEANT.search(owner.name)
        if any("train" in p.name or p.name in ("is_test", "deterministic", "eval") for p in function.parameters):
            return False
        sites = script.inference.callgraph.callers(function)
        return any(
            not self._asks_mode(s.call.context) and self._in_module(script, s.call.context, depth + 1) for s in sites
        )

    def _is_meant(self, function: Function) -> bool:
        return bool(_MEANT.search(function.name))

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.patterns_on_use import Pattern
from trainlint.rules import describe, rewrites
from trainlint.rules.rule import Hit, Rewrite, Rule
from trainlint.semantic import walk
from trainlint.semantic.bindings import lookup
from trainlint.semantic.contexts import dotted_name
from trainlint.semantic.facts import Assign, Attribute, Call, Context, Expr, Function, Name

if TYPE_CHECKING:
    from trainlint.rewriting import Change, Site
    from trainlint.semantic.script import Script

# those whose `training` is True by default; alpha_dropout's is False
_FUNCTIONS = tuple(f"torch.nn.functional.{n}" for n in ("dropout", "dropout1d", "dropout2d", "dropout3d"))
_FUNCTION_OF = {
    "torch.nn.Dropout": "dropout",
    "torch.nn.Dropout1d": "dropout1d",
    "torch.nn.Dropout2d": "dropout2d",
    "torch.nn.Dropout3d": "dropout3d",
    "torch.nn.AlphaDropout": "alpha_dropout",
}
_MEANT = Pattern(
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

    Unsafe: evaluation changes, which is the point. `training=self.training` is passed where `self` is a module; a layer
    that is built and called in one expression becomes the function. None for a function that has no `self`, and for a
    layer that gets a name first.

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
            values = {"call": describe.text(call), "why_": ": training=True is its default"}
            yield Hit(call, values, rewrite=self._pass_training(script, call))
        for call, layer in script.objects("module"):
            function = call.context.function
            if layer.name not in _FUNCTION_OF or function is None or function.name != "forward" or self._is_kept(call):
                continue
            if (
                self._is_off(script, call)
                or self._asks_mode(call.context)
                or not self._in_module(script, call.context, 0)
            ):
                continue
            values = {"call": describe.text(call), "why_": ": a layer built in forward is in training mode"}
            yield Hit(call, values, rewrite=self._use_function(script, call, layer.name))

    def _pass_training(self, script: Script, call: Call) -> Rewrite | None:
        owner = self._self(script, call)
        return None if owner is None else rewrites.pass_keyword("training", f"{owner}.training", safe=False)

    def _use_function(self, script: Script, call: Call, layer: str) -> Rewrite | None:
        """`nn.Dropout(p)(x)` -> `F.dropout(x, p, training=self.training)`"""
        owner = self._self(script, call)
        function = rewrites.name_for(script, f"torch.nn.functional.{_FUNCTION_OF[layer]}", call)
        if owner is None or function is None or call.unpacks or len(call.args) > 1:
            return None
        if any(k.name != "p" for k in call.keywords) or (call.args and call.keywords):
            return None
        outer = next((c for c in script.module.calls if c.callee is call), None)
        if outer is None or len(outer.args) != 1 or outer.keywords or outer.unpacks:
            return None
        return Rewrite(False, f"Use `{function}`", lambda site: _as_function(site, function, owner), at=outer)

    def _self(self, script: Script, call: Call) -> str | None:
        """What the module is called where a call stands, None where that is not its method (or a function in one)."""
        inner: set[str] = set()
        for frame in call.context.frames():
            if frame.kind != "function":
                continue
            function: Function = frame.record
            if function.cls is None:
                inner |= set(function.locals) - set(function.outer_names)
                continue
            if not function.parameters or script.role(function.cls) != "module":
                return None
            if any(dotted_name(d) in ("staticmethod", "classmethod") for d in function.decorators):
                return None
            first = function.parameters[0]
            bound = function.locals.get(first.name, ())
            if first.kind not in ("any", "positional") or first.name in inner or len(bound) != 1:
                return None
            return first.name
        return None

    def _is_off(self, script: Script, call: Call) -> bool:
        rate = call.argument(1 if call.attr and call.attr[0].islower() else 0, "p")
        if rate is None or script.constant(rate) in (0, 0.0):
            return rate is not None
        # `p if self.training else 0.0`, `self.p * self.training`, also by a name for it
        held = [rate, *(b.value for b in lookup(rate, rate.id)[0] if b.value)] if isinstance(rate, Name) else [rate]
        return any(_names_mode(expr) for expr in held)

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
                if _names_mode(frame.test):
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


def _names_mode(expr: Expr) -> bool:
    for part in walk.inside(expr):
        named = part.attr if isinstance(part, Attribute) else part.id if isinstance(part, Name) else ""
        if "train" in named or "eval" in named:
            return True
    return False


def _as_function(site: Site, function: str, owner: str) -> Iterable[Change]:
    import libcst as cst

    from trainlint import rewriting

    outer = site.call
    layer = rewriting.call(outer.func)
    if layer.lpar or isinstance(outer.args[0].value, cst.GeneratorExp):
        raise rewriting.NoFix
    options = [site.written(layer.args[0].value)] if layer.args else []
    start, end = site.span(layer)
    if any(sign in site.text[start:end] for sign in "#\r\n"):
        raise rewriting.NoFix
    yield rewriting.Change(start, end, function)
    yield from rewriting.add_argument(site, outer, ", ".join([*options, f"training={owner}.training"]))

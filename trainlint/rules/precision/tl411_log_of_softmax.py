from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Level
from trainlint.rules import describe, rewrites
from trainlint.rules.rule import Hit, Rewrite, Rule
from trainlint.semantic.facts import Call, Expr, Operator
from trainlint.semantic.logits import function_of, made_by, operand, without_epsilon
from trainlint.semantic.origins import origins

if TYPE_CHECKING:
    import libcst as cst

    from trainlint.rewriting import Change, Site
    from trainlint.semantic.script import Script

_PROBABILITIES = frozenset({"softmax", "sigmoid"})
_INSTEAD = {"softmax": "F.log_softmax(x, dim)", "sigmoid": "F.logsigmoid(x)"}


class LogOfSoftmax(Rule):
    """`log(softmax(x))`, `log(sigmoid(x))`, or a logsumexp written by hand.

    ## Why is this bad?

    A probability below the smallest number of its type is zero, and its logarithm minus infinity: the loss becomes inf
    or nan for exactly the samples that are most wrong. In float16 that starts at logits 17 apart, in float32 at 103. An
    epsilon hides it and stops the gradient there. `exp` of a logit above 88 (float16: 11) is infinite.

    ## Example

    ```python
    log_probs = torch.log(torch.softmax(logits, dim=1))
    ```

    ## Use instead

    ```python
    log_probs = F.log_softmax(logits, dim=1)
    ```

    `F.logsigmoid(x)` for a sigmoid, `torch.logsumexp(x, dim)` for `log(sum(exp(x)))`.

    ## When it is silent

    Logarithms of other things; probabilities whose origin is not known; `exp(x - x.max())`, which cannot overflow.

    ## Fix safety

    Safe for exactly `log(softmax(x, dim))` and `log(sigmoid(x))`: the same numbers up to rounding. None with an epsilon
    inside, nor for a logsumexp written by hand.

    ## Measured by `trainlint verify`

    Nothing.

    ## References

    - torch.nn.functional.log_softmax: "mathematically equivalent to log(softmax(x)), doing these two operations
    separately is slower and numerically unstable"
    """

    code = "TL411"
    name = "log-of-softmax"
    level = Level.WARNING
    message = "{call} takes the logarithm of a {what}"
    why = "what underflows there becomes -inf: the loss turns inf or nan for the samples that are most wrong"
    help = "use {instead}"
    triggers = ((b"log",),)

    def check(self, script: Script) -> Iterator[Hit]:
        for name in ("log", "log2", "log10"):
            for call in script.module.calls_by_attr.get(name, ()):
                if function_of(script, call) != name and not self._on_probabilities(script, call):
                    continue
                given = operand(script, call)
                if given is None:
                    continue
                found = made_by(script, without_epsilon(script, given), _PROBABILITIES)
                if found is None:
                    found = self._through_name(script, given)
                if found is not None:
                    values = {"call": describe.text(call), "what": found, "instead": _INSTEAD[found]}
                    yield Hit(call, values, rewrite=self._rewrite(script, call, given, name))
                elif name == "log" and self._sums_exponentials(script, given):
                    yield Hit(
                        call,
                        {
                            "call": describe.text(call),
                            "what": "sum of exponentials",
                            "instead": "torch.logsumexp(x, dim)",
                        },
                        why=_OVERFLOWS,
                    )

    def _rewrite(self, script: Script, call: Call, given: Expr, name: str) -> Rewrite | None:
        """For a natural logarithm straight around the call of a function."""
        if name != "log" or not isinstance(given, Call) or len(call.args) + len(call.keywords) > 1:
            return None
        inner = function_of(script, given)
        if inner == "softmax":
            return Rewrite(True, "Write `log_softmax`", _log_softmax)
        function = rewrites.name_for(script, "torch.nn.functional.logsigmoid", call) if inner == "sigmoid" else None
        argument = operand(script, given) if function is not None else None
        if function is None or argument is None or len(given.args) + len(given.keywords) > 1:
            return None
        return Rewrite(True, f"Write `{function}`", lambda site: _log_sigmoid(site, function))

    def _on_probabilities(self, script: Script, call: Call) -> bool:
        """`gap.sigmoid().log()`, where nothing else says that gap is a tensor."""
        return (
            call.receiver is not None and not call.args and made_by(script, call.receiver, _PROBABILITIES) is not None
        )

    def _through_name(self, script: Script, given: Expr) -> str | None:
        """`p = softmax(x) + 1e-8` on a line of its own."""
        kinds = set()
        for origin in origins(script.inference, given):
            if origin is None or origin.path or origin.element:
                return None
            inner = without_epsilon(script, origin.expr)
            kinds.add(made_by(script, inner, _PROBABILITIES) if inner is not origin.expr else None)
        return kinds.pop() if len(kinds) == 1 else None

    def _sums_exponentials(self, script: Script, given: Expr) -> bool:
        given = without_epsilon(script, given)
        found = list(origins(script.inference, given))
        if len(found) != 1 or found[0] is None or found[0].path or not isinstance(found[0].expr, Call):
            return False
        summed = found[0].expr
        if function_of(script, summed) != "sum":
            return False
        inner = operand(script, summed)
        for origin in origins(script.inference, inner) if inner is not None else ():
            if (
                origin is None
                or origin.path
                or not isinstance(origin.expr, Call)
                or function_of(script, origin.expr) != "exp"
            ):
                return False
            exponent = operand(script, origin.expr)
            if exponent is None or any(
                isinstance(o.expr, Operator) and o.expr.op == "-"
                for o in origins(script.inference, exponent)
                if o is not None
            ):
                return False
        return inner is not None


_OVERFLOWS = "exp of a logit above 88 (in float16 above 11) is infinite, and so is the loss"


def _log_softmax(site: Site) -> Iterable[Change]:
    """`torch.log(F.softmax(x, dim))` -> `F.log_softmax(x, dim)`, `x.softmax(dim).log()` -> `x.log_softmax(dim)`"""
    from trainlint import rewriting

    inner = _inner(site)
    name = rewriting.attribute(inner.func).attr
    yield from rewriting.keep_only(site, inner)
    yield site.replace(name, "log_softmax")


def _log_sigmoid(site: Site, function: str) -> Iterable[Change]:
    """`torch.log(torch.sigmoid(x))` -> `F.logsigmoid(x)`"""
    from trainlint import rewriting

    inner = _inner(site)
    value = inner.args[0].value if inner.args else rewriting.attribute(inner.func).value
    start, end = site.span(site.node)
    if "#" in site.text[start:end]:
        raise rewriting.NoFix
    yield rewriting.Change(start, end, f"{function}({site.written(value)})")


def _inner(site: Site) -> cst.Call:
    from trainlint import rewriting

    outer = site.call
    return rewriting.call(outer.args[0].value if outer.args else rewriting.attribute(outer.func).value)

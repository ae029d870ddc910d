"""Values that only go to logs: whether the result of a collective is used for anything else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainlint.semantic.contexts import dotted_name
from trainlint.semantic.facts import Assign, Attribute, Call, Evaluate, Expr, Function, Name, Return
from trainlint.semantic.values import Object, Tensor, each
from trainlint.semantic.walk import expressions
from trainlint.semantic.work import BACKWARD

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_SINKS = frozenset(
    "item tolist float print add_scalar add_scalars log info debug write update append set_postfix "
    "set_description format "
    "log_metric log_metrics round".split()
)
_DEEPEST = 2


def only_logged(script: Script, call: Call, result: Expr, depth: int = 0) -> bool:
    """Whether a value (a name that a collective fills, or the call that gives it) goes to logs and to no backward."""
    if isinstance(result, Name):
        names = {result.id}
    elif isinstance(call.statement, Assign):
        names = {n for n in map(dotted_name, call.statement.targets) if n is not None and "." not in n}
    else:
        names = set()
    function = call.context.function
    if _is_returned(call, function, names):
        return _logged_by_callers(script, function, depth)
    if _feeds_backward(script, function, names):
        return False
    calls = function.calls if function is not None else [c for c in script.module.calls if c.context.function is None]
    return any(c.order > call.order and c.attr in _SINKS and _mentions(c, names) for c in calls)


def _is_returned(call: Call, function: Function | None, names: set[str]) -> bool:
    if isinstance(call.statement, Return):
        return True
    if function is None:
        return False
    return any(r.value is not None and isinstance(r.value, Name) and r.value.id in names for r in function.returns)


def _logged_by_callers(script: Script, function: Function | None, depth: int) -> bool:
    if function is None or depth >= _DEEPEST:
        return False
    sites = [s.call for s in script.inference.callgraph.callers(function) if script.hot(s.call) is not None]
    return bool(sites) and all(_used_in_place(site) or only_logged(script, site, site, depth + 1) for site in sites)


def _used_in_place(site: Call) -> bool:
    """`meter.update(reduce(loss).item())`"""
    return any(
        isinstance(e, Call) and e.attr in _SINKS and e is not site and _holds(e, site)
        for e in expressions(site.statement)
    )


def _holds(call: Call, inner: Call) -> bool:
    return any(e is inner for e in expressions(call))


def _mentions(call: Call, names: set[str]) -> bool:
    return any(isinstance(e, Name) and e.id in names for e in expressions(call))


def _feeds_backward(script: Script, function: Function | None, names: set[str]) -> bool:
    for step in script.semantics.steps.through(script.module):
        for event in step.of(BACKWARD):
            if event.owner is None:
                continue
            for part in script.semantics.lineage.parts(event.owner, event.path):
                if isinstance(part.expr, Name) and part.expr.id in names and part.expr.context.function is function:
                    return True
    return False


def is_state(script: Script, expr: Expr) -> bool:
    """A gradient, a parameter, a buffer, something kept on an object: no value for a log."""
    if isinstance(expr, Attribute) or not isinstance(expr, Name):
        return isinstance(expr, Attribute)
    return any(
        isinstance(v, Object) or (isinstance(v, Tensor) and v.origin in ("parameter", "buffer"))
        for v in each(script.value(expr))
    )


def stands_alone(call: Call) -> bool:
    return isinstance(call.statement, Evaluate) and call.statement.value is call

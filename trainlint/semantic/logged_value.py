"""Numbers read out of tensors on every step that are only looked at on the few steps that log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainlint.semantic.facts import Assign, Attribute, Binding, Call, Context, Expr, If, Name, Record
from trainlint.semantic.running_sum import is_looked_at_from_afar, reads_of

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_COLLECTIVES = frozenset({"all_reduce", "reduce", "broadcast", "allreduce"})  # they write into what they are given
_PLAIN = frozenset({"mean", "sum", "detach", "cpu", "float"})


def guard_of(script: Script, call: Call) -> If | None:
    """The `if` behind `value = loss.item()` that holds all uses of the value, on steps that are rare, where the tensor is
    still what it was; None where there is none."""
    statement = call.statement
    if not isinstance(statement, Assign) or statement.op is not None or statement.value is not call:
        return None
    if len(statement.targets) != 1 or statement.annotation is not None or call.receiver is None:
        return None
    target, tensor = statement.targets[0], _root(call.receiver)
    if not isinstance(target, Name) or tensor is None or not _is_the_only_value(target):
        return None
    reads = list(reads_of(script, target.id, target.context.function))
    for guard in statement.block[statement.index + 1 :]:
        if not isinstance(guard, If):
            continue
        body = guard.body[0].context
        if any(r.context.within(body) for r in reads):
            # in a comprehension or function the tensor may be another one
            if not all(r.context.within(body) and r.context.function is target.context.function for r in reads):
                return None
            if script.hot(guard.body[0]) is not None or _changes(script, tensor, statement, guard.body[0]):
                return None
            return guard
    return None


def _root(expr: Expr) -> Name | None:
    """`out` of `out.loss.mean()`, where nothing else is asked for on the way."""
    while not isinstance(expr, Name):
        if isinstance(expr, Call) and expr.attr in _PLAIN and not expr.args and not expr.keywords and expr.receiver:
            expr = expr.receiver
        elif isinstance(expr, Attribute):
            expr = expr.value
        else:
            return None
    return expr


def _scope(context: Context) -> dict[str, list[Binding]]:
    return context.function.locals if context.function is not None else context.module.names


def _is_the_only_value(target: Name) -> bool:
    function = target.context.function
    if function is not None and is_looked_at_from_afar(function, target.id):
        return False
    return len(_scope(target.context).get(target.id, ())) == 1


def _changes(script: Script, tensor: Name, first: Record, last: Record) -> bool:
    """Whether a tensor is bound anew or written to between two places."""
    bindings = _scope(tensor.context).get(tensor.id)
    if bindings is None:
        return True
    if any(first.order <= b.order < last.order for b in bindings):
        return True
    for call in script.module.calls:
        if not first.order < call.order < last.order or call.attr is None:
            continue
        if call.attr.endswith("_") and _is_of(call.receiver, tensor):
            return True
        if call.attr in _COLLECTIVES and any(_is_of(argument, tensor) for argument in call.args):
            return True
    return False


def _is_of(written: Expr | None, tensor: Name) -> bool:
    """Whether what is written to may be the tensor."""
    root = _root(written) if written is not None else None
    return root is None or root.id == tensor.id

"""Asynchronous copies to the host: whether anything waits for them before the data is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.records import NamedTuple
from trainlint.semantic import external, loading, transfers
from trainlint.semantic.contexts import dotted_name
from trainlint.semantic.facts import (
    Assign,
    Attribute,
    Call,
    Expr,
    Function,
    Name,
    Return,
    Statement,
)
from trainlint.semantic.values import External, Object, Tensor, each
from trainlint.semantic.walk import expressions

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

# what makes Python, or a stream, wait; or marks a place to wait for
_WAITS = frozenset("synchronize record record_event wait wait_event wait_stream query elapsed_time barrier".split())
_HARMLESS = frozenset("append extend len del copy_ size numel dim is_pinned zero_ fill_".split())
_DEEPEST = 3


class Race(NamedTuple):
    """`copy` is not waited for, `read` uses what it has copied."""

    copy: Call
    read: Expr


def races(script: Script) -> Iterator[Race]:
    for call, landed in _copies(script):
        read = _read_too_early(script, call, landed, 0)
        if read is not None:
            yield Race(call, read)


def _copies(script: Script) -> Iterator[tuple[Call, Expr]]:
    """Asynchronous copies from the device to the host, each with what holds the data afterwards."""
    for call in script.methods("to"):
        if call.receiver is not None and transfers.is_non_blocking(script, call) is True:
            if transfers.target_of(script, call) == "host" and _is_on_device(script, call.receiver):
                yield call, call
    for call in script.methods("copy_"):
        source = call.argument(0, "src")
        if source is None or call.receiver is None or transfers.is_non_blocking(script, call) is not True:
            continue
        onto, held = script.tensor(call.receiver), script.tensor(source)
        if onto is None or held is None or onto.device != "host":
            continue
        if held.device == "device" or (held.device is None and held.origin in ("module", "loss")):
            yield call, call.receiver
    for call in script.module.calls:
        if (
            isinstance(call.callee, Name)
            and call.args
            and _is_bound_copy(script, call)
            and _is_on_device(script, call.args[0])
        ):
            yield call, call


def _is_bound_copy(script: Script, call: Call) -> bool:
    """`to_host = partial(torch.Tensor.to, device="cpu", non_blocking=True)`"""
    if not any(isinstance(v, External) and v.name == "torch.Tensor.to" for v in each(script.value(call.callee))):
        return False
    for bound in loading.partials(script, call.callee):
        device = bound.keyword("device")
        if (
            script.constant(bound.keyword("non_blocking")) is True
            and external.device_of(script.inference, device) == "host"
        ):
            return True
    return False


def _is_on_device(script: Script, expr: Expr) -> bool:
    values = list(each(script.value(expr)))
    if any(isinstance(v, Object) for v in values):
        return False
    return not any(isinstance(v, Tensor) and v.device == "host" for v in values) and not any(
        hasattr(v, "part") for v in values
    )


def _read_too_early(script: Script, call: Call, landed: Expr, depth: int) -> Expr | None:
    """The first use of the copied data after the call, when nothing in between waits; through the returns of its
    function."""
    function = call.context.function
    if function is not None and _waits_elsewhere(function, call):
        return None
    statement = call.statement
    if isinstance(statement, Return) or _is_returned(function, landed, statement):
        return _read_by_caller(script, function, depth)
    direct = _used_in_place(call, landed)
    if direct is not None:
        return direct
    names = _names_of(landed, statement)
    if not names:
        return None
    waits = [c.order for c in _calls(script, function) if c.attr in _WAITS and c.order > call.order]
    for use in _uses(script, function, names, call.order):
        if not any(wait < use.order for wait in waits):
            return use
        return None
    return None


def _waits_elsewhere(function: Function, call: Call) -> bool:
    """An event or stream of the class takes care: `self.there.record(self.side)` after the copy."""
    return any(c.attr in ("record", "record_event", "wait_stream", "wait_event") for c in function.calls)


def _calls(script: Script, function: Function | None) -> list[Call]:
    return function.calls if function is not None else [c for c in script.module.calls if c.context.function is None]


def _names_of(landed: Expr, statement: Statement) -> set[str]:
    """The names that hold the data: the target of the assignment, the buffer, the list it is appended to."""
    name = dotted_name(landed)
    if name is not None:
        return {name}
    if isinstance(statement, Assign):
        found = {dotted_name(t) for t in statement.targets}
        return {n for n in found if n is not None}
    outer = getattr(statement, "value", None)
    if isinstance(outer, Call) and outer.attr in ("append", "extend") and outer.receiver is not None:
        listed = dotted_name(outer.receiver)
        return {listed} if listed is not None else set()
    return set()


def _used_in_place(call: Call, landed: Expr) -> Expr | None:
    """`x.to("cpu", non_blocking=True).numpy()`"""
    if landed is not call:
        return None
    for other in expressions(call.statement):
        if isinstance(other, Call) and other.receiver is call and other.attr in ("numpy", "item", "tolist"):
            return other
    return None


def _uses(script: Script, function: Function | None, names: set[str], after: int) -> list[Expr]:
    """Reads of a name after a place, in the same function, in order; bookkeeping aside."""
    found: list[Expr] = []
    for call in _calls(script, function):
        if call.order <= after or call.attr in _HARMLESS:
            continue
        parts = [call.receiver, *call.args, *(k.value for k in call.keywords)]
        for part in parts:
            if part is not None and isinstance(part, (Name, Attribute)) and dotted_name(part) in names:
                found.append(call)
                break
    return sorted(found, key=lambda e: e.order)


def _is_returned(function: Function | None, landed: Expr, statement: Statement) -> bool:
    """The copy stands in a display or comprehension that a function gives back."""
    if function is None:
        return False
    names = _names_of(landed, statement) if not isinstance(statement, Return) else set()
    return any(isinstance(r.value, (Name, Attribute)) and dotted_name(r.value) in names for r in function.returns)


def _read_by_caller(script: Script, function: Function | None, depth: int) -> Expr | None:
    if function is None or depth > _DEEPEST:
        return None
    for site in script.inference.callgraph.callers(function):
        call = site.call
        outer = call.context.function
        if outer is not None and any(c.attr in _WAITS for c in outer.calls):
            continue
        for other in expressions(call.statement):
            if isinstance(other, Call) and other is not call and (call in other.args or other.receiver is call):
                return other
        names = _names_of(call, call.statement)
        for use in _uses(script, outer, names, call.order) if outer is not None else ():
            return use
        if isinstance(call.statement, Return):
            return _read_by_caller(script, outer, depth + 1)
    return None

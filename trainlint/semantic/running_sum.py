"""Sums that a loop makes of numbers read out of tensors, where nothing else in the loop needs the number.

    running_loss += loss.item() * images.size(0)

Such a sum may as well be made of the tensors and be read once below the loop.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.patterns_on_use import Pattern
from trainlint.records import NamedTuple
from trainlint.semantic import autograd, walk
from trainlint.semantic.bindings import lookup
from trainlint.semantic.facts import (
    Assign,
    Binding,
    Call,
    Expr,
    For,
    Function,
    Name,
    Operator,
    Statement,
    While,
)
from trainlint.semantic.heat import Hot
from trainlint.semantic.values import Const, Number, each

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_LOOKS_AT_NAMES = frozenset({"locals", "vars", "globals", "eval", "exec"})
# reductions whose result is a number of full width, whatever they are taken of
_REDUCTIONS = frozenset({"sum", "mean", "count_nonzero", "norm", "cross_entropy", "mse_loss", "nll_loss", "l1_loss"})
_LOWERED = Pattern(rb"autocast|bfloat16|float16|\bhalf\b|fp16|bf16|\bamp\b")


class RunningSum(NamedTuple):
    """`loop`: the batch loop that adds to the sum. `rare`: reads in it on steps that are rare, after the adding. `after`:
    the only read below it, None where there are several, or none (`is_read` says which)."""

    name: str
    loop: For | While
    rare: tuple[Name, ...]
    after: Name | None
    is_read: bool


def of(script: Script, call: Call, hot: Hot) -> RunningSum | None:
    """The sum that the number of an `.item()` call goes into and nowhere else; None where it cannot be told."""
    loop = hot.loop
    if loop is None or hot.calls or not isinstance(loop.record, (For, While)) or loop.record.orelse:
        return None
    added = _added(script, call.statement)
    if added is None or call not in added[1] or not all(_is_wide(script, item) for item in added[1]):
        return None
    if any(script.device_tensor(item.receiver) is None for item in added[1] if item.receiver is not None):
        return None
    target, frame = added[0], loop.frame
    at = call.statement.context
    while at is not frame:
        if at.parent is None or not (at.kind == "with" or (at.kind == "branch" and at.rest)):
            return None  # it may not run in each turn, or more than once
        at = at.parent
    if script.hot(loop.record) is not None:
        return None  # what stands below the loop runs as often as another one
    return _whole(script, target, call.statement, loop.record)


def _whole(script: Script, target: Name, statement: Statement, loop: For | While) -> RunningSum | None:
    """The sum with all that reads it, where each place is one that can deal with a tensor."""
    name, function = target.id, target.context.function
    bindings = function.locals.get(name) if function is not None else script.module.names.get(name)
    if not bindings or any(b.context.function is not function for b in bindings):
        return None
    if function is not None and is_looked_at_from_afar(function, name):
        return None
    body = loop.body[0].context
    inside = [b for b in bindings if b.context.within(body)]
    adding = [b for b in inside if _adds(script, b, name)]
    reset = [b for b in inside if b not in adding]
    if not all(_is_number(script, b) for b in reset) or not _starts_as_number(script, target, adding):
        return None
    statements = [b.statement for b in adding if b.statement is not None]
    own = {id(e) for s in statements for e in walk.inside(s) if isinstance(e, Name) and e.id == name}
    reads = [e for e in reads_of(script, name, function) if id(e) not in own]
    if any(e.context.function is not function for e in reads):
        return None
    read_out = {id(c.receiver) for c in script.module.calls_by_attr.get("item", ())}
    rare = [e for e in reads if e.context.within(body)]
    head = {id(e) for e in walk.inside(loop.iter if isinstance(loop, For) else loop.test)}
    if any(id(e) in head for e in reads) or not all(_can_be_read(script, e, statement) for e in rare):
        return None
    below = [e for e in reads if not e.context.within(body)]
    if any(f.kind == "try" for f in loop.context.local_frames()):
        if not all(e.context.within(loop.context) for e in below):
            return None  # after an exception it is read with no reading out before
    if reset and below:
        return None  # a number, where the last turn has set it back
    if not reads:
        return None
    open_reads = [e for e in below if id(e) not in read_out]
    outside = [b for b in bindings if not b.context.within(body)]
    first = {id(b) for b in lookup(target, name)[0]}
    single = len(open_reads) == 1 and len(below) == 1 and all(id(b) in first and b.order < loop.order for b in outside)
    after = open_reads[0] if single and _runs_once_below(open_reads[0], loop) else None
    return RunningSum(
        name,
        loop,
        tuple(e for e in rare if id(e) not in read_out),
        after,
        bool(open_reads) and not any(getattr(s.targets[0], "id", "") == name for s in read_outs_below(loop)),
    )


# -------------------------------------------------------------------------------------------------------- the adding


def _added(script: Script, statement: Statement) -> tuple[Name, list[Call]] | None:
    """The name that a statement adds to, where it is read, and the `.item()` calls in what it adds: `s += x.item() * n`,
    `s = s + x.item()`."""
    if not isinstance(statement, Assign) or len(statement.targets) != 1 or statement.value is None:
        return None
    (target,) = statement.targets
    if not isinstance(target, Name) or statement.annotation is not None:
        return None
    value = statement.value
    if statement.op is None:
        if not isinstance(value, Operator) or value.op != "+" or len(value.operands) != 2:
            return None
        first, second = value.operands
        if not isinstance(first, Name) or first.id != target.id:
            return None
        value, target = second, first
    elif statement.op != "+":
        return None
    items = _terms(script, value)
    return (target, items) if items else None


def _terms(script: Script, value: Expr) -> list[Call] | None:
    """The `.item()` calls of an expression that stays what it is when they are left out; None where it does not."""
    if isinstance(value, Call) and value.attr == "item" and value.receiver is not None and not value.args:
        return [value]
    if isinstance(value, Operator) and len(value.operands) == 2:
        left, right = value.operands
        first, second = _terms(script, left), _terms(script, right)
        if value.op in ("+", "-") and first is not None and second is not None:
            return first + second
        if value.op == "*" and first is not None and second is not None and not (first and second):
            return first + second
        if value.op == "/" and first and second == []:
            return first
        return None
    return [] if _is_host_number(script, value) else None


def _is_host_number(script: Script, expr: Expr) -> bool:
    values = list(each(script.value(expr)))
    plain = all(isinstance(v, Number) or (isinstance(v, Const) and isinstance(v.value, (int, float))) for v in values)
    return bool(values) and plain and not any(isinstance(e, Call) and e.attr == "item" for e in walk.inside(expr))


def _is_wide(script: Script, item: Call) -> bool:
    """A tensor that can be summed in its own type: a loss, or the result of a reduction; not a byte out of an image."""
    receiver = item.receiver
    tensor = script.tensor(receiver) if receiver is not None else None
    if tensor is None:
        return False
    return (
        tensor.graph is True or tensor.origin == "loss" or (isinstance(receiver, Call) and receiver.attr in _REDUCTIONS)
    )


def summand(script: Script, item: Call) -> str:
    """What is written in place of `.item()`: `.detach()` where there may be a graph, `.float()` where the type may be one
    that sums badly."""
    receiver = item.receiver
    assert receiver is not None
    tensor = script.tensor(receiver)
    recorded = tensor is None or tensor.graph is not False
    off = script.semantics.autograd.local(item.context, item.order) == autograd.OFF
    text = ".detach()" if recorded and not off else ""
    if recorded and script.project.neighbours.speaks(script.path, _LOWERED):
        text += ".float()"
    return text


# --------------------------------------------------------------------------------------------- the bindings and reads


def _adds(script: Script, binding: Binding, name: str) -> bool:
    statement = binding.statement
    if not isinstance(statement, Assign) or binding.how not in ("augment", "assign") or binding.path:
        return False
    added = _added(script, statement)
    if added is not None:
        return added[0].id == name
    return statement.op == "+" and statement.value is not None and script.tensor(statement.value) is not None


def _is_number(script: Script, binding: Binding) -> bool:
    """`running_loss = 0.0`, also in `running_loss, correct = 0.0, 0`."""
    if binding.how != "assign" or binding.value is None:
        return False
    value = script.inference.descend(script.value(binding.value), binding.path)
    return isinstance(value, Const) and type(value.value) in (int, float)


def _starts_as_number(script: Script, target: Name, adding: list[Binding]) -> bool:
    """Whether all that the first adding can find is a number."""
    seen = [b for b in lookup(target, target.id)[0] if b not in adding and b.order != target.order]
    starts = [b for b in seen if b.how == "assign"]
    read_out = [b for b in starts if _reads_out(b)]
    added = [b for b in seen if b.how == "augment" and _adds(script, b, target.id)]
    known = {id(b) for b in [*added, *read_out]}
    rest = [b for b in seen if id(b) not in known]
    return bool(rest) and all(_is_number(script, b) for b in rest)


def _reads_out(binding: Binding) -> bool:
    """`running_loss = running_loss.item()`"""
    value = binding.value
    return (
        isinstance(value, Call)
        and value.attr == "item"
        and isinstance(value.receiver, Name)
        and value.receiver.id == binding.name
    )


def is_looked_at_from_afar(function: Function, name: str) -> bool:
    """Whether a name of a function may be read where it is not written: by `locals()`, or as a name of the file."""
    return name in function.outer_names or any(
        isinstance(c.callee, Name) and c.callee.id in _LOOKS_AT_NAMES for c in function.calls
    )


def reads_of(script: Script, name: str, function: Function | None) -> Iterator[Name]:
    """The places that read the name of that scope, those in functions within it included."""
    for expr in walk.names_read(script.module):
        if expr.id != name:
            continue
        owner: Function | None = None
        for frame in expr.context.frames():
            if frame.kind == "function" and name in frame.record.locals and name not in frame.record.outer_names:
                owner = frame.record
                break
        if owner is function:
            yield expr


def _can_be_read(script: Script, read: Name, statement: Statement) -> bool:
    """On a rare step, after the adding of the same turn."""
    return (
        script.hot(read) is None
        and read.order > statement.order
        and read.context is not statement.context
        and read.context.within(statement.context)
    )


def _runs_once_below(read: Name, loop: For | While) -> bool:
    """Below the loop, and in no loop that is not also around it."""
    if read.order < loop.order or read.context.function is not loop.context.function:
        return False
    return all(loop.context.within(frame) for frame in read.context.local_frames() if frame.kind == "loop")


def read_outs_below(loop: For | While) -> list[Assign]:
    """The statements right below a loop that read a sum out: `running_loss = running_loss.item()`."""
    found = []
    for statement in loop.block[loop.index + 1 :]:
        if not isinstance(statement, Assign) or len(statement.targets) != 1 or statement.op is not None:
            break
        target, value = statement.targets[0], statement.value
        if not (isinstance(target, Name) and isinstance(value, Call) and value.attr == "item"):
            break
        if not isinstance(value.receiver, Name) or value.receiver.id != target.id:
            break
        found.append(statement)
    return found

"""Python loops over the rows of a tensor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.semantic import walk
from trainlint.semantic.contexts import dotted_name
from trainlint.semantic.facts import Attribute, Call, Compare, Context, Expr, For, Name, Operator, Statement, Subscript
from trainlint.semantic.origins import origins
from trainlint.semantic.values import Object, Routine, Tensor, each

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


def loops(script: Script) -> Iterator[tuple[For, Expr]]:
    """(a loop that takes a tensor apart and computes on each part, the tensor)"""
    for loop in script.module.loops:
        if not isinstance(loop, For) or not loop.body:
            continue
        frame = loop.body[0].context
        tensor = _tensor_of(script, loop)
        if tensor is None or script.semantics.loops.batch_loop(frame) is not None or _runs_module(script, frame):
            continue
        if _computes(script, loop, frame):
            yield loop, tensor


def _tensor_of(script: Script, loop: For) -> Expr | None:
    """The tensor whose rows the loop counts or draws."""
    if not isinstance(loop.target, Name):
        return None
    iterated = loop.iter
    if isinstance(iterated, Call) and isinstance(iterated.callee, Name) and iterated.callee.id == "range":
        return _sized(script, iterated.args[-1]) if len(iterated.args) in (1, 2) else None
    return iterated if _is_tensor(script, iterated) else None


def _sized(script: Script, count: Expr) -> Expr | None:
    """`x` of `x.size(0)`, `x.shape[0]`, `len(x)`, also through a name."""
    found = origins(script.inference, count)
    if len(found) != 1 or found[0] is None or found[0].element:
        return None
    expr = found[0].expr
    if isinstance(expr, Call) and expr.attr == "size" and expr.receiver is not None and expr.args:
        return expr.receiver if _is_tensor(script, expr.receiver) else None
    if isinstance(expr, Call) and expr.attr == "len" and isinstance(expr.callee, Name) and expr.args:
        return expr.args[0] if _is_tensor(script, expr.args[0]) else None
    if isinstance(expr, Subscript):
        expr = expr.value
    if isinstance(expr, Attribute) and expr.attr == "shape" and _is_tensor(script, expr.value):
        return expr.value
    return None


def _is_tensor(script: Script, expr: Expr) -> bool:
    tensor = script.tensor(expr)
    return tensor is not None and tensor.sure


def _runs_module(script: Script, frame: Context) -> bool:
    """A layer or a recurrent cell runs in the body: each turn may need what the last one left."""
    for call in script.semantics.loops.calls_of(frame):
        if call.context.within(frame):
            for value in each(script.value(call.callee)):
                if isinstance(value, Object) and value.role in ("module", "engine"):
                    return True
                if (
                    isinstance(value, Routine)
                    and isinstance(value.owner, Object)
                    and value.owner.role == "module"
                    and value.function.name == "forward"
                ):
                    return True
    return False


def _computes(script: Script, loop: For, frame: Context) -> bool:
    """Whether a part goes into an operation that gives a tensor, or a row itself is the operand of one."""
    assert isinstance(loop.target, Name)
    name = loop.target.id
    counted = isinstance(loop.iter, Call)
    statements = [s for s in script.module.statements if s.context.within(frame)]
    for statement in statements:
        for expr in _heads(statement):
            if isinstance(expr, (Operator, Compare, Call)) and any(
                isinstance(v, Tensor) for v in each(script.value(expr))
            ):
                if _moves_only(expr):
                    continue
                if any(_is_part(script, operand, name, counted) for operand in _operands(expr)):
                    return True
    return False


_MOVES = frozenset("to cpu cuda numpy detach item append clone unsqueeze squeeze".split())


def _moves_only(expr: Expr) -> bool:
    return isinstance(expr, Call) and expr.attr in _MOVES


def _heads(statement: Statement) -> Iterator[Expr]:
    yield from walk.inside(statement)


def _operands(expr: Expr) -> tuple[Expr, ...]:
    if isinstance(expr, (Operator, Compare)):
        return expr.operands
    if isinstance(expr, Call):
        receiver = expr.receiver
        return (*((receiver,) if receiver is not None else ()), *expr.args)
    return ()


def _is_part(script: Script, expr: Expr, name: str, counted: bool) -> bool:
    if not counted:
        return dotted_name(expr) == name
    if isinstance(expr, Subscript) and _is_tensor(script, expr.value):
        return any(isinstance(part, Name) and part.id == name for part in walk.inside(expr.index))
    return False

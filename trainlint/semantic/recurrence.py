"""State that one step leaves to the next: `out, hidden = rnn(x, hidden)`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.records import NamedTuple
from trainlint.semantic import autograd
from trainlint.semantic.bindings import lookup
from trainlint.semantic.contexts import dotted_name, is_self
from trainlint.semantic.facts import Assign, Attribute, Call, Class, Context, Expr, Name, Sequence, Starred
from trainlint.semantic.heat import Hot
from trainlint.semantic.values import Object, Tensor, Unknown, Value, each
from trainlint.semantic.work import BACKWARD, FORWARD

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class Carried(NamedTuple):
    call: Call
    state: Expr
    hot: Hot


def undetached(script: Script) -> Iterator[Carried]:
    """Forward passes of training steps whose state comes from the step before, with its graph."""
    for statement in script.module.statements:
        if not isinstance(statement, Assign) or not isinstance(statement.value, Call) or statement.op is not None:
            continue
        call = statement.value
        states = list(_states(statement.targets, call))
        if not states:
            continue
        if script.semantics.work.kind(call) != FORWARD and not _runs_module(script, call):
            continue
        hot = script.hot(call) or _trained_somewhere(script, call)
        if hot is None or hot.phase != "train" or hot.loop is None or BACKWARD not in hot.loop.work.once:
            continue
        if script.autograd(call) == autograd.OFF:
            continue
        for state, way in states:
            if _has_graph(script, call, way) and _survives(script, state, statement, hot):
                yield Carried(call, state, hot)
                break


def _trained_somewhere(script: Script, call: Call) -> Hot | None:
    """A `forward` without a known caller, in a program with a training loop over a model that is handed in."""
    function = call.context.function
    if function is None or function.name != "forward" or function.cls is None:
        return None
    if script.role(function.cls) != "module" or script.inference.callgraph.callers(function):
        return None
    for module in script.project.family(script.module.path):
        for loop in script.semantics.loops.of_module(module):
            if loop.phase != "train" or BACKWARD not in loop.work.once:
                continue
            for inner in script.semantics.loops.calls_of(loop.frame):
                if inner.context.within(loop.frame) and _runs_unknown(script, inner):
                    return Hot(loop, (), "train")
    return None


def _runs_unknown(script: Script, call: Call) -> bool:
    """`model(x)` of a module whose class is not known."""
    values = list(each(script.value(call.callee)))
    return any(
        isinstance(v, Object) and v.role == "module" and v.cls is None and not v.name and not v.inner for v in values
    )


def _runs_module(script: Script, call: Call) -> bool:
    return FORWARD in script.semantics.work.of_call(call).once


def _states(targets: tuple[Expr, ...], call: Call) -> Iterator[tuple[Expr, tuple[int, ...]]]:
    """Names (or attributes of self) that are both an argument and part of the result."""
    given = list(_flat([*call.args, *(k.value for k in call.keywords)]))
    for target in targets:
        for part, way in _parts(target, ()):
            name = dotted_name(part)
            if name is not None and isinstance(part, (Name, Attribute)) and any(dotted_name(a) == name for a in given):
                yield part, way


def _flat(exprs: list[Expr]) -> Iterator[Expr]:
    for expr in exprs:
        if isinstance(expr, Sequence):
            yield from _flat(list(expr.elements))
        elif isinstance(expr, Starred):
            yield expr.value
        else:
            yield expr


def _parts(target: Expr, way: tuple[int, ...]) -> Iterator[tuple[Expr, tuple[int, ...]]]:
    if isinstance(target, Sequence):
        for place, element in enumerate(target.elements):
            yield from _parts(element, (*way, place))
    else:
        yield target, way


def _has_graph(script: Script, call: Call, way: tuple[int, ...]) -> bool:
    held: Value = script.inference.descend(script.value(call), way)
    values = list(each(held))
    return not any(isinstance(v, Tensor) and v.graph is False for v in values) and any(
        isinstance(v, (Tensor, Unknown)) for v in values
    )


def _survives(script: Script, state: Expr, statement: Assign, hot: Hot) -> bool:
    if isinstance(state, Name):
        return _name_survives(script, state, statement, hot)
    if isinstance(state, Attribute) and is_self(state.value, state.context) and state.context.cls is not None:
        return _attribute_survives(script, state, statement, state.context.cls, script.hot(statement) is not None)
    return False


def _name_survives(script: Script, state: Name, statement: Assign, hot: Hot) -> bool:
    """Nothing else in the loop sets, resets or detaches the name, and it starts before the loop."""
    if hot.calls or hot.loop is None:
        return False
    frame = hot.loop.frame
    loop = _innermost_loop(statement.context)
    if loop is not frame:
        return False  # a loop over time steps inside of the step
    scope = frame.function.locals if frame.function is not None else frame.module.names
    bindings = scope.get(state.id, [])
    inside = [b for b in bindings if b.context.within(frame)]
    if any(b.statement is not statement for b in inside) or len(inside) != 1:
        return False
    before = (
        [b for b in lookup(statement.value, state.id)[0] if not b.context.within(frame)]
        if statement.value is not None
        else []
    )
    if not before or any(b.how == "for" for b in before):
        return False
    return not _is_touched(script, state.id, frame)


def _is_touched(script: Script, name: str, frame: Context) -> bool:
    """`hidden.detach_()`, `for h in hidden: h.detach_()`, `cut(hidden)` in the loop."""
    for call in script.semantics.loops.calls_of(frame):
        if call.context.within(frame) and call.attr in ("detach_", "repackage_hidden", "detach_hidden"):
            return True
    return False


def _attribute_survives(script: Script, state: Attribute, statement: Assign, cls: Class, known: bool) -> bool:
    """No code that runs on each step sets the attribute to something else."""
    for base in script.inference.bases(cls):
        for binding in base.attributes.get(state.attr, ()) if isinstance(base, Class) else ():
            if binding.statement is statement:
                continue
            function = binding.context.function
            if function is statement.context.function:
                return False
            if not known and (function is None or function.name != "__init__"):
                return False  # who calls it cannot be seen
            if (
                function is not None
                and function.name != "__init__"
                and isinstance(script.semantics.heat.of(binding.context), Hot)
            ):
                return False
    # `model.memory = None` from outside
    for module in script.project.family(script.module.path):
        if any(name.rpartition(".")[2] == state.attr for name in module.stores):
            return False
    function = statement.context.function
    calls = function.calls if function is not None else []
    return not any(
        c.attr in ("detach_", "detach") and c.receiver is not None and dotted_name(c.receiver) == dotted_name(state)
        for c in calls
    )


def _innermost_loop(context: Context) -> Context | None:
    for frame in context.local_frames():
        if frame.kind == "loop":
            return frame
    return None

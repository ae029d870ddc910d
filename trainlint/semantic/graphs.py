"""How long an autograd graph is needed: whether anything runs backward over it once more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainlint.semantic.bindings import lookup
from trainlint.semantic.contexts import is_self
from trainlint.semantic.facts import Attribute, Call, Context, Expr, Function, Name, Operator
from trainlint.semantic.lineage import Part
from trainlint.semantic.step import OPAQUE, Event, Step, excludes
from trainlint.semantic.values import (
    Array,
    Batch,
    Const,
    External,
    Method,
    Number,
    Object,
    Routine,
    Tensor,
    Text,
    Type,
    each,
)
from trainlint.semantic.work import BACKWARD

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


_DEEPEST = 6
_NO_GRAPH = (Array, Batch, Const, External, Method, Number, Object, Routine, Text, Type)


def is_free_after(script: Script, backward: Call) -> bool:
    """Whether it is sure that no second backward, and no `autograd.grad`, runs over the graph of a backward."""
    steps = [
        (step, event)
        for step in script.semantics.steps.through(script.module)
        for event in step.of(BACKWARD)
        if event.record is backward
    ]
    return bool(steps) and all(_is_last(script, step, event) for step, event in steps)


def _is_last(script: Script, step: Step, event: Event) -> bool:
    if event.loops or event.owner is None:
        return False
    if any(e.kind == OPAQUE for e in step.events):
        return False
    own = script.semantics.lineage.parts(event.owner, event.path)
    if _is_carried(script, own, step.frame):
        return False
    computed = _computed(script, own)
    if _asks_for_gradients(script, step, event, computed):
        return False
    for other in step.of(BACKWARD):
        if other is event or excludes(other, event):
            continue
        if other.owner is None or other.loops:
            return False
        if not computed or computed & _computed(script, script.semantics.lineage.parts(other.owner, other.path)):
            return False
    return True


def _asks_for_gradients(script: Script, step: Step, event: Event, computed: set[tuple[int, ...]]) -> bool:
    """Whether `torch.autograd.grad` may run over the graph after the backward, or a backward makes a graph of its own.

    A call that comes before the backward has kept or freed the graph for itself.
    """
    if any(isinstance(e.record, Call) and e.record.keyword("create_graph") is not None for e in step.of(BACKWARD)):
        return True
    modules = {id(e.record.context.module): e.record.context.module for e in step.events}
    for call in (c for m in modules.values() for c in m.calls_by_attr.get("grad", ())):
        orders = _reached_at(script, step, call)
        if orders is None or (any(order > event.top.order for order in orders) and _may_share(script, call, computed)):
            return True
    return False


def _reached_at(script: Script, step: Step, call: Call) -> list[int] | None:
    """Where the body of a step runs a call, also through functions; None where it cannot be told."""
    if call.context.within(step.frame):
        return [call.order]
    function = call.context.function
    if function is None:
        return []
    found = [
        c.order
        for c in script.semantics.loops.calls_of(step.frame)
        if c.context.within(step.frame) and _enters(script, c, function, 0, set())
    ]
    return found if found or script.inference.callgraph.callers(function) else None


def _enters(script: Script, call: Call, function: Function, depth: int, seen: set[int]) -> bool:
    for callee in script.inference.callgraph.callees(call) if depth < _DEEPEST else ():
        if callee.function is function:
            return True
        if id(callee.function) not in seen:
            seen.add(id(callee.function))
            if any(_enters(script, c, function, depth + 1, seen) for c in callee.function.calls):
                return True
    return False


def _may_share(script: Script, call: Call, computed: set[tuple[int, ...]]) -> bool:
    """Whether the outputs that gradients are asked of may hang on what makes the graph; sure only in the same function."""
    outputs = call.argument(0, "outputs")
    if outputs is None or script.name_of(call.callee) != "torch.autograd.grad" or not computed:
        return True
    asked = _computed(script, script.semantics.lineage.parts(outputs, ()))
    return not asked or bool({key[0] for key in asked} & {key[0] for key in computed})


def _computed(script: Script, parts: list[Part]) -> set[tuple[int, ...]]:
    """What makes nodes of the graph, by the way that leads there."""
    return {
        (id(p.expr), *(id(c) for c in p.path))
        for p in parts
        if isinstance(p.expr, (Call, Operator)) and may_have_graph(script, p.expr)
    }


def _is_carried(script: Script, parts: list[Part], frame: Context) -> bool:
    """Whether the value hangs on something that the turn before has left, with its graph."""
    for part in parts:
        expr = part.expr
        if isinstance(expr, Name) and _left_by_last_turn(script, expr, frame):
            return True
        if isinstance(expr, Attribute) and is_self(expr.value, expr.context) and _kept_on_self(script, expr):
            return True
    return False


def _left_by_last_turn(script: Script, name: Name, frame: Context) -> bool:
    later = [b for b in lookup(name, name.id)[0] if b.order > name.order and b.context.within(frame)]
    if not later:
        return False
    last = max(later, key=lambda b: b.order)
    settled = last.how == "assign" and last.value is not None and last.context is frame
    return not (settled and last.value is not None and not may_have_graph(script, last.value))


def _kept_on_self(script: Script, expr: Attribute) -> bool:
    cls = expr.context.cls
    for binding in cls.attributes.get(expr.attr, ()) if cls is not None else ():
        function = binding.context.function
        if function is not None and function.name != "__init__" and binding.value is not None:
            if may_have_graph(script, binding.value):
                return True
    return False


def may_have_graph(script: Script, expr: Expr) -> bool:
    """Whether an expression may hang on an autograd graph: a tensor whose graph is not known to be cut, or not known
    at all."""
    if script.semantics.lineage.cut(expr):
        return False
    return any(
        not isinstance(v, _NO_GRAPH) and not (isinstance(v, Tensor) and v.graph is False)
        for v in each(script.value(expr))
    )

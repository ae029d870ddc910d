"""What grows from step to step: sums, lists and averages that live longer than one turn of a batch loop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.records import NamedTuple
from trainlint.semantic import autograd
from trainlint.semantic.bindings import lookup
from trainlint.semantic.contexts import dotted_name, is_self
from trainlint.semantic.facts import (
    Assign,
    Attribute,
    Binding,
    Call,
    Compare,
    Conditional,
    Constant,
    Context,
    Expr,
    Mapping,
    Name,
    Operator,
    Record,
    Sequence,
    Subscript,
)
from trainlint.semantic.heat import Hot
from trainlint.semantic.same import same
from trainlint.semantic.values import Tensor, each
from trainlint.semantic.work import BACKWARD

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class Kept(NamedTuple):
    """`value` is added to `target` on each step. `freed`: a backward has run over its graph."""

    record: Record
    target: str
    value: Expr
    hot: Hot
    freed: bool
    is_parameter: bool


def find(script: Script) -> Iterator[Kept]:
    """Tensors that are kept with their graph."""
    for record, target, value in _growing(script):
        hot = script.hot(record)
        if hot is None or hot.phase != "train" or not outlives_turn(script, target, record, hot):
            continue
        if script.autograd(record) == autograd.OFF:
            continue
        source = _with_graph(script, value, record)
        if source is None or _feeds_backward(script, target, record):
            continue
        is_parameter = source.origin == "parameter"
        freed = is_parameter or _is_freed(script, value, record, hot)
        yield Kept(record, dotted_name(_base(target)) or "the list", value, hot, freed, is_parameter)


def _growing(script: Script) -> Iterator[tuple[Record, Expr, Expr]]:
    """Statements that add to what is there: the place, what grows, and what is added."""
    for statement in script.module.statements:
        if not isinstance(statement, Assign) or statement.value is None or len(statement.targets) != 1:
            continue
        target = statement.targets[0]
        if not isinstance(target, (Name, Attribute, Subscript)):
            continue
        added = statement.value if statement.op in ("+", "-") else None
        if statement.op is None:
            added = _added(_computed(statement.value), target)
        for value in _values(added) if added is not None else ():
            yield statement, target, value
    for call in script.methods("append", "appendleft", "extend", "insert"):
        if call.receiver is not None and call.args and (call.attr != "extend" or isinstance(call.args[-1], Sequence)):
            for value in _values(call.args[-1]):
                yield call, call.receiver, value


def _computed(value: Expr) -> Expr:
    """`new = decay * average[k] + (1 - decay) * p`, of which `average[k] = new` speaks."""
    if isinstance(value, Name):
        bindings = lookup(value, value.id)[0]
        if len(bindings) == 1 and bindings[0].how == "assign" and isinstance(bindings[0].value, Operator):
            return bindings[0].value if not bindings[0].path else value
    return value


def _values(added: Expr) -> Iterator[Expr]:
    """`loss` of `loss`, `[loss]`, `(epoch, loss)`, `{"loss": loss}`."""
    if isinstance(added, Sequence):
        for element in added.elements:
            yield from _values(element)
    elif isinstance(added, Mapping):
        for value in added.values:
            yield from _values(value)
    else:
        yield added


def _added(value: Expr, target: Expr) -> Expr | None:
    """`loss` of `total + loss`, `beta * total + (1 - beta) * loss`, `loss if total is None else total + loss`."""
    if isinstance(value, Conditional):
        return _added(value.orelse, target) or _added(value.body, target)
    if not isinstance(value, Operator) or value.op not in ("+", "-") or len(value.operands) != 2:
        return None
    left, right = value.operands
    if _mentions(left, target):
        return right
    return left if _mentions(right, target) else None


def _mentions(expr: Expr, target: Expr) -> bool:
    """`total` itself, or `total * number`, `total.detach()` does not count."""
    if same(expr, target):
        return True
    if isinstance(expr, Operator) and expr.op in ("*", "+", "-", "/"):
        return any(_mentions(o, target) for o in expr.operands)
    return False


# ------------------------------------------------------------------------------------------------------- life time


def outlives_turn(script: Script, target: Expr, record: Record, hot: Hot) -> bool:
    """Whether a name, attribute or item lives longer than one turn of the batch loop."""
    base = _base(target)
    if isinstance(base, Name):
        frame = _turn(record.context, hot)
        bindings = [b for b in lookup(base, base.id)[0] if b.statement is not record]
        starts = [b for b in bindings if not _grows(b)]
        if isinstance(target, Subscript) and len(starts) == 1 and starts[0].how == "parameter":
            return _is_kept_by_caller(script, starts[0])
        if frame is None or not starts:
            return False
        return all(_starts_outside(b, frame) and not _is_bounded(b) for b in starts)
    if isinstance(base, Attribute) and is_self(base.value, base.context) and base.context.cls is not None:
        starts = [
            b for b in base.context.cls.attributes.get(base.attr, ()) if b.statement is not record and not _grows(b)
        ]
        return bool(starts) and not any(_is_reset(script, b) or _is_bounded(b) for b in starts)
    return False


def _is_kept_by_caller(script: Script, binding: Binding) -> bool:
    """What a helper is given to store into: `update(average, model)`."""
    function = binding.context.function
    if function is None:
        return False
    sites = script.inference.callgraph.callers(function)
    if any(script.autograd(site.call) == autograd.OFF for site in sites):
        return False  # which of them brings what has a graph cannot be told
    for site in sites:
        given = site.argument(function, binding.source)
        hot = script.hot(site.call)
        if isinstance(given, (Name, Attribute)) and hot is not None and hot.phase == "train" and not hot.calls:
            if outlives_turn(script, given, site.call, hot):
                return True
    return False


def _base(target: Expr) -> Expr:
    while isinstance(target, Subscript):
        target = target.value
    return target


def _grows(binding: Binding) -> bool:
    """`x += v`, or `x = x + v`."""
    if binding.how == "augment":
        return True
    name = binding.name.rpartition(".")[2]
    value = binding.value
    if isinstance(value, Conditional):
        return any(_reads(part, name) for part in (value.body, value.orelse))
    return isinstance(value, Operator) and _reads(value, name)


def _reads(expr: Expr, name: str) -> bool:
    if isinstance(expr, (Name, Attribute)):
        return (expr.id if isinstance(expr, Name) else expr.attr) == name
    if isinstance(expr, Subscript):
        return _reads(expr.value, name)
    return isinstance(expr, Operator) and any(_reads(o, name) for o in expr.operands)


def _is_bounded(binding: Binding) -> bool:
    """`deque(maxlen=100)` forgets what is old."""
    value = binding.value
    return isinstance(value, Call) and value.attr == "deque" and value.argument(1, "maxlen") is not None


def _starts_outside(binding: Binding, frame: Context) -> bool:
    return binding.how not in ("parameter", "for", "with") and not binding.context.within(frame)


def is_part_of_training(script: Script, hot: Hot) -> bool:
    """A loop without a backward inside of one with: over time steps, crops or experts of one training step."""
    if hot.loop is None:
        return False
    return any(
        (outer := script.semantics.loops.batch_loop(frame)) is not None and outer.phase == "train"
        for frame in hot.loop.frame.local_frames()
        if frame.kind == "loop" and frame is not hot.loop.frame
    )


def _turn(context: Context, hot: Hot) -> Context | None:
    """The loop whose turns are the steps, when it stands in the same function; else none: a local lives for one
    call."""
    if hot.calls or hot.loop is None:
        return None
    return hot.loop.frame


def _is_reset(script: Script, binding: Binding) -> bool:
    """Set anew in hot code: once per step."""
    function = binding.context.function
    if function is None or function.name == "__init__":
        return False
    if _only_first(binding):
        return False
    return isinstance(script.semantics.heat.of(binding.context), Hot)


def _only_first(binding: Binding) -> bool:
    """`if self.average is None: self.average = loss`"""
    for frame in binding.context.local_frames():
        if frame.kind == "branch" and isinstance(frame.test, Compare):
            if frame.test.ops == ("is",) and isinstance(frame.test.operands[1], Constant) and not frame.negated:
                return True
    return False


# ----------------------------------------------------------------------------------------------------------- graph


def _with_graph(script: Script, value: Expr, record: Record) -> Tensor | None:
    """The tensor with a graph that is added; where it comes in as a parameter, from hot training code with autograd
    on."""
    held = list(each(script.value(value)))
    found = next((v for v in held if isinstance(v, Tensor) and v.graph is True and v.sure), None)
    if found is None or script.semantics.lineage.cut(value):
        return None
    names = list(_names(value))
    parameters = [b for n in names for b in lookup(n, n.id)[0] if b.how == "parameter"]
    own = [n for n in names if not any(b.how == "parameter" for b in lookup(n, n.id)[0])]
    if not parameters or any(_carries(script, n) for n in own):
        # a number on another way: somebody has asked whether it is a tensor
        return found if all(isinstance(v, Tensor) for v in held) else None
    for binding in parameters:
        function = binding.context.function
        if function is None:
            continue
        for site in script.inference.callgraph.callers(function):
            argument = site.argument(function, binding.source)
            if (
                not isinstance(argument, Expr)
                or script.semantics.lineage.cut(argument)
                or not _carries(script, argument)
            ):
                continue
            hot = script.hot(site.call)
            if hot is not None and hot.phase == "train" and script.autograd(site.call) != autograd.OFF:
                return found
    return None


def _carries(script: Script, expr: Expr) -> bool:
    return any(isinstance(v, Tensor) and v.graph is True and v.sure for v in each(script.value(expr)))


def _names(expr: Expr) -> Iterator[Name]:
    if isinstance(expr, Name):
        yield expr
    elif isinstance(expr, Operator):
        for operand in expr.operands:
            yield from _names(operand)
    elif isinstance(expr, (Attribute, Subscript)):
        yield from _names(expr.value)
    elif isinstance(expr, Call):
        if expr.receiver is not None:
            yield from _names(expr.receiver)
        for argument in expr.args:
            yield from _names(argument)


def _feeds_backward(script: Script, target: Expr, record: Record) -> bool:
    """What grows is itself the value of a later backward: losses summed for one backward over several turns."""
    name = dotted_name(_base(target))
    if name is None:
        return False
    steps = [*script.semantics.steps.through(script.module)]
    for step in steps:
        for event in step.of(BACKWARD):
            if event.owner is None:
                continue
            for part in script.semantics.lineage.parts(event.owner, event.path):
                if isinstance(part.expr, (Name, Attribute)) and dotted_name(part.expr) == name:
                    if part.expr.context.function is record.context.function or "." in name:
                        return True
    function = record.context.function
    for call in function.calls if function is not None else script.module.calls:
        if call.attr == "backward" and call.receiver is not None:
            parts = script.semantics.lineage.parts(call.receiver, ())
            if any(isinstance(p.expr, (Name, Attribute)) and dotted_name(p.expr) == name for p in parts):
                return True
    return False


def _is_freed(script: Script, value: Expr, record: Record, hot: Hot) -> bool:
    """Whether a backward of the step runs over the graph of the value. When that cannot be told, it counts as freed."""
    mine: set[int] = set()
    for expr, path in _at_callers(script, value):
        mine |= {
            id(p.expr)
            for p in script.semantics.lineage.forwards(expr, path)
            if not script.semantics.lineage.cut(p.expr)
        }
    if not mine:
        return True
    backwards = [e for step in script.semantics.steps.through(script.module) for e in step.of(BACKWARD)]
    if not backwards:
        return True
    freed: set[int] = set()
    for event in backwards:
        if event.owner is None:
            return True
        freed |= {id(p.expr) for p in script.semantics.lineage.forwards(event.owner, event.path)}
    return not freed or bool(mine & freed)


def _at_callers(script: Script, value: Expr) -> Iterator[tuple[Expr, tuple[Call, ...]]]:
    yield value, ()
    function = value.context.function
    if function is None:
        return
    for name in _names(value):
        for binding in lookup(name, name.id)[0]:
            if binding.how == "parameter":
                for site in script.inference.callgraph.callers(function):
                    argument = site.argument(function, binding.source)
                    if isinstance(argument, Expr):
                        yield argument, ()

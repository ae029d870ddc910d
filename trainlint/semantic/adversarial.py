"""Two networks trained against each other: a backward that runs through a network which the step after it does not
train."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.patterns_on_use import Pattern
from trainlint.records import NamedTuple
from trainlint.semantic import changed_weights, switching
from trainlint.semantic.bindings import lookup
from trainlint.semantic.contexts import dotted_name, is_self
from trainlint.semantic.facts import Attribute, Call, Expr, Name, Sequence
from trainlint.semantic.identity import Subject
from trainlint.semantic.lineage import Part
from trainlint.semantic.step import CLIP, INSPECT, OPAQUE, STEP, ZERO_GRAD, Event, Step, implies
from trainlint.semantic.walk import expressions
from trainlint.semantic.work import BACKWARD, FORWARD

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_PREFIX = Pattern(
    r"(?i:(?:^|_)(?:optimi[sz]er|optim|opt|solver)s?(?:_|$))"
    r"|^(?:[Oo]ptimi[sz]er|[Oo]ptim|[Oo]pt|[Ss]olver)(?=[A-Z])|(?:Optimi[sz]er|Optim|Opt)$"
)


class WastedGraph(NamedTuple):
    """`outer`: the forward of the network that is trained, on the output of `inner`, which is not. `argument`: what
    brings that output in, where it brings nothing else that is trained and this call serves no other step. `cleared`:
    whether what the backward leaves in the other networks is surely cleared before anything uses it."""

    outer: Call
    inner: Call
    backward: Call
    optimizer: Expr
    argument: Expr | None = None
    cleared: bool = False


def wasted_graphs(script: Script) -> Iterator[WastedGraph]:
    if not _runs_networks(script):
        return
    for step in script.semantics.steps.through(script.module):
        for backward, optimizer in _single_updates(script, step):
            if not any(c.backward is backward.record for c in changed_weights.find(script, step)):
                yield from _of_update(script, step, backward, optimizer)  # otherwise it raises, which is said of it


def _runs_networks(script: Script) -> bool:
    """Whether a network runs anywhere but inside of another one: what a `forward` does with its layers trains nothing."""
    work = script.semantics.work
    return any(
        work.kind(call) == FORWARD
        for call in script.module.calls
        if call.context.function is None or call.context.function.name != "forward"
    )


def _single_updates(script: Script, step: Step) -> Iterator[tuple[Event, Event]]:
    """Each backward with the one optimizer that steps before the next backward; the step must know another
    optimizer."""
    events = step.of(BACKWARD, STEP)
    steps = script.semantics.steps
    for place, event in enumerate(events):
        if event.kind != BACKWARD or event.owner is None:
            continue
        following: list[Event] = []
        for other in events[place + 1 :]:
            if other.kind == BACKWARD:
                break
            following.append(other)
        if len(following) != 1:
            continue
        if place > 0 and events[place - 1].kind == BACKWARD and not _others_cleared_after(script, step, following[0]):
            continue
        if any(steps.same(following[0], other) is False for other in step.of(STEP)):
            yield event, following[0]


def _others_cleared_after(script: Script, step: Step, update: Event) -> bool:
    """Whether, between an optimizer's step and the next backward, the gradients that another optimizer uses are cleared:
    what the backwards before it left there served nobody."""
    steps = script.semantics.steps
    events = step.of(BACKWARD, STEP, ZERO_GRAD)
    after = events[next(i for i, e in enumerate(events) if e is update) + 1 :]
    others = [e for e in step.of(STEP) if steps.same(e, update) is False]
    for event in after:
        if event.kind == BACKWARD:
            return False
        if event.kind == ZERO_GRAD:
            for other in others:
                optimizer, cleared = steps.subject(other), steps.subject(event)
                if steps.same(event, other) is True:
                    return True
                if optimizer is not None and cleared is not None and _trains(script, optimizer, cleared):
                    return True
    return False


def _of_update(script: Script, step: Step, backward: Event, optimizer: Event) -> Iterator[WastedGraph]:
    assert backward.owner is not None
    for outer in script.semantics.lineage.forwards(backward.owner, backward.path):
        call = outer.expr
        assert isinstance(call, Call)
        if script.semantics.lineage.cut(call) or _in_penalty(script, call) or _is_shared(script, step, backward, outer):
            continue
        for _, inner in _inputs(script, outer):
            assert isinstance(inner.expr, Call)
            if _trains_outer_only(script, step, optimizer, outer, inner):
                if isinstance(backward.record, Call) and optimizer.owner is not None:
                    argument = _wasted_argument(script, step, optimizer, outer)
                    cleared = _cleared(script, step, backward, optimizer)
                    yield WastedGraph(call, inner.expr, backward.record, optimizer.owner, argument, cleared)
                break


def _inputs(script: Script, outer: Part) -> Iterator[tuple[Expr, Part]]:
    """The forward passes that the arguments of a forward pass hang on, each with its argument."""
    call = outer.expr
    assert isinstance(call, Call)
    for argument in [*call.args, *(k.value for k in call.keywords)]:
        for part in script.semantics.lineage.forwards(argument, outer.path):
            if not script.semantics.lineage.cut(part.expr):
                yield argument, part


def _wasted_argument(script: Script, step: Step, optimizer: Event, outer: Part) -> Expr | None:
    """The only argument with a graph, a tensor whose graph is wasted whole; None where the call may serve other steps."""
    arguments: dict[int, Expr] = {}
    for argument, part in _inputs(script, outer):
        arguments[id(argument)] = argument
        if not _trains_outer_only(script, step, optimizer, outer, part):
            return None
    if len(arguments) != 1 or _runs_elsewhere(script, outer):
        return None
    (argument,) = arguments.values()
    return argument if script.tensor(argument) is not None else None


def _runs_elsewhere(script: Script, outer: Part) -> bool:
    """Whether a function on the way from the step to the forward pass is called in another place, too."""
    places = [*outer.path[1:], outer.expr] if outer.path else []
    functions = [place.context.function for place in places]
    return any(f is None or len(script.inference.callgraph.callers(f)) != 1 for f in functions)


def _cleared(script: Script, step: Step, backward: Event, optimizer: Event) -> bool:
    """Whether each other optimizer's gradients are cleared after this backward, before another one runs, a step is taken,
    or anything else looks at gradients; on the next turn of the step, if not on this one."""
    steps = script.semantics.steps
    others = [e for e in step.of(STEP) if steps.same(e, optimizer) is not True]
    at = next(i for i, e in enumerate(step.events) if e is backward)
    following = [*step.events[at + 1 :], *(step.events[:at] if step.frame.kind == "loop" else ())]
    window: list[Event] = []
    last: Event | None = None
    for event in following:
        if event.kind in (CLIP, INSPECT, OPAQUE):
            return False
        if event.kind == BACKWARD or (event.kind == STEP and steps.same(event, optimizer) is not True):
            last = event
            break
        window.append(event)
    if last is None:
        return False
    clearings = [e for e in window if e.kind == ZERO_GRAD and e.sure and implies(last, e)]
    return all(any(steps.clears(e, other) is True for e in clearings) for other in others)


def _trains_outer_only(script: Script, step: Step, optimizer: Event, outer: Part, inner: Part) -> bool:
    steps, identity = script.semantics.steps, script.semantics.steps.identity
    outer_expr, inner_expr = _network(outer.expr), _network(inner.expr)
    if outer_expr is None or inner_expr is None:
        return False
    trained, other = identity.of(outer_expr, outer.path), identity.of(inner_expr, inner.path)
    subject = steps.subject(optimizer)
    if subject is None or identity.same(trained, other) is not False:
        return False
    if _trains(script, subject, other) or switching.may_be_off(script, inner_expr, inner):
        return False
    others = [e for e in step.of(STEP) if steps.same(e, optimizer) is False]
    if _trains(script, subject, trained):
        for event in others:
            second = steps.subject(event)
            if second is not None and _trains(script, second, other):
                return True
    if subject.builders:
        return False
    return _named_for(optimizer.owner, outer_expr, inner_expr) and any(
        _named_for(event.owner, inner_expr, outer_expr) for event in others
    )


def _trains(script: Script, optimizer: Subject, network: Subject) -> bool:
    identity = script.semantics.steps.identity
    if identity.trains(optimizer, network) is True:
        return True
    mine = _sources(script, network.expr, 0)
    for builder in optimizer.builders:
        given = builder.argument(0, "params")
        for owner in identity.owners_of_parameters(given) if given is not None else ():
            if mine & _sources(script, owner, 0):
                return True
    return False


def _sources(script: Script, expr: Expr, depth: int) -> set[int]:
    """What an attribute of `self` was set to: the parameter of `__init__`, or the call, behind `self.critic =
    critic.cuda()`."""
    found: set[int] = set()
    while (
        isinstance(expr, Call) and expr.attr in ("to", "cuda", "train", "eval", "float") and expr.receiver is not None
    ):
        expr = expr.receiver
    if depth > 4:
        return found
    if isinstance(expr, Call):
        return {id(expr)}
    bindings = lookup(expr, expr.id)[0] if isinstance(expr, Name) else []
    if isinstance(expr, Attribute) and is_self(expr.value, expr.context) and expr.context.cls is not None:
        bindings = expr.context.cls.attributes.get(expr.attr, [])
    for binding in bindings:
        if binding.how == "parameter":
            found.add(id(binding.source))
        elif binding.how == "assign" and binding.value is not None:
            value: Expr = binding.value
            for place in binding.path:
                if isinstance(value, Sequence) and place is not None and place < len(value.elements):
                    value = value.elements[place]
                else:
                    return found
            found |= _sources(script, value, depth + 1)
    return found


def _network(expr: Expr) -> Expr | None:
    """`model` of `model(x)`, `model.encode(x)`."""
    if not isinstance(expr, Call):
        return None
    callee = expr.callee
    if isinstance(callee, Attribute) and callee.attr in (
        "forward",
        "encode",
        "decode",
        "generate",
        "sample",
        "predict",
    ):
        return callee.value
    return callee


def _named_for(optimizer: Expr | None, network: Expr, other: Expr) -> bool:
    """`opt_d` for `D`, `opt_lang` for `language`: the name of the optimizer points at one of two networks."""
    if optimizer is None:
        return False
    token = _PREFIX.sub("_", _last(optimizer)).strip("_").lower()
    mine, others = (
        _last(e).lower().removeprefix("net_").removeprefix("net") or _last(e).lower() for e in (network, other)
    )
    return bool(token) and mine.startswith(token) and not others.startswith(token)


def _last(expr: Expr) -> str:
    return (dotted_name(expr) or "").rpartition(".")[2]


def _in_penalty(script: Script, call: Call) -> bool:
    """In a function that takes gradients at its input, or beside a `torch.autograd.grad` on the same input or output."""
    function = call.context.function
    calls = function.calls if function is not None else [c for c in script.module.calls if c.context.function is None]
    penalties = [c for c in calls if c.attr == "grad" and script.name_of(c.callee) == "torch.autograd.grad"]
    if not penalties:
        return False
    if function is not None and not any(c.attr == "backward" for c in calls):
        return True
    names = {dotted_name(a) for a in call.args} | {dotted_name(t) for t in getattr(call.statement, "targets", ())}
    mentioned = {
        dotted_name(e) for c in penalties for a in [*c.args, *(k.value for k in c.keywords)] for e in expressions(a)
    }
    return bool((names & mentioned) - {None})


def _is_shared(script: Script, step: Step, backward: Event, outer: Part) -> bool:
    """The same forward pass is part of another backward: the graph through the generator is needed there."""
    for other in step.of(BACKWARD):
        if other is not backward and other.owner is not None:
            if any(p.expr is outer.expr for p in script.semantics.lineage.forwards(other.owner, other.path)):
                return _same_way(backward, other)
    return False


def _same_way(one: Event, other: Event) -> bool:
    """Whether two backwards are in the same function; a helper called twice runs its forward anew each time."""
    return one.path == other.path

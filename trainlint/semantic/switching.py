"""Networks whose parameters are switched on and off by `requires_grad` between the parts of a step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from trainlint.semantic.facts import Binding, Call, Expr, Function, Module, Sequence
from trainlint.semantic.identity import Path, Subject
from trainlint.semantic.lineage import Part

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class _Switch(NamedTuple):
    """`network`: whose parameters; `on`: what they are switched to, None when it cannot be told."""

    order: int
    network: Expr
    on: bool | None


def may_be_off(script: Script, network: Expr, part: Part) -> bool:
    """Whether the last switch before a forward pass may leave the parameters of its network without gradients: in the
    functions on the way from the step to the pass, the innermost first."""
    identity = script.semantics.steps.identity
    subject = identity.of(network, part.path)
    places = [*part.path, part.expr]
    for depth in range(len(places) - 1, -1, -1):
        last = _last(script, places[depth], part.path[:depth], subject)
        if last is not None:
            return last.on is not True
    return False


def _last(script: Script, place: Expr, path: Path, subject: Subject) -> _Switch | None:
    identity = script.semantics.steps.identity
    before = [
        switch
        for switch in _switches(script, place)
        if switch.order < place.order and identity.same(identity.of(switch.network, path), subject) is True
    ]
    return max(before, key=lambda switch: switch.order, default=None)


def _switches(script: Script, place: Expr) -> Iterator[_Switch]:
    """All switches in the body of the function that a place stands in."""
    for call in script.semantics.loops.calls_of(place.context):
        if call.attr == "requires_grad_" and call.receiver is not None:
            yield _Switch(call.order, call.receiver, _flag(script, call.argument(0, "requires_grad"), True))
            continue
        for function in script.callees(call):
            default = _switched_in(script, function)
            if default is not None:
                on = _given(script, call, function, default[0])
                for argument in call.args:
                    for network in argument.elements if isinstance(argument, Sequence) else (argument,):
                        yield _Switch(call.order, network, on)
    for binding in assignments(place.context.module):
        if binding.context.function is place.context.function:
            for iterated in iterated_around(binding):
                if iterated.receiver is not None:
                    yield _Switch(binding.order, iterated.receiver, _flag(script, binding.value, None))


def assignments(module: Module) -> Iterator[Binding]:
    """Every `weight.requires_grad = ...` of a file."""
    return (b for bindings in module.stores.values() for b in bindings if b.name == "requires_grad")


def iterated_around(binding: Binding) -> Iterator[Call]:
    """`model.parameters()` of the loops that an assignment stands in."""
    for frame in binding.context.local_frames():
        iterated = getattr(frame.record, "iter", None) if frame.kind == "loop" else None
        if isinstance(iterated, Call):
            yield iterated


def _switched_in(script: Script, function: Function) -> tuple[bool | None] | None:
    """What a helper switches parameters to, where it switches any: a constant, or None for what its caller says."""
    for call in function.calls:
        if call.attr == "requires_grad_":
            return (_flag(script, call.argument(0, "requires_grad"), True),)
    for binding in assignments(function.module):
        if binding.context.function is function:
            return (_flag(script, binding.value, None),)
    return None


def _given(script: Script, call: Call, function: Function, otherwise: bool | None) -> bool | None:
    """The flag that a call hands to a helper, or the helper's default for it."""
    if otherwise is not None:
        return otherwise
    for given in [*call.args, *(k.value for k in call.keywords)]:
        flag = _flag(script, given, None)
        if flag is not None:
            return flag
    defaults = {_flag(script, p.default, None) for p in function.parameters if p.default is not None} - {None}
    return defaults.pop() if len(defaults) == 1 else None


def _flag(script: Script, expr: Expr | None, otherwise: bool | None) -> bool | None:
    value = script.constant(expr) if expr is not None else ...
    return value if isinstance(value, bool) else otherwise if expr is None else None

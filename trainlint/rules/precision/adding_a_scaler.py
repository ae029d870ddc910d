"""A GradScaler put into a training step that has none: made once before the loops, and all of its calls in their places."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from trainlint.records import NamedTuple
from trainlint.rules import describe, rewrites
from trainlint.rules.precision import scaler_rewrites
from trainlint.rules.rewrites import Part
from trainlint.rules.rule import Rewrite
from trainlint.semantic import placement, precision, scaling, walk
from trainlint.semantic.contexts import dotted_name, is_self
from trainlint.semantic.facts import (
    Assign,
    Attribute,
    Call,
    Constant,
    Evaluate,
    Expr,
    For,
    Function,
    Name,
    Statement,
    While,
)
from trainlint.semantic.step import BACKWARD, CLIP, INSPECT, OPAQUE, STEP, UNSCALE, UPDATE, Event, Step

if TYPE_CHECKING:
    from trainlint.rewriting import Change, Site
    from trainlint.semantic.script import Script

_NEW, _OLD = "torch.amp.GradScaler", "torch.cuda.amp.GradScaler"
_NAME = "scaler"


class _Home(NamedTuple):
    """Where the scaler is made, and how the step calls it."""

    name: str  # in the step
    made: Statement  # made behind this one (the optimizer's), or before it (a loop)
    behind: bool
    handed: tuple[Part, ...] = ()  # the parameter and the argument that take it into a function


def add(script: Script, autocast: Call, backward: Call) -> Rewrite | None:
    """None where it is not all known: which backward and step, in which loop, on which device, who holds the scaler."""
    step = _step(script, backward)
    if step is None or precision.autocast_device(script, autocast) != "cuda":
        return None
    backwards, stepped = step.of(BACKWARD), step.of(STEP)
    if not _is_plain(script, step):
        return None
    home = _home(script, step, stepped)
    if home is None:
        return None
    unscaled = _unscaled(script, step, backwards, stepped, home)
    made = _made(script, autocast, home)
    if unscaled is None or made is None:
        return None
    creation, module = made
    parts: list[Part] = [creation, *home.handed]
    parts += [rewrites.through(e.record, f"{home.name}.scale") for e in backwards if isinstance(e.record, Call)]
    parts += unscaled
    for event in stepped:
        assert isinstance(event.record, Call) and event.record.receiver is not None
        optimizer = dotted_name(event.record.receiver)
        parts.append(scaler_rewrites.written(event.record, f"{home.name}.step({optimizer})"))
    parts.append(rewrites.row_behind(stepped[-1].record, f"{home.name}.update()"))
    return rewrites.together("Scale the loss with a GradScaler", parts, module=module)


# ------------------------------------------------------------------------------------------------------------- step


def _step(script: Script, backward: Call) -> Step | None:
    """The only training loop that runs this backward (or call that leads to one); it stands in the same file."""
    found = [
        step
        for step in script.semantics.steps.around(script.module)
        if any(e.record is backward or backward in e.path for e in step.of(BACKWARD))
    ]
    if len(found) != 1 or found[0].frame.kind != "loop" or found[0].frame.module is not script.module:
        return None
    return found[0]


def _is_plain(script: Script, step: Step) -> bool:
    """Plain backwards and optimizer steps in this file, of which nobody else calls what holds them."""
    if step.of(OPAQUE, UNSCALE, UPDATE) or not step.of(STEP):
        return False
    if any(True for _ in script.calls("torch.autograd.grad")):
        return False  # gradients that a scaler does not know of
    for event in step.of(BACKWARD, STEP, CLIP, INSPECT):
        call = event.record
        if not event.sure or not isinstance(call, Call) or call.context.module is not script.module:
            return False
        if any(len(script.inference.callgraph.callers(f)) > 1 for f in _functions(event) if f is not None):
            return False
    for event in step.of(BACKWARD):
        call = event.record
        assert isinstance(call, Call)
        if event.by != "loss" or call.attr != "backward" or call.keyword("create_graph") is not None:
            return False
    return _are_plain_steps(script, step.of(STEP))


def _functions(event: Event) -> list[Function | None]:
    return [c.context.function for c in (*event.path[1:], event.record)] if event.path else []


def _are_plain_steps(script: Script, stepped: list[Event]) -> bool:
    steps = script.semantics.steps
    last = stepped[-1]
    for index, event in enumerate(stepped):
        call = event.record
        assert isinstance(call, Call)
        own = placement.own_statement(call)
        if event.by != "optimizer" or call.args or call.keywords or call.receiver is None:
            return False
        if dotted_name(call.receiver) is None or not isinstance(own, Evaluate) or own.value is not call:
            return False
        if event.loops or [id(f) for f in event.frames] != [id(f) for f in last.frames]:
            return False
        if any(steps.same(event, other) is not False for other in stepped[index + 1 :]):
            return False  # a second step needs an update between
    return True


def _unscaled(
    script: Script, step: Step, backwards: list[Event], stepped: list[Event], home: _Home
) -> list[Part] | None:
    looks = [e for e in step.of(CLIP, INSPECT) if scaling.touches(e)]
    looks = [e for e in looks if step.events.index(e) < step.events.index(stepped[-1])]
    if not looks:
        return []
    if len(stepped) > 1:
        return None
    return scaler_rewrites.unscaled_before(script, backwards[0], looks, stepped[0], home.name) or None


# ------------------------------------------------------------------------------------------------------------- home


def _home(script: Script, step: Step, stepped: list[Event]) -> _Home | None:
    records = [e.record for e in step.of(BACKWARD, STEP)]
    if all(_is_own(e) for e in stepped) and all(
        r.context.cls is step.frame.cls and is_self_method(r.context.function) for r in records
    ):
        return _on_self(script, step, stepped)
    function = step.frame.function
    if any(r.context.function is not function for r in records):
        return None
    optimizers = [e.record.receiver for e in stepped if isinstance(e.record, Call) and e.record.receiver is not None]
    loop = _outermost(step.record, optimizers)
    if loop is None:
        return None
    sites = script.inference.callgraph.callers(function) if function is not None else ()
    in_loop = [s for s in sites if any(f.kind == "loop" for f in s.call.context.local_frames())]
    if not in_loop:
        if any(_is_called_in_loop(script, s.call.context.function, 0) for s in sites):
            return None
        return _Home(_NAME, loop, False)
    return _handed_in(script, function, optimizers) if function is not None and len(sites) == 1 else None


def _is_own(event: Event) -> bool:
    """`self.optimizer.step()`"""
    owner = event.owner
    return isinstance(owner, Attribute) and is_self(owner.value, owner.context)


def is_self_method(function: Function | None) -> bool:
    return function is not None and function.cls is not None and bool(function.parameters)


def _on_self(script: Script, step: Step, stepped: list[Event]) -> _Home | None:
    """Made in the constructor, behind the optimizer."""
    cls = step.frame.cls
    if cls is None or _NAME in cls.attributes:
        return None
    bindings = []
    for event in stepped:
        found = cls.attributes.get(event.owner.attr, []) if isinstance(event.owner, Attribute) else []
        if len(found) != 1 or found[0].how != "assign":
            return None
        bindings += found
    last = max(bindings, key=lambda b: b.order)
    function = last.context.function
    if any(b.context is not last.context for b in bindings) or not isinstance(last.statement, Assign):
        return None
    if last.context.kind != "function" or function is None or not is_self_method(function):
        return None
    if function.name != "__init__" and _is_called_in_loop(script, function, 0):
        return None
    return _Home(f"{function.parameters[0].name}.{_NAME}", last.statement, True)


def _calls(script: Script, function: Function) -> list[Call]:
    return [s.call for s in script.inference.callgraph.callers(function)]


def _outermost(loop: object, optimizers: Iterable[Expr]) -> Statement | None:
    """The outermost loop around the step in which no optimizer of it is made."""
    if not isinstance(loop, (For, While)):
        return None
    for statement in placement.chain(loop):
        if isinstance(statement, (For, While)) and not any(_is_made_in(statement, e) for e in optimizers):
            return statement
    return None


def _is_made_in(loop: For | While, expr: Expr) -> bool:
    name = (dotted_name(expr) or "").partition(".")[0]
    scope = placement.scope_of(name, loop.context)
    if scope is None:
        return False
    frame = loop.body[0].context
    return any(b.context.within(frame) for b in placement.bindings_of(scope, name))


def _is_called_in_loop(script: Script, function: Function | None, depth: int) -> bool:
    if function is None:
        return False
    if depth > 4:
        return True
    return any(
        any(f.kind == "loop" for f in c.context.local_frames())
        or _is_called_in_loop(script, c.context.function, depth + 1)
        for c in _calls(script, function)
    )


def _handed_in(script: Script, function: Function, optimizers: list[Expr]) -> _Home | None:
    """`train_epoch(..., scaler)`, made before the loop that calls it."""
    (call,) = _calls(script, function)
    if call.context.module is not script.module or function.cls is not None or call.unpacks:
        return None
    if any(p.kind != "any" for p in function.parameters) or call.attr != function.name:
        return None
    if _is_called_in_loop(script, call.context.function, 0):
        return None
    given = [
        g[0]
        for e in optimizers
        if isinstance(e, Name) and (g := script.semantics.steps.identity.argument(e, (call,))) is not None
    ]
    if len(given) != len(optimizers):
        return None
    loops = [s for s in placement.chain(call) if isinstance(s, (For, While))]
    loop = next((s for s in loops if not any(_is_made_in(s, e) for e in given)), None)
    if loop is None:
        return None
    place = sum(1 for p in function.parameters if p.default is None)
    return _Home(_NAME, loop, False, (_parameter(function, place), _argument(call, place)))


def _parameter(function: Function, place: int) -> Part:
    def edit(site: Site) -> Iterable[Change]:
        import libcst as cst

        from trainlint import rewriting

        params = site.expect(site.node, cst.FunctionDef).params.params
        if not params:
            raise rewriting.NoFix
        if place == 0:
            return [site.insert(site.span(params[0].name)[0], f"{_NAME}, ")]
        before = params[place - 1]
        start, end = site.span(before.name)
        if before.annotation is not None:
            end = site.outer_span(before.annotation.annotation)[1]
        row = rewriting.row_start(site.text, start)
        if not site.text[row:start].strip():  # each on a row of its own
            return [site.insert(end, f",{site.source.newline}{site.text[row:start]}{_NAME}")]
        return [site.insert(end, f", {_NAME}")]

    return function, edit


def _argument(call: Call, place: int) -> Part:
    def edit(site: Site) -> Iterable[Change]:
        from trainlint import rewriting

        args = site.call.args
        by_position = sum(1 for a in args if a.keyword is None)
        if by_position > place:
            return [site.insert(site.span(args[place])[0], f"{_NAME}, ")]
        content = _NAME if by_position == place and by_position == len(args) else f"{_NAME}={_NAME}"
        return rewriting.add_argument(site, site.call, content)

    return call, edit


# --------------------------------------------------------------------------------------------------------- creation


def _made(script: Script, autocast: Call, home: _Home) -> tuple[Part, str | None] | None:
    """The row that makes the scaler, and the module to import for it."""
    assert script.settings is not None
    place = home.made
    full, device = _NEW, '"cuda"'
    if not rewrites.has_remedy(script, _NEW):
        if script.settings.torch_range.high >= (2, 4):
            return None  # the old name warns there
        full, device = _OLD, ""
    function = rewrites.name_for(script, full, place)
    if function is None and not rewrites.is_free(script, "torch", place):
        return None
    enabled = precision.enabling(script, autocast)
    if enabled is not None and not (isinstance(enabled, Constant) and enabled.value is True):
        if not all(_is_there(script, e, place) for e in walk.inside(enabled) if isinstance(e, Name)):
            return None
        if home.behind and any(isinstance(e, Attribute) and is_self(e.value, e.context) for e in walk.inside(enabled)):
            return None  # may be set later in the constructor
        device = f"{device}, " if device else ""
        device = f"{device}enabled={describe.text(enabled, 200)}"
    line = f"{home.name} = {function or full}({device})"
    put = rewrites.row_behind if home.behind else rewrites.row_before
    return put(place, line), None if function else "torch"


def _is_there(script: Script, name: Name, place: Statement) -> bool:
    return placement.name_at(script, name, (), place) == name.id

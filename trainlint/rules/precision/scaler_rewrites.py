"""What a GradScaler needs in a training step, written where it has to stand: scale, unscale, step and update."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from trainlint.rules import rewrites
from trainlint.rules.rewrites import Part
from trainlint.rules.rule import Rewrite
from trainlint.semantic import placement, scaling
from trainlint.semantic.contexts import dotted_name
from trainlint.semantic.facts import Call, Evaluate, Expr, Statement
from trainlint.semantic.step import CLIP, INSPECT, STEP, UNSCALE, Event, Step, excludes, implies

if TYPE_CHECKING:
    from trainlint.rewriting import Change, Site
    from trainlint.semantic.script import Script


def scale(script: Script, step: Step, backward: Event, stepped: Event) -> Rewrite | None:
    """`loss.backward()` -> `scaler.scale(loss).backward()`, with the `unscale_` that clipping then needs."""
    call = backward.record
    if not isinstance(call, Call) or any(
        scaling.asks_precision(f) for f in scaling.extra_conditions(stepped, backward)
    ):
        return None
    name = placement.name_at(script, stepped.scaler, stepped.path, call)
    unscaled = _unscaled_between(script, step, backward, stepped, stepped.scaler)
    if name is None or unscaled is None:
        return None
    return rewrites.together(f"Call `{name}.scale(...)`", [rewrites.through(call, f"{name}.scale"), *unscaled])


def step_through(script: Script, step: Step, scaled: Event, stepped: Event) -> Rewrite | None:
    """`optimizer.step()` -> `scaler.step(optimizer)`, with the `unscale_` that clipping then needs."""
    call = stepped.record
    found = script.semantics.steps.scaling_call(scaled)
    if not isinstance(call, Call) or found is None or call.args or call.keywords:
        return None
    optimizer = dotted_name(call.receiver) if call.receiver is not None else None
    name = placement.name_at(script, found[0].receiver, found[1], call)
    if name is None or optimizer is None or stepped.loops != scaled.loops:
        return None
    unscaled = _unscaled_between(script, step, scaled, stepped, found[0].receiver, found[1])
    if unscaled is None:
        return None
    return rewrites.together(
        f"Call `{name}.step({optimizer})`", [written(call, f"{name}.step({optimizer})"), *unscaled]
    )


def written(call: Call, content: str) -> Part:
    """Another call in the place of one."""

    def edit(site: Site) -> Iterable[Change]:
        from trainlint import rewriting

        start, end = site.span(site.node)
        if "#" in site.text[start:end] or "\n" in site.text[start:end]:
            raise rewriting.NoFix
        return [rewriting.Change(start, end, content)]

    return call, edit


def update(script: Script, stepped: Sequence[Event]) -> Rewrite | None:
    """`scaler.update()` behind the last `scaler.step(optimizer)`."""
    last = stepped[-1]
    own = placement.own_statement(last.record)
    name = dotted_name(last.scaler) if last.scaler is not None else None
    if name is None or own is None or not isinstance(own, Evaluate) or last.record.context.module is not script.module:
        return None
    if any(e.frames != last.frames or e.path != last.path or e.loops for e in stepped):
        return None
    return rewrites.together(f"Call `{name}.update()`", [rewrites.row_behind(own, f"{name}.update()")])


def drop(event: Event) -> Rewrite | None:
    """The second `unscale_` goes."""
    own = placement.own_statement(event.record)
    if not isinstance(event.record, Call) or not isinstance(own, Evaluate) or own.value is not event.record:
        return None
    return rewrites.remove_statement(event.record)


def unscale(script: Script, step: Step, backward: Event, events: Sequence[Event]) -> Rewrite | None:
    """`scaler.unscale_(optimizer)` before the first of the events that look at gradients."""
    stepped = _whose(script, step, events)
    if stepped is None:
        return None
    parts = _unscale(script, step, backward, events, stepped, stepped.scaler, stepped.path)
    return rewrites.together("Call `unscale_` first", parts) if parts else None


def unscaled_before(script: Script, backward: Event, events: Sequence[Event], stepped: Event, name: str) -> list[Part]:
    """`name.unscale_(optimizer)` before the first of the events that look at gradients; [] where that cannot be written."""
    first = _before_all(backward, events)
    if first is None or first.context.module is not script.module or not _runs_with(events[0], first, stepped):
        return []
    optimizer = placement.name_at(script, stepped.owner, stepped.path, first)
    return [rewrites.row_before(first, f"{name}.unscale_({optimizer})")] if optimizer is not None else []


# ----------------------------------------------------------------------------------------------------------- unscale


def _unscaled_between(
    script: Script,
    step: Step,
    backward: Event,
    stepped: Event,
    scaler: Expr | None,
    path: tuple[Call, ...] | None = None,
) -> list[Part] | None:
    """What unscales before that which looks at gradients on the way to a step; [] where nothing does, None where it cannot be said."""
    between = scaling.between(step, backward, stepped, CLIP, INSPECT, UNSCALE)
    looks = []
    for event in between:
        if event.kind == UNSCALE:
            break
        if scaling.touches(event):
            looks.append(event)
    if not looks:
        return []
    if any(e.kind == STEP and not excludes(e, stepped) and e is not stepped for e in step.events):
        return None  # several optimizers
    return _unscale(script, step, backward, looks, stepped, scaler, stepped.path if path is None else path) or None


def _whose(script: Script, step: Step, events: Sequence[Event]) -> Event | None:
    """The step through the scaler whose optimizer holds what is looked at."""
    steps = script.semantics.steps
    found = [e for e in step.of(STEP) if e.by == "scaler" and not any(excludes(e, x) for x in events)]
    found = [e for e in found if not any(excludes(o, e) for o in found)]
    if len(found) > 1 and not all(steps.same(found[0], e) is True for e in found[1:]):
        subjects = [steps.subject(e) for e in events]
        held = []
        for one in found:
            optimizer = steps.subject(one)
            if optimizer is not None and all(
                s is not None and steps.identity.trains(optimizer, s) is True for s in subjects
            ):
                held.append(one)
        found = held if len(held) == 1 else []
    return found[0] if found else None


def _unscale(
    script: Script,
    step: Step,
    backward: Event,
    events: Sequence[Event],
    stepped: Event,
    scaler: Expr | None,
    path: tuple[Call, ...],
) -> list[Part]:
    place = step.events.index(events[0])
    late = [e for e in step.events[place:] if e.kind == UNSCALE and not excludes(e, stepped)]
    late = [e for e in late if script.semantics.steps.same(e, stepped) is not False]
    first = _before_all(backward, [*events, *late])
    if first is None or first.context.module is not script.module:
        return []
    if not _runs_with(events[0], first, stepped):
        return []
    name = placement.name_at(script, scaler, path, first)
    optimizer = placement.name_at(script, stepped.owner, stepped.path, first)
    if name is None or optimizer is None:
        return []
    if not late:
        return [rewrites.row_before(first, f"{name}.unscale_({optimizer})")]
    moved = placement.beside(first, late[0].record)
    if (
        len(late) > 1
        or len(late[0].path) != len(events[0].path)
        or not isinstance(moved, Evaluate)
        or moved.value is not late[0].record
    ):
        return []
    return [_moved_before(moved, first), (first, lambda site: [])]


def _runs_with(event: Event, first: Statement, stepped: Event) -> bool:
    """Whether what is put before a statement around an event runs only on turns that step, and once."""
    outer = {id(call.context.function) for call in event.path} - {id(first.context.function)}
    shared = {id(call) for call in stepped.path}
    outer &= {id(call.context.function) for call in event.path if id(call) in shared}
    frames = tuple(f for f in event.frames if first.context.within(f) or id(f.function) in outer)
    here = event._replace(frames=frames)
    return implies(here, stepped) and all(any(f is s for s in stepped.frames) for f in here.loops)


def _before_all(backward: Event, events: Sequence[Event]) -> Statement | None:
    """The first statement of the innermost block around all of the events, behind the backward."""
    depth = _shared_calls([backward, *events])
    tops = [e.path[depth] if len(e.path) > depth else e.record for e in events]
    if any(t.context.function is not tops[0].context.function for t in tops):
        return None
    held = placement.common(tops)
    if not held:
        return None
    first = min(held, key=lambda s: s.order)
    ran = backward.path[depth] if len(backward.path) > depth else backward.record
    return first if ran.order < first.order else None


def _shared_calls(events: Sequence[Event]) -> int:
    """How many calls lead to all of them."""
    depth = 0
    while all(len(e.path) > depth and e.path[depth] is events[0].path[depth] for e in events):
        depth += 1
    return depth


def _moved_before(moved: Statement, first: Statement) -> Part:
    def edit(site: Site) -> Iterable[Change]:
        from trainlint import row_edits

        return row_edits.moved_before(site, site.of(first))

    return moved, edit

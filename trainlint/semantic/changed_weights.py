"""A backward through the graph of weights that an optimizer has changed in place since an earlier one, which kept it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.records import NamedTuple
from trainlint.semantic.facts import Call
from trainlint.semantic.step import BACKWARD, FORWARD, STEP, Event, Step, excludes

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class Changed(NamedTuple):
    """`backward` runs through `forward`, as one before it did, and `update` has changed its weights in between."""

    backward: Call
    forward: Call
    update: Call


def find(script: Script, step: Step) -> Iterator[Changed]:
    backwards = [b for b in step.of(BACKWARD) if b.sure]
    if len(backwards) < 2 or not any(_retains(script, b) for b in backwards):
        return
    graphs = [_graph(script, step, b) for b in backwards]
    for later in range(1, len(backwards)):
        found = _broken(script, step, backwards, graphs, later)
        record = backwards[later].record
        if found is not None and isinstance(record, Call):
            update, forward = found[0].record, found[1].record
            if isinstance(update, Call) and isinstance(forward, Call):
                yield Changed(record, forward, update)


def _graph(script: Script, step: Step, backward: Event) -> list[int]:
    """Places, among the events, of the forward passes that a backward runs through."""
    if backward.owner is None:
        return []
    parts = script.semantics.lineage.forwards(backward.owner, backward.path)
    wanted = {(id(p.expr), tuple(id(c) for c in p.path)) for p in parts}
    loose = {id(p.expr) for p in parts if not p.path}
    return [
        i
        for i, e in enumerate(step.events)
        if e.kind == FORWARD
        and ((id(e.record), tuple(id(c) for c in e.path)) in wanted or (id(e.record) in loose and e.path))
    ]


def _broken(
    script: Script, step: Step, backwards: list[Event], graphs: list[list[int]], later: int
) -> tuple[Event, Event] | None:
    events = step.events
    second = events.index(backwards[later])
    for earlier in range(later):
        first = backwards[earlier]
        start = events.index(first)
        if not _retains(script, first) or excludes(first, backwards[later]) or first.loops != backwards[later].loops:
            continue
        shared = [i for i in graphs[earlier] if i in graphs[later] and i < start]
        for update in events[start:second]:
            if update.kind != STEP or excludes(update, backwards[later]) or not update.sure:
                continue
            for i in shared:
                if _changes(script, update, events[i]):
                    return update, events[i]
    return None


def _retains(script: Script, backward: Event) -> bool:
    call = backward.record
    if not isinstance(call, Call):
        return False
    given = call.keyword("retain_graph") or call.keyword("create_graph") or call.argument(1)
    return given is not None and script.constant(given) is not False


def _changes(script: Script, update: Event, forward: Event) -> bool:
    """The optimizer holds weights of the module, or of a part that more of the module hangs on."""
    steps = script.semantics.steps
    optimizer, module = steps.subject(update), steps.subject(forward)
    if optimizer is None or module is None or steps.identity.trains(optimizer, module) is not True:
        return False
    parts = steps.identity.parts_held(optimizer, module)
    return not parts or script.semantics.layers.feeds_others(script.value(module.expr), parts)

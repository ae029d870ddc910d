"""Gradient accumulation: several backward passes, one for each micro-batch, for one optimizer step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainlint.records import NamedTuple
from trainlint.semantic.facts import Assign
from trainlint.semantic.guards import RARE
from trainlint.semantic.step import BACKWARD, CLIP, FORWARD, OPAQUE, STEP, ZERO_GRAD, Event, Step, excludes

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_DIVIDING = ("engine", "accelerator", "fabric", "lightning")  # they divide the loss by themselves


class Accumulation(NamedTuple):
    """`backwards` run on each micro-batch, `update` steps after several of them."""

    step: Step
    backwards: tuple[Event, ...]
    update: Event


def accumulations(script: Script) -> list[Accumulation]:
    """The accumulating steps that run code of a file, whose gradients nothing but plain backward passes fill."""
    found = []
    for step in script.semantics.steps.through(script.module):
        if step.of(OPAQUE) or any(e.by in _DIVIDING for e in step.events):
            continue
        if any(e.kind == CLIP and (e.by == "hand" or isinstance(e.record, Assign)) for e in step.events):
            continue  # gradients are scaled by hand
        one = _accumulation(script, step)
        if one is not None:
            found.append(one)
    return found


def _accumulation(script: Script, step: Step) -> Accumulation | None:
    updates = step.of(STEP)
    if not script.semantics.steps.only_optimizer(step):
        return None
    backwards = [b for b in step.of(BACKWARD) if b.sure and not all(excludes(b, u) for u in updates)]
    micro = tuple(b for b in backwards if _is_micro(script, step, b, updates))
    return Accumulation(step, micro, updates[0]) if micro else None


def _is_micro(script: Script, step: Step, backward: Event, updates: list[Event]) -> bool:
    """An inner loop over micro-batches, or a step that waits for several turns."""
    if backward.loops and all(u.loops == backward.loops[:-1] for u in updates):
        cleared = any(z.loops == backward.loops for z in step.of(ZERO_GRAD))
        return not cleared and _draws(step, backward)
    if any(u.loops != backward.loops for u in updates):
        return False
    # every step waits, whichever branch it stands on
    return all(_waits(script, backward, u) for u in updates)


def _draws(step: Step, backward: Event) -> bool:
    """The inner loop runs the model on new data: it is not one over several losses of one batch."""
    return any(e.kind == FORWARD and e.loops == backward.loops for e in step.events)


def _waits(script: Script, backward: Event, update: Event) -> bool:
    own = [f for f in update.conditions if f not in backward.conditions]
    return any(f.kind == "branch" and script.semantics.guards.guard(f) == RARE for f in own)

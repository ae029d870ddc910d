"""Gradient scaling in a training step: which backward runs on a scaled loss, and what reaches the scaled gradients."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.patterns_on_use import Pattern
from trainlint.semantic.bindings import lookup
from trainlint.semantic.facts import Call, Compare, Constant, Context, Expr, FString, Name, Operator
from trainlint.semantic.guards import RARE
from trainlint.semantic.precision import is_enabled
from trainlint.semantic.step import BACKWARD, CLIP, INSPECT, OPAQUE, STEP, UNSCALE, UPDATE, Event, Step, excludes
from trainlint.semantic.values import Object, each
from trainlint.semantic.walk import expressions, of_module

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

SCALER_WORD = Pattern(rb"Scaler|scaler")
_PRECISION = Pattern(r"amp|scaler|half|fp16|float16|precision|mixed", re.I)
_SCALING = Pattern(r"scaler|scale(?:d|_|$)|^amp$", re.I)
_ACCUMULATES = Pattern(r"accum", re.I)
_LOOKS = frozenset(
    "norm abs mean max min std var sum square pow item get_total_norm vector_norm _foreach_norm add_histogram "
    "histogram".split()
)


def steps(script: Script) -> Iterator[Step]:
    """The training steps that use a scaler and may run code of this file, in whichever file of the program they stand."""
    semantics, own = script.semantics, script.module
    seen: set[int] = set()
    for module in semantics.program.modules(own, SCALER_WORD) if own.functions else [own]:
        for step in semantics.steps.of_module(module):
            if id(step.frame) not in seen:
                seen.add(id(step.frame))
                if any(uses_scaler(script, e) for e in step.events):
                    yield step


def uses_scaler(script: Script, event: Event) -> bool:
    if event.kind == BACKWARD:
        return is_scaled(script, event)
    if event.kind in (STEP, UNSCALE, UPDATE):
        expr = event.owner if event.kind == UPDATE else event.scaler
        return event.by == "scaler" and expr is not None
    return False


def is_scaled(script: Script, event: Event) -> bool:
    """A backward on `scaler.scale(loss)`, the scaler being one that is on."""
    found = script.semantics.steps.scaling_call(event)
    if found is None or found[0].attr != "scale" or found[0].receiver is None:
        return False
    if script.semantics.steps.role(found[0].receiver) != "scaler":
        return False
    return not is_off(script, found[0])


def is_off(script: Script, call: Call) -> bool:
    """The scaler that a method is called on was made with `enabled=False`."""
    if call.receiver is None:
        return False
    made = [
        v.call
        for v in each(script.value(call.receiver))
        if isinstance(v, Object) and v.role == "scaler" and v.call is not None
    ]
    return bool(made) and all(is_enabled(script, c) is False for c in made)


def maybe_scaled(script: Script, event: Event) -> bool:
    """Whether a loss may have been scaled where it cannot be seen: anybody on the way scales, or is handed a scaler."""
    if script.semantics.steps.scaling_call(event) is not None:
        return True
    modules = {id(c.context.module): c.context.module for c in (*event.path, event.record)}
    for module in modules.values():
        if module.calls_by_attr.get("scale_loss"):
            return True
        # what `scaler.scale(other).backward()` scales goes nowhere else
        spent = {id(c.receiver) for c in module.calls_by_attr.get("backward", ())}
        for call in module.calls_by_attr.get("scale", ()):
            if id(call) not in spent and call.receiver is not None:
                if script.semantics.steps.role(call.receiver) in ("scaler", ""):
                    return True
    return event.owner is None


def since_last_step(step: Step, event: Event) -> list[Event]:
    """The backwards between an optimizer step and the one before it, those in other arms of a condition left out."""
    found: list[Event] = []
    for other in reversed(step.events[: _index(step, event)]):
        if excludes(other, event):
            continue
        if other.kind in (STEP, OPAQUE):
            break
        if other.kind == BACKWARD:
            found.append(other)
    return found[::-1]


def touches(event: Event) -> bool:
    """Gradients are clipped or looked at in a way that depends on their size; dividing or copying them does not."""
    if event.by in ("accelerator", "fabric", "engine", "lightning"):
        return False
    if not isinstance(event.record, Call):
        return False
    if event.kind == CLIP:
        return event.by != "hand" or event.record.attr in ("clamp_", "clip_")
    return event.kind == INSPECT and event.record.attr in _LOOKS


def is_free_of_scalers(script: Script, autocast: Call, backward: Call) -> bool:
    """Whether the training steps that run a backward, which stands beside an autocast or in its only caller, can be seen
    whole and speak of no scaler: each gradient comes from a plain backward and goes into a plain optimizer step."""
    function = autocast.context.function
    if function is not backward.context.function:
        if function is None or len(script.inference.callgraph.callers(function)) != 1:
            return False
    found = [
        step
        for step in script.semantics.steps.around(script.module)
        if any(e.record is backward or backward in e.path for e in step.of(BACKWARD))
    ]
    return bool(found) and not any(_may_scale(script, step) for step in found)


def _may_scale(script: Script, step: Step) -> bool:
    trained = step.of(BACKWARD, STEP)
    if step.of(OPAQUE, UNSCALE, UPDATE) or not step.of(STEP) or not all(e.sure for e in trained):
        return True
    if any(e.by != ("loss" if e.kind == BACKWARD else "optimizer") for e in trained):
        return True
    places = [step.frame]
    places += [
        c.context.function.inner for e in trained for c in (*e.path[1:], e.record) if e.path and c.context.function
    ]
    return any(script.semantics.steps.scaling_call(e) is not None for e in step.of(BACKWARD)) or any(
        _speaks_of_scaling(place) for place in places
    )


def _speaks_of_scaling(place: Context) -> bool:
    for expr in of_module(place.module):
        if not expr.context.within(place):
            continue
        word = getattr(expr, "id", None) or getattr(expr, "attr", None)
        if isinstance(word, str) and _SCALING.search(word):
            return True
        if isinstance(expr, Call) and any(k.name is not None and _SCALING.search(k.name) for k in expr.keywords):
            return True
    return False


def asks_precision(frame: Context) -> bool:
    """A condition about mixed precision: `if args.amp`, `if scaler is not None`."""
    if frame.test is None:
        return False
    for expr in expressions(frame.test):
        word = getattr(expr, "id", None) or getattr(expr, "attr", None)
        if isinstance(word, str) and _PRECISION.search(word):
            return True
    return False


def is_cadence(script: Script, frame: Context, event: Event) -> bool:
    """A condition that lets only every so many turns through: `(step + 1) % 4 == 0`, `if ready_to_accumulate`, also one
    that a call hands to a helper (`update_grad=(step + 1) % 4 == 0`)."""
    if frame.kind != "branch" or frame.test is None:
        return False
    if script.semantics.guards.guard(frame) == RARE or _counts(frame.test):
        return True
    if isinstance(frame.test, Name):
        for length in range(len(event.path), 0, -1):
            given = script.semantics.steps.identity.argument(frame.test, event.path[:length])
            if given is not None:
                return script.semantics.guards.condition(given[0], frame.negated) == RARE or _counts(given[0])
    return any(isinstance(e, Name) and _ACCUMULATES.search(e.id) for e in expressions(frame.test))


def _counts(test: Expr, depth: int = 0) -> bool:
    """A remainder is taken, also where the default of what it is taken by is 1 (`--accum_iter 1`)."""
    for expr in expressions(test):
        if isinstance(expr, Operator) and expr.op == "%" and not isinstance(expr.operands[0], (Constant, FString)):
            return not (isinstance(expr.operands[1], Constant) and expr.operands[1].value == 1)
        if isinstance(expr, Name) and depth < 2:
            bindings = lookup(expr, expr.id)[0]
            if (
                len(bindings) == 1
                and bindings[0].how == "assign"
                and isinstance(bindings[0].value, (Compare, Operator))
            ):
                if _counts(bindings[0].value, depth + 1):
                    return True
    return False


def extra_conditions(event: Event, other: Event) -> list[Context]:
    """The conditions of an event that another one does not stand under."""
    own = {id(f) for f in other.conditions}
    return [f for f in event.conditions if id(f) not in own]


def between(step: Step, first: Event, last: Event, *kinds: str) -> list[Event]:
    """Events of some kinds after one and before another, those in other arms of a condition left out."""
    start, end = _index(step, first), _index(step, last)
    return [e for e in step.events[start + 1 : end] if e.kind in kinds and not excludes(e, last)]


def _index(step: Step, event: Event) -> int:
    return next(i for i, e in enumerate(step.events) if e is event)

"""Where `model.eval()` and `model.train()` go: for the rules about the mode in which a model evaluates and trains."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from trainlint.rules import rewrites
from trainlint.rules.rule import Rewrite
from trainlint.semantic import placement
from trainlint.semantic.bindings import lookup
from trainlint.semantic.contexts import dotted_name
from trainlint.semantic.facts import Call, Context, Evaluate, Expr, For, Name, Record, Return, Statement, While, With
from trainlint.semantic.identity import Path
from trainlint.semantic.loops import BatchLoop, loop_frames
from trainlint.semantic.step import BACKWARD, EVAL_MODE, FORWARD, SOME_MODE, TRAIN_MODE, Event, Step
from trainlint.semantic.values import Const, each

if TYPE_CHECKING:
    from trainlint.rewriting import Change, Site
    from trainlint.semantic.script import Script

_AROUND = frozenset({"no_grad", "inference_mode", "autocast", "set_grad_enabled"})


def evaluate(script: Script, loop: BatchLoop, forward: Event) -> Rewrite | None:
    """`model.eval()` before an evaluation loop, and `model.train()` behind it where training would not switch back."""
    place = _with_its_context(placement.own_statement(loop.record))
    if place is None:
        return None
    name = placement.name_at(script, forward.owner, forward.path, place)
    if name is None:
        return None
    if _may_be_none(script, forward.owner):
        return None
    restored = _is_restored(script, loop, forward)
    if restored is None or (restored is False and (isinstance(place, Return) or placement.leaves([place]))):
        return None
    parts = [rewrites.row_before(place, f"{name}.eval()")]
    if not restored:
        parts.append(rewrites.row_behind(place, f"{name}.train()"))
    return rewrites.together(f"Call `{name}.eval()`", parts)


def _may_be_none(script: Script, model: Expr | None) -> bool:
    """`vocoder = None`, and below it `if args.vocoder: vocoder = ...`"""
    if model is None:
        return True
    bindings = lookup(model, model.id)[0] if isinstance(model, Name) else []
    held = [b.value for b in bindings if b.how == "assign" and b.value is not None]
    return any(isinstance(v, Const) and v.value is None for e in (model, *held) for v in each(script.value(e)))


def _with_its_context(place: Statement | None) -> Statement | None:
    """`with torch.no_grad():` around a loop that it begins with."""
    while place is not None and place.index == 0:
        around = placement.chain(place)[-2:-1]
        if not around or not isinstance(around[0], With) or around[0].body is not place.block:
            break
        if not all(isinstance(i.value, Call) and i.value.attr in _AROUND for i in around[0].items):
            break
        place = around[0]
    return place


def _is_restored(script: Script, loop: BatchLoop, forward: Event) -> bool | None:
    """Whether training puts the model back into training mode by itself after the loop; None where that cannot be told.

    True where nothing trains after it.
    """
    for module in script.project.family(script.path):
        for frame in loop_frames(module):
            if frame is loop.frame or not hasattr(frame.record, "body"):
                continue
            step = script.semantics.steps.of_loop(frame)
            inside = [i for i, e in enumerate(step.events) if _is_in(e, loop)]
            if not inside or not step.of(BACKWARD):
                continue
            following = [*step.events[inside[-1] + 1 :], *step.events[: inside[0]]]
            answer = _switches_first(script, step, following, forward)
            if answer is not True:
                return answer
    return True


def _is_in(event: Event, loop: BatchLoop) -> bool:
    return event.kind == FORWARD and any(c.context.within(loop.frame) for c in (*event.path, event.record))


def _switches_first(script: Script, step: Step, following: list[Event], forward: Event) -> bool | None:
    """Whether `train()` comes before the next forward that trains the model."""
    steps = script.semantics.steps
    for event in following:
        if event.kind in (TRAIN_MODE, SOME_MODE, EVAL_MODE):
            same = steps.same(event, forward)
            if event.kind == TRAIN_MODE and same is True and event.sure and not event.conditions:
                return True
            if event.kind == SOME_MODE and same is not False:
                return None
        elif event.kind == FORWARD and steps.same(event, forward) is not False:
            return False
    return True


def train_again(script: Script, step: Step, switch: Event, forward: Event) -> Rewrite | None:
    """`model.train()` at the start of each epoch, or behind the evaluation where both stand in one loop."""
    own = placement.own_statement(switch.record)
    if own is None or isinstance(own, (For, While, With)):
        return None
    loop = step.frame.record
    if step.frame.module is script.module and isinstance(loop, (For, While)) and _is_deeper(forward):
        name = _name_in(script, switch.owner, switch.path, loop)
        if name is not None:
            parts = [rewrites.first_row_in(loop, f"{name}.train()")]
            before = loop.block[loop.index - 1] if loop.index else None
            if isinstance(before, Evaluate) and _is_train(before.value, name):
                parts.append(_gone(before))  # it moves into the loop
            return rewrites.together(f"Call `{name}.train()` in each turn", parts)
    last = _last_evaluation(script, step, switch, own)
    name = placement.name_at(script, switch.owner, (), last) if last is not None else None
    if last is None or name is None:
        return None
    return rewrites.together(
        f"Call `{name}.train()` after the evaluation", [rewrites.row_behind(last, f"{name}.train()")]
    )


def _is_train(expr: Expr, name: str) -> bool:
    """`model.train()`"""
    return (
        isinstance(expr, Call)
        and expr.attr == "train"
        and not (expr.args or expr.keywords)
        and expr.receiver is not None
        and dotted_name(expr.receiver) == name
    )


def _gone(statement: Statement) -> rewrites.Part:
    def edit(site: Site) -> Iterable[Change]:
        from trainlint import row_edits

        return row_edits.gone(site)

    return statement, edit


def _is_deeper(forward: Event) -> bool:
    """Training has a loop of its own in the loop: that is one over epochs."""
    return bool(forward.loops)


def _name_in(script: Script, owner: Expr | None, path: Path, loop: For | While) -> str | None:
    """The name at the start of a loop's body, of an object that there is before the loop."""
    return placement.name_at(script, owner, path, loop) if owner is not None else None


def _last_evaluation(script: Script, step: Step, switch: Event, own: Statement) -> Statement | None:
    """The last statement, of those behind `model.eval()` in its block, that runs the model."""
    last: Statement | None = None
    for event in step.events:
        if event.kind != FORWARD or not _concerns(script, event, switch):
            continue
        for record in (*event.path, event.record):
            held = _beside(own, record)
            if held is not None and held.index > own.index and (last is None or held.index > last.index):
                last = held
    if last is None or placement.leaves(own.block[own.index + 1 : last.index + 1]):
        return None
    return last


def _concerns(script: Script, event: Event, switch: Event) -> bool:
    return script.semantics.steps.same(event, switch) is not False


def _beside(own: Statement, record: Record) -> Statement | None:
    context: Context = record.context
    return placement.beside(own, record) if context.function is own.context.function else None

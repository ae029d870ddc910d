from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Level
from trainlint.rules import describe
from trainlint.rules.rule import Hit, Note, Rewrite, Rule
from trainlint.semantic import frameworks, placement, walk
from trainlint.semantic.facts import Attribute, Call, Class, Compare, Constant, Evaluate, Jump, Return, Statement
from trainlint.semantic.loops import loop_frames
from trainlint.semantic.step import OPAQUE, SCHEDULE, STEP, UPDATE, Event, Step, excludes
from trainlint.semantic.values import Object, each

if TYPE_CHECKING:
    from trainlint.rewriting import Change, Site
    from trainlint.semantic.script import Script

_RATE = ("param_groups", "get_last_lr", "get_lr")
_OURS = ("torch.optim.lr_scheduler.", "torch.optim.swa_utils.", "transformers.")


class SchedulerBeforeOptimizer(Rule):
    """`scheduler.step()` comes before the first `optimizer.step()` of the same turn of a loop.

    ## Why is this bad?

    The first value of the schedule is skipped and every later one comes a step (or an epoch) too early; PyTorch warns
    about it once. With a warm-up or one-cycle schedule the first update runs at the wrong rate.

    ## Example

    ```python
    for epoch in range(epochs):
        scheduler.step()
        train_one_epoch(model, loader, optimizer)
    ```

    ## Use instead

    ```python
    for epoch in range(epochs):
        train_one_epoch(model, loader, optimizer)
        scheduler.step()
    ```

    ## When it is silent

    step, scheduler, `scaler.update()` in that order; schedulers whose class cannot be seen; schedulers of another
    optimizer; a call that waits for the first turn to pass (`if epoch > 0`).

    ## Fix safety

    Unsafe: moving the call shifts the schedule. It is moved, with its comment, behind the statement that runs the optimizer's
    step (and the scaler's `update()`), and behind what reads the rate that this step was made with. No fix where it is given an
    epoch or a metric, stands in another block, or the turn may end before the rate is read.

    ## Measured by `trainlint verify`

    Not measured: PyTorch's own warning says it.

    ## References

    - PyTorch, `torch.optim`, "How to adjust learning rate" (order since 1.1.0)
    """

    code = "TL603"
    name = "scheduler-before-optimizer"
    level = Level.WARNING
    message = "{call} runs before {step} on each turn of this loop"
    why = "the first value of the schedule is skipped, and the rest comes too early"
    help = "call scheduler.step() after optimizer.step()"
    triggers = ((b"step(", b"torch"), (b"step(", b"backward"))

    def check(self, script: Script) -> Iterator[Hit]:
        reported: set[int] = set()
        for module in script.project.family(script.path):
            for frame in loop_frames(module):
                if not hasattr(frame.record, "body") or frameworks.in_lightning(script.inference, frame.cls):
                    continue
                step = script.semantics.steps.of_loop(frame)
                for event in step.of(SCHEDULE):
                    record = event.record
                    if (
                        record.context.module is not script.module
                        or id(record) in reported
                        or not isinstance(record, Call)
                    ):
                        continue
                    update = self._update_after(script, step, event)
                    if update is not None and isinstance(update.record, Call):
                        reported.add(id(record))
                        notes = (Note(update.record, "the optimizer steps here"),)
                        values = {"call": describe.text(record), "step": describe.text(update.record)}
                        yield Hit(record, values, None, notes, rewrite=_rewrite(step, event, update))

    def _update_after(self, script: Script, step: Step, event: Event) -> Event | None:
        if not event.sure or not self._is_known(script, event) or self._waits(event):
            return None
        first: Event | None = None
        place = step.events.index(event)
        for position, other in enumerate(step.events):
            if other.kind == OPAQUE:
                return None
            if other.kind == STEP and self._belongs(script, step, event, other) is not False:
                if position < place:
                    return None
                first = first or other
        if (
            first is None
            or first.by == "engine"
            or excludes(first, event)
            or not self._belongs(script, step, event, first)
        ):
            return None
        # in the innermost loop that holds both
        shared = [f for f in event.loops if f in first.loops]
        return None if shared or self._stepped_before(script, step) else first

    def _belongs(self, script: Script, step: Step, event: Event, update: Event) -> bool | None:
        """Whether the scheduler drives the optimizer that steps."""
        steps = script.semantics.steps
        scheduler, optimizer = steps.subject(event), steps.subject(update)
        if scheduler is None or optimizer is None:
            return None
        answers = []
        for builder in scheduler.builders:
            given = builder.argument(0, "optimizer")
            answers.append(steps.identity.same(steps.identity.of(given), optimizer) if given is not None else None)
        if True in answers:
            return True
        if answers and None not in answers:
            return False
        return True if steps.only_optimizer(step) else None

    def _is_known(self, script: Script, event: Event) -> bool:
        """A scheduler of torch, or of a class that the project derives from one."""
        if event.owner is None:
            return False
        values = list(each(script.value(event.owner)))
        return bool(values) and all(isinstance(v, Object) and self._is_torch(script, v) for v in values)

    def _is_torch(self, script: Script, value: Object) -> bool:
        names = (
            [value.name]
            if value.cls is None
            else [b for b in script.inference.bases(value.cls) if not isinstance(b, Class)]
        )
        return any(n.startswith(_OURS) for n in names)

    def _waits(self, event: Event) -> bool:
        """`if epoch > 0: scheduler.step()`"""
        for frame in event.conditions:
            test = frame.test
            if isinstance(test, Compare) and any(isinstance(o, Constant) and o.value in (0, 1) for o in test.operands):
                return True
            if frame.kind == "except":
                return True
        return False

    def _stepped_before(self, script: Script, step: Step) -> bool:
        """`optimizer.step()` once before the loop."""
        start = step.record.order
        for call in script.semantics.loops.calls_of(step.frame):
            if (
                call.order < start
                and call.attr == "step"
                and script.semantics.work.kind(call) == STEP
                and not call.context.within(step.frame)
            ):
                if not any(f.kind == "loop" for f in call.context.local_frames()):
                    return True
        return False


def _rewrite(step: Step, event: Event, update: Event) -> Rewrite | None:
    call, own = event.record, placement.own_statement(event.record)
    if not isinstance(call, Call) or call.args or call.keywords or event.path:
        return None
    if not isinstance(own, Evaluate) or own.value is not call or update.top.context.module is not call.context.module:
        return None
    after = placement.beside(own, update.top)
    if after is None or after.index <= own.index:
        return None
    after = _behind_readers(_behind_scaler(step, after))
    if after is None:
        return None

    def move(site: Site) -> Iterable[Change]:
        from trainlint import row_edits

        return row_edits.moved_behind(site, site.of(after))

    return Rewrite(False, "Move it behind the optimizer's step", move, others=(after,))


def _behind_scaler(step: Step, after: Statement) -> Statement:
    """`scaler.update()` right after `scaler.step(optimizer)` stays with it."""
    updates = {id(placement.own_statement(e.record)) for e in step.of(UPDATE)}
    following = after.block[after.index + 1 : after.index + 2]
    return following[0] if following and id(following[0]) in updates else after


def _behind_readers(after: Statement) -> Statement | None:
    """What is logged is the rate that the step was made with: the last statement that reads it. None where the turn may
    end before that."""
    found = after
    between: list[Statement] = []
    for statement in after.block[after.index + 1 :]:
        between += placement.nested(statement)
        if any(_reads_rate(inner) for inner in placement.nested(statement)):
            found = statement
            if any(isinstance(s, Return) or (isinstance(s, Jump) and s.kind != "pass") for s in between):
                return None
    return found


def _reads_rate(statement: Statement) -> bool:
    return any(isinstance(e, (Attribute, Call)) and e.attr in _RATE for e in walk.inside(statement))

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules import describe
from trainlint.rules.rule import Hit, Note, Rule
from trainlint.semantic.facts import Call
from trainlint.semantic.guards import RARE
from trainlint.semantic.step import BACKWARD, INSPECT, OPAQUE, STEP, ZERO_GRAD, Event, Step, excludes, implies

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class ZeroGradDiscardsGradients(Rule):
    """Gradients are cleared after backward and before the step that should use them.

    ## Why is this bad?

    Cleared between backward and step, the optimizer steps on nothing and the model does not learn (or only from the last
    of several losses). Cleared on every micro-batch of an accumulation, only the last micro-batch counts: the batch is as
    small as without accumulation, at several times the cost.

    ## Example

    ```python
    for i, (images, target) in enumerate(loader):
        optimizer.zero_grad()
        (criterion(model(images), target) / 4).backward()
        if (i + 1) % 4 == 0:
            optimizer.step()
    ```

    ## Use instead

    ```python
    for i, (images, target) in enumerate(loader):
        (criterion(model(images), target) / 4).backward()
        if (i + 1) % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
    ```

    ## When it is silent

    Another optimizer's gradients; cleared before backward or after step; cleared only when the update is skipped; where
    the gradients are read in between; objects prepared by Accelerate inside `accumulate()`.

    ## Fix safety

    No fix: where to clear depends on what was meant.

    ## Measured by `trainlint verify`

    Whether gradients are empty when the optimizer steps, or how many backward passes each step sees.

    ## References

    - PyTorch, `torch.optim.Optimizer.zero_grad`; PyTorch, AMP examples, "Gradient accumulation"
    """

    code = "TL602"
    name = "zero-grad-discards-gradients"
    level = Level.ERROR
    claim = Claim.BEHAVIOUR
    message = "{call} throws away gradients {what}"
    why = "the optimizer never sees them, so the model does not learn from them"
    help = "clear once per update: before its first backward, or right after optimizer.step()"
    triggers = ((b"zero_grad",), (b".grad",))

    def check(self, script: Script) -> Iterator[Hit]:
        reported: set[int] = set()
        for step in script.semantics.steps.through(script.module):
            for clearing in step.of(ZERO_GRAD):
                record = clearing.record
                if record.context.module is not script.module or id(record) in reported or not isinstance(record, Call):
                    continue
                found = self._discards(script, step, clearing)
                if found is not None:
                    reported.add(id(record))
                    what, notes = found
                    yield Hit(record, {"call": describe.text(record), "what": what}, None, notes)

    def _discards(self, script: Script, step: Step, clearing: Event) -> tuple[str, tuple[Note, ...]] | None:
        if not clearing.sure or clearing.by == "engine":
            return None
        steps = script.semantics.steps
        updates = [
            s for s in step.of(STEP) if s.sure and steps.clears(clearing, s) is True and not excludes(s, clearing)
        ]
        if not updates or not steps.only_optimizer(step):
            return None
        return self._in_between(script, step, clearing, updates) or self._each_micro_batch(
            script, step, clearing, updates
        )

    def _in_between(
        self, script: Script, step: Step, clearing: Event, updates: list[Event]
    ) -> tuple[str, tuple[Note, ...]] | None:
        """backward, zero_grad, step"""
        events = step.events
        place = events.index(clearing)
        backward: Event | None = None
        for event in reversed(events[:place]):
            if event.kind in (STEP, ZERO_GRAD) and not excludes(event, clearing):
                break
            if event.kind in (OPAQUE, INSPECT):
                return None
            if event.kind == BACKWARD and not excludes(event, clearing):
                backward = event
                break
        update = next((e for e in events[place + 1 :] if e.kind == STEP), None)
        if backward is None or update is None or update not in updates or not implies(update, clearing):
            return None
        if (
            any(e.kind == OPAQUE for e in events[place : events.index(update)])
            or update.loops != clearing.loops[: len(update.loops)]
        ):
            return None
        if (
            clearing.loops != backward.loops
            or clearing.loops != update.loops
            or script.semantics.steps.reads_gradients(backward, clearing)
        ):
            return None
        notes = (Note(backward.record, "the gradients come from here"), Note(update.record, "and should be used here"))
        return "that no step has used", notes

    def _each_micro_batch(
        self, script: Script, step: Step, clearing: Event, updates: list[Event]
    ) -> tuple[str, tuple[Note, ...]] | None:
        """zero_grad, backward on every turn; step every N turns, or after an inner loop"""
        events = step.events
        place = events.index(clearing)
        backward = next((e for e in events[place:] if e.kind == BACKWARD and not excludes(e, clearing)), None)
        if backward is None or clearing.loops != backward.loops or not implies(backward, clearing):
            return None
        if any(e.kind == STEP for e in events[place : events.index(backward)]):
            return None
        if script.semantics.steps.reads_gradients(clearing, updates[-1]) or any(
            e.kind in (OPAQUE, INSPECT) and not e.conditions for e in events[place:]
        ):
            return None
        for update in updates:
            rest = events[events.index(backward) + 1 :]
            if update not in rest:
                continue
            if clearing.loops and update.loops == clearing.loops[:-1]:
                between = rest[: rest.index(update)]
                if any(e.kind in (BACKWARD, ZERO_GRAD) and e.loops != clearing.loops for e in between):
                    continue
                return self._said(backward, update)
            if update.loops == clearing.loops and self._rare(script, update, backward):
                return self._said(backward, update)
        return None

    def _rare(self, script: Script, update: Event, backward: Event) -> bool:
        """The step waits for several turns: `if (i + 1) % 4 == 0: optimizer.step()`."""
        own = [f for f in update.conditions if f not in backward.conditions]
        return any(f.kind == "branch" and script.semantics.guards.guard(f) == RARE for f in own)

    def _said(self, backward: Event, update: Event) -> tuple[str, tuple[Note, ...]]:
        notes = (
            Note(backward.record, "each micro-batch adds its gradients here"),
            Note(update.record, "the update comes only after several"),
        )
        return "of all micro-batches but the last", notes

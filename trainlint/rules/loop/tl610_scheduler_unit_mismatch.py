from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Level
from trainlint.patterns_on_use import Pattern
from trainlint.rules import describe
from trainlint.rules.rule import Hit, Note, Rule
from trainlint.semantic import frameworks, walk
from trainlint.semantic.contexts import dotted_name
from trainlint.semantic.facts import Call, Compare, Context, Expr, For, Name, Operator
from trainlint.semantic.loops import loop_frames
from trainlint.semantic.same import same
from trainlint.semantic.step import BACKWARD, SCHEDULE, STEP, Event, Step

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

# where each scheduler takes the number of steps after which it is through: position and keyword
_HORIZONS = {
    "CosineAnnealingLR": (1, "T_max"),
    "OneCycleLR": (2, "total_steps"),
    "PolynomialLR": (1, "total_iters"),
    "LinearLR": (3, "total_iters"),
}
_EPOCHS = Pattern(r"(?:^|[._])(?:n_?|num_?|max_?|total_?)?epoch(?:e?s)?$|(?:^|[._])(?:passes|rounds)$", re.I)


class SchedulerUnitMismatch(Rule):
    """A schedule whose length is counted in batches and that is stepped once per epoch, or the reverse.

    ## Why is this bad?

    Counted in batches and stepped per epoch, the schedule never gets anywhere: the rate stays at its start (with
    `OneCycleLR`, in its warm-up) for the whole training. Counted in epochs and stepped per batch, it is through within the
    first epochs, and a cosine goes up and down again all the time.

    ## Example

    ```python
    scheduler = CosineAnnealingLR(optimizer, T_max=epochs * len(loader))
    for epoch in range(epochs):
        train_one_epoch(...)
        scheduler.step()
    ```

    ## Use instead

    ```python
    scheduler = CosineAnnealingLR(optimizer, T_max=epochs)
    ```

    or call `scheduler.step()` after each batch.

    ## When it is silent

    Lengths whose unit cannot be told; `scheduler.step(epoch + i / len(loader))`; loops over iterations; a scheduler that is
    stepped in several places; Lightning, whose `interval` says it.

    ## Fix safety

    No fix: either side may be the one that is meant.

    ## Measured by `trainlint verify`

    Not measured.

    ## References

    - PyTorch, `OneCycleLR`: "step should be called after a batch has been used"; `CosineAnnealingLR` (`T_max`)
    """

    code = "TL610"
    name = "scheduler-unit-mismatch"
    level = Level.WARNING
    message = "{scheduler} counts in {counted}, and is stepped once per {stepped}"
    why = "the learning rate follows the wrong curve"
    help = "count and step in the same unit"
    triggers = ((b"LR(",), (b"lr_scheduler",))

    def check(self, script: Script) -> Iterator[Hit]:
        own = {id(c): c for c, o in script.objects("scheduler") if o.name.rpartition(".")[2] in _HORIZONS}
        if not own:
            return
        stepped: dict[int, list[tuple[str, Step, Event]]] = {}
        for module in script.project.family(script.path):
            for frame in loop_frames(module):
                if not hasattr(frame.record, "body") or frameworks.in_lightning(script.inference, frame.cls):
                    continue
                step = script.semantics.steps.of_loop(frame)
                for event in step.of(SCHEDULE):
                    subject = script.semantics.steps.subject(event)
                    unit = self._unit(script, step, event)
                    for builder in subject.builders if subject is not None and unit is not None else ():
                        if id(builder) in own and unit is not None:
                            stepped.setdefault(id(builder), []).append((unit, step, event))
        for key, uses in stepped.items():
            if len({id(e.record) for _, _, e in uses}) != 1:
                continue
            unit, step, event = uses[0]
            call = own[key]
            counted = self._counted(script, call, step)
            if counted is None or counted == unit or not isinstance(event.record, Call):
                continue
            effect = "it hardly moves" if counted == "batches" else "it is through after a few epochs"
            name = describe.text(call.callee)
            values = {"scheduler": name, "counted": counted, "stepped": "epoch" if unit == "epochs" else "batch"}
            yield Hit(
                call,
                values,
                None,
                (Note(event.record, "stepped here"),),
                why=f"the learning rate follows the wrong curve: {effect}",
            )

    def _unit(self, script: Script, step: Step, event: Event) -> str | None:
        """How often it is stepped in the innermost loop around it: with each update ("batches") or after a pass ("epochs")."""
        if event.loops or not event.sure or not isinstance(event.record, Call):
            return None
        if event.record.args or event.record.keywords:
            return None
        updates = [e for e in step.of(STEP) if e.sure]
        if not updates or not step.of(BACKWARD):
            return None
        if all(map(_comes_again, event.conditions)) and any(
            e.conditions == event.conditions for e in updates if not e.loops
        ):
            return "batches"  # with each update, of which there may be one for several batches
        late = bool(event.conditions)
        if late and not all(self._starts_late(frame, step) for frame in event.conditions):
            return None
        if all(not e.loops and not e.conditions for e in updates):
            return None if late else "batches"
        return "epochs" if all(len(e.loops) == 1 for e in updates) else None

    def _starts_late(self, frame: Context, step: Step) -> bool:
        """`if epoch >= warmup:` in the loop over epochs: from some turn on it is stepped on each."""
        record, test = step.record, frame.test
        if not isinstance(record, For) or not isinstance(test, Compare) or test.ops not in ((">",), (">=",)):
            return False
        return isinstance(record.target, Name) and same(test.operands[0], record.target)

    def _counted(self, script: Script, call: Call, step: Step) -> str | None:
        name = script.name_of(call.callee) or ""
        position, keyword = _HORIZONS.get(name.rpartition(".")[2], (None, ""))
        if name.endswith("OneCycleLR") and call.argument(4, "steps_per_epoch") is not None:
            return "batches"
        horizon = call.argument(position, keyword)
        if horizon is None or call.unpacks:
            return None
        parts = [p.expr for p in script.semantics.lineage.parts(horizon, ())]
        if any(isinstance(p, Call) and p.attr == "len" and p.args for p in parts):
            return "batches"
        return "epochs" if self._is_epoch_count(script, parts, step) else None

    def _is_epoch_count(self, script: Script, parts: list[Expr], step: Step) -> bool:
        """The length is the very number of turns of the epoch loop around the batch loop, and nothing else goes into it."""
        named = [p for p in parts if (dotted_name(p) or "") and _EPOCHS.search(dotted_name(p) or "")]
        if not named or any(type(p).__name__ == "Operator" for p in parts):
            return False
        for frame in self._loops_around(script, step.frame):
            record = frame.record
            if (
                isinstance(record, For)
                and isinstance(record.iter, Call)
                and record.iter.attr in ("range", "trange")
                and record.iter.args
            ):
                bound = record.iter.args[-1]
                if any(same(bound, p) for p in named):
                    return True
        return False

    def _loops_around(self, script: Script, frame: Context) -> Iterator[Context]:
        """Loops around a batch loop, in its function or in the one that calls it."""
        for outer in frame.frames():
            if outer.kind == "loop" and outer is not frame:
                yield outer
            if outer.kind == "function":
                for site in script.inference.callgraph.callers(outer.record):
                    yield from (f for f in site.call.context.local_frames() if f.kind == "loop")
                return


def _comes_again(frame: Context) -> bool:
    """`if (i + 1) % n == 0:`"""
    return frame.test is not None and any(isinstance(e, Operator) and e.op == "%" for e in walk.inside(frame.test))

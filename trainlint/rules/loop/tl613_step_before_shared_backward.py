from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Level
from trainlint.rules import describe
from trainlint.rules.rule import Hit, Note, Rule
from trainlint.semantic.facts import Call
from trainlint.semantic.step import BACKWARD, FORWARD, STEP, Event, Step, excludes

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class StepBeforeSharedBackward(Rule):
    """An optimizer steps, and then another loss runs backward through the graph of the weights that were changed.

    ## Why is this bad?

    `optimizer.step()` changes weights in place. A second backward through a graph that was built with the old weights
    raises "one of the variables needed for gradient computation has been modified by an inplace operation". (Before
    PyTorch 1.5 it ran, and the gradients were wrong.)

    ## Example

    ```python
    g_loss.backward(retain_graph=True)
    optimizer_g.step()
    d_loss.backward()          # over the same generator output
    optimizer_d.step()
    ```

    ## Use instead

    ```python
    g_loss.backward(retain_graph=True)
    d_loss.backward()
    optimizer_g.step()
    optimizer_d.step()
    ```

    or run the second loss on a detached output, or on a new forward pass.

    ## When it is silent

    A new forward after the step; a detached input; losses that share no forward; an optimizer that does not hold the
    weights that are shared.

    ## Fix safety

    No fix.

    ## Measured by `trainlint verify`

    Not measured: the script stops there.

    ## References

    - PyTorch, "Autograd mechanics: In-place correctness checks"; pytorch/pytorch#39141
    """

    code = "TL613"
    name = "step-before-shared-backward"
    level = Level.ERROR
    message = "{call} runs back through {module}, whose weights {step} has changed"
    why = 'it raises "modified by an inplace operation"'
    help = "run both backward passes before the first step, or give the second loss a detached or newly computed input"
    triggers = ((b"retain_graph",),)

    def check(self, script: Script) -> Iterator[Hit]:
        reported: set[int] = set()
        for step in script.semantics.steps.through(script.module):
            backwards = [b for b in step.of(BACKWARD) if b.sure]
            if len(backwards) < 2:
                continue
            graphs = [self._graph(script, step, b) for b in backwards]
            for later in range(1, len(backwards)):
                record = backwards[later].record
                if record.context.module is not script.module or id(record) in reported or not isinstance(record, Call):
                    continue
                found = self._broken(script, step, backwards, graphs, later)
                if found is not None:
                    update, forward = found[0].record, found[1].record
                    if not isinstance(update, Call) or not isinstance(forward, Call):
                        continue
                    reported.add(id(record))
                    values = {
                        "call": describe.text(record),
                        "module": describe.text(forward),
                        "step": describe.text(update),
                    }
                    notes = (
                        Note(forward, "both losses hang on this forward"),
                        Note(update, "changes its weights in place"),
                    )
                    yield Hit(record, values, None, notes)

    def _graph(self, script: Script, step: Step, backward: Event) -> list[int]:
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
        self, script: Script, step: Step, backwards: list[Event], graphs: list[list[int]], later: int
    ) -> tuple[Event, Event] | None:
        events = step.events
        second = events.index(backwards[later])
        for earlier in range(later):
            first = backwards[earlier]
            start = events.index(first)
            if (
                not self._retains(script, first)
                or excludes(first, backwards[later])
                or first.loops != backwards[later].loops
            ):
                continue
            shared = [i for i in graphs[earlier] if i in graphs[later] and i < start]
            for update in events[start:second]:
                if update.kind != STEP or excludes(update, backwards[later]) or not update.sure:
                    continue
                for i in shared:
                    if self._changes(script, update, events[i]):
                        return update, events[i]
        return None

    def _retains(self, script: Script, backward: Event) -> bool:
        call = backward.record
        if not isinstance(call, Call):
            return False
        given = call.keyword("retain_graph") or call.keyword("create_graph") or call.argument(1)
        return given is not None and script.constant(given) is not False

    def _changes(self, script: Script, update: Event, forward: Event) -> bool:
        """The optimizer holds weights of the module, or of a part that more of the module hangs on."""
        steps = script.semantics.steps
        optimizer, module = steps.subject(update), steps.subject(forward)
        if optimizer is None or module is None or steps.identity.trains(optimizer, module) is not True:
            return False
        parts = steps.identity.parts_held(optimizer, module)
        return not parts or script.semantics.layers.feeds_others(script.value(module.expr), parts)

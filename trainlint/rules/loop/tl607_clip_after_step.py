from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules import describe
from trainlint.rules.rule import Hit, Note, Rule
from trainlint.semantic.contexts import dotted_name
from trainlint.semantic.facts import Call
from trainlint.semantic.step import BACKWARD, CLIP, OPAQUE, STEP, ZERO_GRAD, Event, Step, excludes, implies

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class ClipAfterStep(Rule):
    """Gradients are clipped after the optimizer has used them, or after they were cleared.

    ## Why is this bad?

    Clipping changes `.grad`, and only the next `optimizer.step()` reads it. Clipped after the step, or before backward
    has filled them, the gradients that are used are the unclipped ones: the loop runs as if there were no clipping.

    ## Example

    ```python
    loss.backward()
    optimizer.step()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    ```

    ## Use instead

    ```python
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    ```

    ## When it is silent

    A norm that is only measured (an infinite limit); clipping for another optimizer that steps later.

    ## Fix safety

    No fix: it changes training, and the limit was never tried.

    ## Measured by `trainlint verify`

    The norm of the gradients that the optimizer steps on.

    ## References

    - PyTorch, `torch.nn.utils.clip_grad_norm_`
    """

    code = "TL607"
    name = "clip-after-step"
    level = Level.ERROR
    claim = Claim.BEHAVIOUR
    message = "{call} clips gradients {when}"
    why = "the optimizer steps on gradients that were never clipped"
    help = "clip between backward and optimizer.step()"
    triggers = ((b"clip_grad",), (b".grad",), (b"clip_",))

    def check(self, script: Script) -> Iterator[Hit]:
        reported: set[int] = set()
        for step in script.semantics.steps.through(script.module):
            for clip in step.of(CLIP):
                record = clip.record
                if record.context.module is not script.module or id(record) in reported or not isinstance(record, Call):
                    continue
                if clip.by in ("lightning", "hand") or not clip.sure or self._measures(script, record):
                    continue
                found = self._too_late(script, step, clip) or self._too_early(script, step, clip)
                if found is not None:
                    reported.add(id(record))
                    event, when = found
                    note = "they are used here" if event.kind == STEP else "they are cleared here"
                    yield Hit(record, {"call": describe.text(record), "when": when}, None, (Note(event.record, note),))

    def _measures(self, script: Script, call: Call) -> bool:
        """`clip_grad_norm_(parameters, float("inf"))` only returns the norm."""
        limit = call.argument(1, "max_norm") or call.argument(1, "clip_value")
        if limit is None:
            return False
        value = script.constant(limit)
        if isinstance(value, (int, float)) and (math.isinf(value) or value >= 1e5):
            return True
        written = limit.args[0] if isinstance(limit, Call) and limit.args else limit
        return (dotted_name(written) or str(script.constant(written))).endswith("inf")

    def _too_late(self, script: Script, step: Step, clip: Event) -> tuple[Event, str] | None:
        """backward, step, clip"""
        place = step.events.index(clip)
        used: Event | None = None
        for event in reversed(step.events[:place]):
            if event.kind == OPAQUE or (event.kind == BACKWARD and used is None and not excludes(event, clip)):
                return None
            if event.kind == STEP and self._concerns(script, step, clip, event) and implies(clip, event):
                used = event
                break
        if used is None or used.loops != clip.loops[: len(used.loops)]:
            return None
        for event in step.events[place + 1 :]:
            if event.kind == OPAQUE or (event.kind == STEP and not excludes(event, clip)):
                return None
            if event.kind == BACKWARD:
                break
        # a second backward after it, and another step: the clip belongs to what is accumulated
        return (used, "after the optimizer has stepped on them")

    def _too_early(self, script: Script, step: Step, clip: Event) -> tuple[Event, str] | None:
        """zero_grad, clip, backward, step"""
        place = step.events.index(clip)
        for event in reversed(step.events[:place]):
            if event.kind in (OPAQUE, BACKWARD) and not excludes(event, clip):
                return None
            if event.kind == ZERO_GRAD and implies(clip, event) and event.sure and event.by in ("optimizer", "module"):
                updates = [s for s in step.of(STEP) if not excludes(s, clip)]
                if updates and all(
                    script.semantics.steps.clears(event, s) and self._concerns(script, step, clip, s) for s in updates
                ):
                    return (event, "that have just been cleared")
        return None

    def _concerns(self, script: Script, step: Step, clip: Event, update: Event) -> bool:
        """Whether the clipped gradients are those that the optimizer uses."""
        steps = script.semantics.steps
        if steps.only_optimizer(step):
            return True
        optimizer, module = steps.subject(update), steps.subject(clip)
        if optimizer is None or module is None:
            return False
        if steps.role(clip.owner) == "optimizer":  # type: ignore[arg-type]
            return steps.identity.same(optimizer, module) is True
        return steps.identity.trains(optimizer, module) is True

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules import describe
from trainlint.rules.precision import scaler_rewrites
from trainlint.rules.rule import Hit, Note, Rule
from trainlint.semantic import scaling
from trainlint.semantic.facts import Call
from trainlint.semantic.step import BACKWARD, CLIP, INSPECT, STEP, UNSCALE, UPDATE, Event, Step, excludes

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class ClipBeforeUnscale(Rule):
    """Gradients are clipped or looked at while they still carry the scale of the GradScaler.

    ## Why is this bad?

    After `scaler.scale(loss).backward()` gradients are multiplied by the scale, 65536 at the start. Clipping their
    norm to 1 cuts every step down to 1/65536 of what was meant, with any learning rate; a norm that is logged is too
    large by the same factor.

    ## Example

    ```python
    scaler.scale(loss).backward()
    clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    ```

    ## Use instead

    ```python
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    ```

    ## When it is silent

    Any `unscale_` between backward and the clipping; the branch without mixed precision; clipping of weights; gradients
    divided or copied by hand; a scaler that is off; frameworks that unscale themselves.

    ## Fix safety

    Unsafe: it changes what is learned, which is the point. `unscale_` is put before the first look at the gradients; one that
    comes too late is moved there. No fix where it would run on turns without `scaler.step` (it then raises), where several
    optimizers step, or where scaler and optimizer have no name at that place.

    ## Measured by `trainlint verify`

    The norm of the gradients at this line against their norm after `unscale_`.

    ## References

    - PyTorch, Automatic Mixed Precision examples, "Gradient clipping"
    """

    code = "TL403"
    name = "clip-before-unscale"
    level = Level.ERROR
    claim = Claim.BEHAVIOUR
    message = "{call} sees gradients that still carry the scale"
    why = "they are multiplied by the loss scale (65536 at the start): a bound of 1 cuts them to next to nothing"
    help = "call scaler.unscale_(optimizer) before it"
    triggers = ((b"clip",), (b".grad",), (b"norm",))

    def check(self, script: Script) -> Iterator[Hit]:
        seen: set[int] = set()
        for step in scaling.steps(script):
            found = self._in_step(script, step)
            for event, backward in found:
                record = event.record
                if record.context.module is not script.module or id(record) in seen:
                    continue
                seen.add(id(record))
                assert isinstance(record, Call)
                note = Note(backward.record, "backward runs on the scaled loss here")
                together = [e for e, b in found if b is backward]
                rewrite = scaler_rewrites.unscale(script, step, backward, together)
                yield Hit(record, {"call": describe.text(record)}, None, (note,), rewrite=rewrite)

    def _in_step(self, script: Script, step: Step) -> list[tuple[Event, Event]]:
        """What looks at scaled gradients, each with the backward that they come from."""
        found = []
        for event in step.of(CLIP, INSPECT):
            backward = self._scaled_backward(script, step, event) if scaling.touches(event) else None
            if backward is not None:
                found.append((event, backward))
        return found

    def _scaled_backward(self, script: Script, step: Step, event: Event) -> Event | None:
        """The last scaled backward before an event that no unscale, step or update follows."""
        found: Event | None = None
        for other in step.events:
            if other is event:
                break
            if excludes(other, event):
                continue
            if other.kind == BACKWARD and scaling.is_scaled(script, other) and not self._plain_branch(other, event):
                found = other
            elif other.kind in (UNSCALE, STEP, UPDATE):
                found = None
        if found is None:
            return None
        after = [e for e in step.of(STEP) if e.by == "scaler"]
        return found if after else None

    def _plain_branch(self, backward: Event, event: Event) -> bool:
        """Clipping under a condition about precision that the scaled backward does not share, or the reverse."""
        return any(scaling.asks_precision(f) for f in scaling.extra_conditions(event, backward)) or (
            any(scaling.asks_precision(f) for f in scaling.extra_conditions(backward, event))
            and any(scaling.asks_precision(f) for f in event.conditions)
        )

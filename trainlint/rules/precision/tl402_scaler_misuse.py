from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules import describe
from trainlint.rules.precision import scaler_rewrites
from trainlint.rules.rule import Hit, Note, Rule
from trainlint.semantic import scaling
from trainlint.semantic.facts import Call
from trainlint.semantic.step import BACKWARD, OPAQUE, STEP, UNSCALE, UPDATE, Event, Step, excludes, implies

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class ScalerMisuse(Rule):
    """A GradScaler that is used by halves: no `scale`, no `scaler.step`, no `update`, or `unscale_` twice.

    ## Why is this bad?

    The four calls belong together. `scaler.step` after a plain `backward()` divides gradients that nobody multiplied:
    the optimizer sees them 65536 times too small. `optimizer.step()` after a scaled backward sees them 65536 times too
    large, infinities included. Without `update()` the scale never adapts and a second `step` for the same optimizer
    raises. `unscale_` twice before `update()` raises.

    ## Example

    ```python
    loss.backward()
    scaler.step(optimizer)
    scaler.update()
    ```

    ## Use instead

    ```python
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)      # only where gradients are clipped or looked at
    scaler.step(optimizer)
    scaler.update()
    ```

    ## When it is silent

    The branch without mixed precision; accumulation that unscales, steps and updates under one condition; a wrapper
    that does all of it; scaling that cannot be followed; a scaler that is off.

    ## Fix safety

    Unsafe: it changes what is learned, which is the point. The missing call is written: `scaler.scale(...)`, `scaler.step(...)`,
    `update()` behind the last step, and `unscale_` where gradients are clipped before. A second `unscale_` is removed. No fix
    where the scaler has no name at that place, and for `unscale_` on every micro-batch.

    ## Measured by `trainlint verify`

    Size of the update with and without the missing call.

    ## References

    - PyTorch, Automatic Mixed Precision examples, "Typical Mixed Precision Training" and "Working with Unscaled
    Gradients"
    """

    code = "TL402"
    name = "scaler-misuse"
    level = Level.ERROR
    claim = Claim.BEHAVIOUR
    message = "{what}"
    why = "scale, step and update of a GradScaler belong together"
    help = "scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()"
    triggers = ((b"backward",), (b"scale",), (b"Scaler",), (b"step",))

    def check(self, script: Script) -> Iterator[Hit]:
        seen: set[int] = set()
        for step in scaling.steps(script):
            for hit in self._misuses(script, step):
                if hit.record.context.module is script.module and id(hit.record) not in seen:
                    seen.add(id(hit.record))
                    yield hit

    def _misuses(self, script: Script, step: Step) -> Iterator[Hit]:
        backward = step.of(BACKWARD)
        scaled = [e for e in backward if scaling.is_scaled(script, e)]
        stepped = [e for e in step.of(STEP) if scaling.uses_scaler(script, e) and not _is_off(script, e)]
        if stepped and not scaled:
            yield from self._plain_backward(script, step, backward, stepped)
        if scaled and not stepped:
            yield from self._plain_step(script, step, scaled)
        if scaled and stepped:
            yield from self._half_scaled(script, step)
        if stepped and not step.of(UPDATE) and not self._updates_elsewhere(script, step):
            yield self._never_updated(script, stepped)
        elif stepped:
            for event in stepped:
                if self._only_others_updated(script, step, event):
                    yield self._never_updated(script, [event])
        yield from self._unscaled_twice(script, step)

    def _plain_backward(self, script: Script, step: Step, backward: list[Event], stepped: list[Event]) -> Iterator[Hit]:
        for event in backward:
            if event.by != "loss" or scaling.maybe_scaled(script, event):
                continue
            after = [e for e in stepped if implies(e, event) and not excludes(e, event)]
            if after:
                note = Note(after[-1].record, "this step divides the gradients by the scale")
                expecting = describe.text(_call(after[-1]))
                what = f"{describe.text(_call(event))} runs on the unscaled loss, but {expecting} expects it scaled"
                rewrite = scaler_rewrites.scale(script, step, event, after[-1])
                yield Hit(event.record, {"what": what}, None, (note,), why=_DIVIDED, help=_SCALE, rewrite=rewrite)

    def _plain_step(
        self, script: Script, step: Step, scaled: list[Event], stepped: list[Event] | None = None
    ) -> Iterator[Hit]:
        for event in stepped if stepped is not None else step.of(STEP):
            if event.by != "optimizer" or not event.sure:
                continue
            before = [e for e in scaled if not excludes(e, event) and not _about_precision(e, event)]
            if before and not step.of(OPAQUE) and all(e.by == "loss" for e in step.of(BACKWARD) if e in scaled):
                note = Note(before[0].record, "the gradients come from a scaled loss")
                what = f"{describe.text(_call(event))} goes past the scaler"
                yield Hit(
                    event.record,
                    {"what": what},
                    None,
                    (note,),
                    why=_MULTIPLIED,
                    help="call scaler.step(optimizer) instead",
                    rewrite=scaler_rewrites.step_through(script, step, before[0], event),
                )

    def _half_scaled(self, script: Script, step: Step) -> Iterator[Hit]:
        """Several optimizers, one of them with half of it: what runs backward since the step before is all plain where the
        step expects it scaled, or all scaled where the step is a plain one."""
        for event in step.of(STEP):
            filled = scaling.since_last_step(step, event)
            if (
                event.loops
                or not filled
                or not all(e.by == "loss" and implies(event, e) and not e.loops for e in filled)
            ):
                continue
            if not scaling.uses_scaler(script, event):
                if all(scaling.is_scaled(script, e) for e in filled):
                    if not scaling.between(step, filled[0], event, UNSCALE):
                        yield from self._plain_step(script, step, filled, [event])
            elif not _is_off(script, event) and not any(scaling.maybe_scaled(script, e) for e in filled):
                yield from self._plain_backward(script, step, filled[-1:], [event])

    def _updates_elsewhere(self, script: Script, step: Step) -> bool:
        """`update()` of a scaler anywhere in the files that the step runs through, or somebody who may call it."""
        modules = {id(e.record.context.module): e.record.context.module for e in step.events}
        modules[id(step.frame.module)] = step.frame.module
        for module in [*modules.values(), *script.semantics.program.modules(step.frame.module, scaling.SCALER_WORD)]:
            for call in module.calls_by_attr.get("update", ()):
                if (
                    call.receiver is not None
                    and script.semantics.steps.role(call.receiver) in ("scaler", "")
                    and not call.args
                ):
                    return True
        return bool(step.of(OPAQUE))

    def _only_others_updated(self, script: Script, step: Step, event: Event) -> bool:
        """Every `update()` that there is belongs, for sure, to another scaler than the one of this step."""
        steps = script.semantics.steps
        own = steps.scaler(event)
        if own is None or len(own.builders) != 1 or step.of(OPAQUE):
            return False
        modules = {id(e.record.context.module): e.record.context.module for e in step.events}
        updates = [
            c
            for m in modules.values()
            for c in m.calls_by_attr.get("update", ())
            if c.receiver is not None and not c.args
        ]
        known = {id(e.record): e for e in step.of(UPDATE)}
        if not {id(c) for c in updates} >= set(known):
            return False
        for call in updates:
            assert call.receiver is not None
            other = steps.scaler(known[id(call)]) if id(call) in known else steps.identity.of(call.receiver)
            if other is None or len(other.builders) != 1 or steps.identity.same(own, other) is not False:
                return False
        return True

    def _never_updated(self, script: Script, stepped: list[Event]) -> Hit:
        event = stepped[0]
        subject = script.semantics.steps.scaler(event)
        made = subject.builders[0] if subject is not None and len(subject.builders) == 1 else None
        what = f"update() is never called on the scaler of {describe.text(_call(event))}"
        note = (Note(event.record, "it steps here"),) if made is not None else ()
        return Hit(
            made or event.record,
            {"what": what},
            None,
            note,
            why=_FROZEN,
            help="call scaler.update() after the step",
            rewrite=scaler_rewrites.update(script, stepped),
        )

    def _unscaled_twice(self, script: Script, step: Step) -> Iterator[Hit]:
        steps = script.semantics.steps
        unscales = [e for e in step.of(UNSCALE) if e.by == "scaler" and not _is_off(script, e)]
        for i, first in enumerate(unscales):
            for second in unscales[i + 1 :]:
                if steps.same(first, second) is True and implies(second, first) and not excludes(first, second):
                    if not scaling.between(step, first, second, UPDATE):
                        what = f"{describe.text(_call(second))} again before update()"
                        yield Hit(
                            second.record,
                            {"what": what},
                            None,
                            (Note(first.record, "unscaled here already"),),
                            why=_TWICE,
                            help=_ONCE,
                            rewrite=scaler_rewrites.drop(second),
                        )
        if step.frame.kind != "loop":
            return
        updates = step.of(UPDATE)
        for event in unscales:
            later = [u for u in updates if not excludes(u, event)]
            if later and all(
                any(scaling.is_cadence(script, f, u) for f in scaling.extra_conditions(u, event)) for u in later
            ):
                what = f"{describe.text(_call(event))} runs on every micro-batch, and update() does not"
                yield Hit(
                    event.record,
                    {"what": what},
                    None,
                    (Note(updates[-1].record, "update() only runs on some turns"),),
                    why=_TWICE,
                    help=_ONCE,
                )


def _call(event: Event) -> Call:
    assert isinstance(event.record, Call)
    return event.record


def _is_off(script: Script, event: Event) -> bool:
    return isinstance(event.record, Call) and scaling.is_off(script, event.record)


def _about_precision(scaled: Event, stepped: Event) -> bool:
    """One of the two stands under a condition about precision that the other does not share."""
    frames = [*scaling.extra_conditions(stepped, scaled), *scaling.extra_conditions(scaled, stepped)]
    return any(scaling.asks_precision(f) for f in frames)


_DIVIDED = (
    "gradients that were never multiplied are divided by the scale (65536 at the start): next to nothing is learned"
)
_MULTIPLIED = "the optimizer takes gradients that are multiplied by the scale (65536 at the start), infinities included"
_FROZEN = "the scale never adapts, and a second scaler.step for the same optimizer raises a RuntimeError"
_TWICE = "unscale_() raises when it is called again for the same optimizer before update()"
_SCALE = "call scaler.scale(loss).backward()"
_ONCE = "unscale once, right before clipping and scaler.step, under the same condition"

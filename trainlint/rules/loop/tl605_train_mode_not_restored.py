from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules import describe
from trainlint.rules.loop import mode_rewrites
from trainlint.rules.rule import Hit, Note, Rule
from trainlint.semantic import autograd, evaluation, frameworks
from trainlint.semantic.facts import Call
from trainlint.semantic.loops import loop_frames
from trainlint.semantic.step import (
    BACKWARD,
    EVAL_MODE,
    FORWARD,
    OPAQUE,
    SOME_MODE,
    STEP,
    TRAIN_MODE,
    Event,
    Step,
    excludes,
)

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class TrainModeNotRestored(Rule):
    """Evaluation inside the epoch loop calls `eval()`, and training goes on without `train()`.

    ## Why is this bad?

    `eval()` lasts until `train()` is called. From the first evaluation on, the model trains with Dropout off and with
    frozen BatchNorm statistics: it overfits, or stops improving, and nothing says so.

    ## Example

    ```python
    model.train()
    for epoch in range(epochs):
        for images, target in train_loader:
            ...
        model.eval()
        validate(model, val_loader)
    ```

    ## Use instead

    ```python
    for epoch in range(epochs):
        model.train()
        for images, target in train_loader:
            ...
        model.eval()
        validate(model, val_loader)
    ```

    ## When it is silent

    `train()` anywhere between the evaluation and the next training forward, in any function on the way; a model that is
    not the one that trains (an average, a teacher, a frozen backbone); `eval()` without any evaluation after it, which
    is meant.

    ## Fix safety

    Unsafe: it changes how the model trains, which is the point. `train()` is called at the start of each turn of the loop over
    epochs; where evaluation stands in the loop over batches or in a function of another file, behind the last statement that
    evaluates. No fix where a `return` comes before that.

    ## Measured by `trainlint verify`

    The mode of the model in each training step.

    ## References

    - PyTorch, `torch.nn.Module.train`, `torch.nn.Module.eval`
    """

    code = "TL605"
    name = "train-mode-not-restored"
    level = Level.ERROR
    claim = Claim.BEHAVIOUR
    message = "{call} is never undone: training goes on in eval mode"
    why = "from the first evaluation on, Dropout is off and BatchNorm statistics are frozen while the model trains"
    help = "call {model}.train() at the start of each epoch, or after the evaluation"
    triggers = ((b"eval(",), (b"train(False",), (b"mode=False",))

    def check(self, script: Script) -> Iterator[Hit]:
        reported: set[int] = set()
        for module in script.project.family(script.path):
            for frame in loop_frames(module):
                if not hasattr(frame.record, "body") or frameworks.in_lightning(script.inference, frame.cls):
                    continue
                step = script.semantics.steps.of_loop(frame)
                if not step.of(EVAL_MODE) or not step.of(BACKWARD) or step.of(OPAQUE):
                    continue
                for event in step.of(EVAL_MODE):
                    record = event.record
                    if (
                        record.context.module is not script.module
                        or id(record) in reported
                        or not isinstance(record, Call)
                    ):
                        continue
                    forward = self._next_training_forward(script, step, event)
                    if forward is not None and event.owner is not None:
                        reported.add(id(record))
                        notes = (Note(forward.record, "the next training step runs here, still in eval mode"),)
                        values = {"call": describe.text(record), "model": describe.text(event.owner)}
                        rewrite = mode_rewrites.train_again(script, step, event, forward)
                        yield Hit(record, values, None, notes, rewrite=rewrite)

    def _next_training_forward(self, script: Script, step: Step, switch: Event) -> Event | None:
        """The training forward that an eval() reaches on the next turn of the loop, after an evaluation and no train()."""
        events = step.events
        place = events.index(switch)
        following = [*events[place + 1 :], *events[:place]]
        evaluated = False
        if not switch.sure or any(e.kind == TRAIN_MODE and excludes(e, switch) for e in events):
            return None
        if any(b for b in step.of(BACKWARD) if excludes(b, switch)):
            return None
        for event in following:
            if event.kind in (TRAIN_MODE, SOME_MODE) and self._may_restore(script, event, switch):
                return None
            if event.kind != FORWARD:
                continue
            if not script.semantics.steps.same(event, switch) and not self._is_inside(script, event, switch):
                continue
            if not self._trains(script, step, event):
                evaluated = True
            elif evaluated and self._is_trained(script, step, switch):
                return event
            else:
                return None
        return None

    def _is_inside(self, script: Script, forward: Event, switch: Event) -> bool:
        """The forward of a part, in a method of the model: `model.sample(16)`."""
        steps = script.semantics.steps
        held = steps.subject(switch)
        for place, call in enumerate(forward.path):
            if call.receiver is not None and held is not None:
                if steps.identity.same(steps.identity.of(call.receiver, forward.path[:place]), held) is True:
                    return True
        return False

    def _may_restore(self, script: Script, event: Event, switch: Event) -> bool:
        steps = script.semantics.steps
        held, other = steps.subject(switch), steps.subject(event)
        if held is None or other is None or "each" in other.key:
            return True
        # `model.train()` restores `model.encoder` too
        return held.key[: len(other.key)] == other.key or steps.identity.same(held, other) is not False

    def _trains(self, script: Script, step: Step, forward: Event) -> bool:
        """A forward whose graph a backward of the same loop uses."""
        record = forward.record
        if script.semantics.autograd.mode(record.context, record.order) == autograd.OFF:
            return False
        for call in forward.path:
            if script.semantics.autograd.local(call.context, call.order) == autograd.OFF:
                return False
        place = step.events.index(forward)
        return any(
            event.kind == BACKWARD
            and event.loops == forward.loops
            and not excludes(event, forward)
            and self._updates(step, event)
            for event in step.events[place:]
        )

    def _updates(self, step: Step, backward: Event) -> bool:
        """An optimizer steps in the same loop, or behind it: no attack, which runs backward for its input only."""
        behind = step.events[step.events.index(backward) + 1 :]
        for event in behind:
            if event.kind == BACKWARD and event.loops != backward.loops:
                break
            if event.kind == STEP and event.loops == backward.loops[: len(event.loops)]:
                return True
        return any(event.kind == STEP and event.loops == backward.loops for event in step.events)

    def _is_trained(self, script: Script, step: Step, switch: Event) -> bool:
        """The model is known to train: an optimizer holds it, or train() is called on it somewhere."""
        steps = script.semantics.steps
        subject = steps.subject(switch)
        if subject is None:
            return False
        if isinstance(switch.record, Call) and evaluation.is_frozen(script, switch.record):
            return False
        for event in step.of(STEP):
            optimizer = steps.subject(event)
            if optimizer is not None and steps.identity.trains(optimizer, subject) is True:
                return True
        for module in script.project.family(script.path):
            for call in module.calls_by_attr.get("train", ()):
                if call.receiver is not None and steps.identity.same(steps.identity.of(call.receiver), subject) is True:
                    return True
        return False

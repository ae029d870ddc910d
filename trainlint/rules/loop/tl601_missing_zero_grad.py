from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules.rule import Hit, Note, Rule
from trainlint.semantic import frameworks
from trainlint.semantic.step import BACKWARD, OPAQUE, STEP, ZERO_GRAD, Event, Step, excludes

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


_POST_HOOK = re.compile(rb"_post_hook")


class MissingZeroGrad(Rule):
    """A training loop that runs backward and steps the optimizer, and never clears the gradients.

    ## Why is this bad?

    `backward()` adds to `.grad`. Without `zero_grad()` every step uses the sum of the gradients of all steps so far: the
    update grows without bound and points to where the weights once were. Nothing fails, training merely goes wrong.

    ## Example

    ```python
    for images, target in loader:
        loss = criterion(model(images), target)
        loss.backward()
        optimizer.step()
    ```

    ## Use instead

    ```python
    for images, target in loader:
        optimizer.zero_grad()
        loss = criterion(model(images), target)
        loss.backward()
        optimizer.step()
    ```

    ## When it is silent

    Where gradients may be cleared by anything the loop calls: the optimizer, a module's `zero_grad()`, a helper, a
    closure, a scaler or trainer object, `p.grad = None`; where a call that cannot be followed is given the optimizer; for
    DeepSpeed's engine and for Lightning and the Hugging Face Trainer, which clear by themselves.

    ## Fix safety

    Unsafe: it changes what the script computes, which is the point.

    ## Measured by `trainlint verify`

    Whether any gradient is cleared between two steps.

    ## References

    - PyTorch, `torch.optim.Optimizer.zero_grad`; PyTorch tutorial "Zeroing out gradients"
    """

    code = "TL601"
    name = "missing-zero-grad"
    level = Level.ERROR
    claim = Claim.BEHAVIOUR
    message = "gradients are never cleared in this training loop{where}"
    why = "each step uses the sum of the gradients of all steps before it"
    help = "call optimizer.zero_grad() once per step, before backward or after step"
    triggers = ((b"torch", b"for "), (b"torch", b"while "))

    def check(self, script: Script) -> Iterator[Hit]:
        if frameworks.imports(script.module, "horovod") or script.project.neighbours.speaks(
            script.module.path, _POST_HOOK
        ):
            return
        for step in script.semantics.steps.of_module(script.module):
            if step.frame.kind != "loop" or step.of(OPAQUE) or self._is_owned(script, step):
                continue
            event = self._not_cleared(script, step)
            if event is None:
                continue
            backward = next(e for e in step.of(BACKWARD) if not excludes(e, event))
            where = (
                " on one of its branches"
                if any(f.kind == "branch" for f in event.conditions) and step.of(ZERO_GRAD)
                else ""
            )
            notes = (
                Note(backward.record, "adds to the gradients"),
                Note(event.record, "uses them, and nothing clears them"),
            )
            yield Hit(step.record, {"where": where}, None, notes)

    def _is_owned(self, script: Script, step: Step) -> bool:
        cls = step.frame.cls
        return cls is not None and frameworks.class_framework(script.inference, cls) == "hf-trainer"

    def _not_cleared(self, script: Script, step: Step) -> Event | None:
        steps = script.semantics.steps
        for event in step.of(STEP):
            if event.by == "engine" or not event.sure:
                continue
            backwards = [b for b in step.of(BACKWARD) if not excludes(b, event)]
            if not backwards or any(b.by == "engine" or not b.sure for b in backwards):
                continue
            if all(excludes(z, event) or steps.clears(z, event) is False for z in step.of(ZERO_GRAD)):
                return event
        return None

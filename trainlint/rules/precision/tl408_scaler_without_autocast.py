from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Level
from trainlint.patterns_on_use import Pattern
from trainlint.rules import describe
from trainlint.rules.rule import Hit, Note, Rule
from trainlint.semantic.autograd import OFF
from trainlint.semantic.facts import Call
from trainlint.semantic.mentions import mentions
from trainlint.semantic.precision import is_enabled, scaler_calls
from trainlint.semantic.step import BACKWARD, FORWARD

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_LOW_PRECISION = Pattern(rb"autocast|float16\b|torch\.half\b|HalfTensor|mixed_precision|fp16")
# parameters in half precision, or somebody who brings either
_OTHERWISE = Pattern(rb"\.half\(|deepspeed|\bapex\b|lightning|[Ff]abric|Accelerator")
_SCALES = Pattern(rb"\.scale\(")


class ScalerWithoutAutocast(Rule):
    """A GradScaler is used, and nothing that trains runs under autocast.

    ## Why is this bad?

    The scaler only protects float16 gradients. Without autocast everything runs in float32: the memory and time that
    mixed precision was to save are not saved, and the scaler's check of all gradients comes on top.

    ## Example

    ```python
    scaler = torch.amp.GradScaler("cuda")
    loss = criterion(model(images), target)
    scaler.scale(loss).backward()
    ```

    ## Use instead

    ```python
    with torch.autocast("cuda", dtype=torch.float16):
        loss = criterion(model(images), target)
    scaler.scale(loss).backward()
    ```

    ## When it is silent

    Autocast or half-precision parameters anywhere in the program; a framework that brings them; a scaler that is off by
    default; a scaler class whose training loop is elsewhere.

    ## Fix safety

    No fix: whether autocast is to be added or the scaler to go is a decision.

    ## Measured by `trainlint verify`

    Nothing.

    ## References

    - PyTorch, Automatic Mixed Precision examples, "Typical Mixed Precision Training"
    """

    code = "TL408"
    name = "scaler-without-autocast"
    level = Level.WARNING
    message = "{call} is used, but nothing in the program runs under autocast"
    why = "everything is computed in float32: the scaler costs a check of all gradients and saves nothing"
    help = "run the forward and the loss under torch.autocast, or leave the scaler out"
    triggers = ((b"Scaler",),)

    def check(self, script: Script) -> Iterator[Hit]:
        scalers = [c for c in scaler_calls(script) if is_enabled(script, c) is True]
        if not scalers or script.semantics.program.says(script.module, _OTHERWISE):
            return
        if any(script.autograd(expr) != OFF for expr in mentions(script, _LOW_PRECISION)):
            return
        backward = self._scaled_backward(script)
        if backward is not None:
            for call in scalers:
                yield Hit(
                    call,
                    {"call": describe.text(call)},
                    None,
                    (Note(backward, "this backward runs on the scaled loss"),),
                )

    def _scaled_backward(self, script: Script) -> Call | None:
        """A backward on a scaled loss in a training step that also runs the model."""
        steps = script.semantics.steps
        for module in script.semantics.program.modules(script.module, _SCALES):
            for step in steps.through(module):
                if not step.of(FORWARD):
                    continue
                for event in step.of(BACKWARD):
                    if steps.scaling_call(event) is not None and isinstance(event.record, Call):
                        return event.record
        return None

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules.rule import Hit, Rule

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_CUDA = re.compile(rb"cuda")
# TF32, autocast, lower precision, or a framework that decides about it
_DECIDED = re.compile(
    rb"tf32|set_float32_matmul_precision|fp32_precision|autocast|float16|\bhalf\b|fp16|bf16|mixed_precision|float64|\.double\(|"
    rb"deepspeed|lightning|[Ff]abric|Accelerator|\bapex\b|TrainingArguments|use_deterministic_algorithms|NVIDIA_TF32_OVERRIDE"
)


class Tf32NotEnabled(Rule):
    """Training in float32 on CUDA with neither TF32 nor autocast.

    ## Why is this bad?

    Since torch 1.12 matrix products run in full float32 unless asked otherwise. On cards from Ampere on, TF32 computes
    them on tensor cores, several times as fast, with the range of float32 and a mantissa of 10 bits. Convolutions use
    it already.

    ## Example

    ```python
    for images, target in loader:
        loss = criterion(model(images.cuda()), target.cuda())
    ```

    ## Use instead

    ```python
    torch.set_float32_matmul_precision("high")
    ```

    ## When it is silent

    Any precision setting, autocast or lower precision in the program; frameworks; programs that never speak of CUDA.

    ## Fix safety

    Unsafe: matrix products get a shorter mantissa.

    ## Measured by `trainlint verify`

    Step time with `"high"` and with `"highest"`.

    ## References

    - torch.set_float32_matmul_precision
    - PyTorch notes, "CUDA semantics", TensorFloat-32 (TF32) on Ampere (and later) devices
    """

    code = "TL410"
    name = "tf32-not-enabled"
    level = Level.ADVICE
    claim = Claim.TIME
    message = "this training runs in full float32"
    why = "matrix products do not use the tensor cores that cards from Ampere on have"
    help = 'call torch.set_float32_matmul_precision("high") once at the start, or train under autocast'
    triggers = ((b"backward",), (b"step",))

    def check(self, script: Script) -> Iterator[Hit]:
        program = script.semantics.program
        if not program.says(script.module, _CUDA) or program.says(script.module, _DECIDED):
            return
        for step in script.semantics.steps.of_module(script.module):
            if step.frame.kind == "loop":
                yield Hit(step.record, {})

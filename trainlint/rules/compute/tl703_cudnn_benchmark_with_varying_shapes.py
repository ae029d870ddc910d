from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules import describe
from trainlint.rules.rule import Hit, Note, Rule
from trainlint.semantic import varying
from trainlint.semantic.facts import Assign, Attribute, Compare, Expr

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class CudnnBenchmarkWithVaryingShapes(Rule):
    """`torch.backends.cudnn.benchmark = True` in a program whose inputs change their size from step to step.

    ## Why is this bad?

    With the flag on, cuDNN tries all its algorithms the first time that it meets a size of input, and then keeps the fastest.
    Where the size changes on every step that search never ends: each new size costs a trial of all of them, many times the
    convolution itself, and the memory of the largest trial.

    ## Example

    ```python
    torch.backends.cudnn.benchmark = True
    for images, target in loader:
        side = random.choice(range(320, 640, 32))
        images = F.interpolate(images, size=(side, side))
    ```

    ## Use instead

    ```python
    torch.backends.cudnn.benchmark = False
    ```

    or only a few sizes, so that the search ends.

    ## When it is silent

    Where the flag is off or not known to be on; inputs of one size, also one from the command line; sizes that change and are
    brought back to one.

    ## Fix safety

    No fix.

    ## Measured by `trainlint verify`

    Step time with and without.

    ## References

    - torch.backends.cudnn.benchmark
    """

    code = "TL703"
    name = "cudnn-benchmark-with-varying-shapes"
    level = Level.ADVICE
    claim = Claim.TIME
    message = "cudnn.benchmark is on, and the size of the inputs changes between steps: {reason}"
    why = "cuDNN searches again for every size that it has not met"
    help = "leave cudnn.benchmark off, or use few sizes"
    triggers = ((b"benchmark",),)

    def check(self, script: Script) -> Iterator[Hit]:
        for statement in script.module.statements:
            if not isinstance(statement, Assign) or statement.value is None or statement.op is not None:
                continue
            if any(self._is_flag(script, t) for t in statement.targets) and self._is_on(script, statement.value):
                found = varying.varying_input(script)
                if found is not None:
                    yield Hit(
                        statement, {"reason": describe.text(found)}, None, (Note(found, "the size is decided here"),)
                    )

    def _is_flag(self, script: Script, target: Expr) -> bool:
        return (
            isinstance(target, Attribute)
            and target.attr == "benchmark"
            and script.name_of(target.value) == "torch.backends.cudnn"
        )

    def _is_on(self, script: Script, value: Expr) -> bool:
        return script.constant(value) is True or isinstance(value, Compare)

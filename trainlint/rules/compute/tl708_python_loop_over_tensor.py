from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules import describe
from trainlint.rules.rule import Hit, Rule
from trainlint.semantic import rows

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class PythonLoopOverTensor(Rule):
    """A Python loop over the rows of a tensor, whose body computes on each row.

    ## Why is this bad?

    Each turn launches its own small kernels, each of which costs Python and the driver some ten microseconds and leaves most
    of the device idle, and the backward does the same again. One operation over the whole tensor is one launch.

    ## Example

    ```python
    for i in range(predicted.size(0)):
        total = total + (predicted[i] - wanted[i]).abs().sum()
    ```

    ## Use instead

    ```python
    total = (predicted - wanted).abs().sum()
    ```

    ## When it is silent

    Outside hot code; loops over layers, lists, and time steps of a recurrent cell (a module is called in the body); bodies
    that compute nothing.

    ## Fix safety

    No fix.

    ## Measured by `trainlint verify`

    Step time.

    ## References

    - torch.vmap, for what has no batched form
    """

    code = "TL708"
    name = "python-loop-over-tensor"
    level = Level.ADVICE
    claim = Claim.TIME
    message = "a Python loop over the rows of {tensor}, in {loop}"
    why = "each turn launches small kernels of its own, and the backward does so again"
    help = "compute on the whole tensor, or use torch.vmap"
    triggers = ((b"for ",),)

    def check(self, script: Script) -> Iterator[Hit]:
        for loop, tensor in rows.loops(script):
            hot = script.hot(loop)
            if hot is not None:
                yield Hit(
                    loop,
                    {"tensor": describe.text(tensor), "loop": describe.loop_name(hot.loop, hot)},
                    None,
                    describe.notes(hot),
                )

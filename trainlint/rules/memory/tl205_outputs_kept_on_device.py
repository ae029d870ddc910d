from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules import describe
from trainlint.rules.rule import Hit, Rule
from trainlint.semantic import keeping
from trainlint.semantic.facts import Call, Expr
from trainlint.semantic.values import Tensor, each

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_REDUCED = frozenset(
    "item mean sum max min norm std var argmax argmin count_nonzero any all median numel nansum nanmean".split()
)


class OutputsKeptOnDevice(Rule):
    """Tensors of every evaluation batch are collected in a list and stay on the device.

    ## Why is this bad?

    The list holds the outputs of the whole data set in device memory, beside the model. `torch.cat` at the end needs
    the same again.

    ## Example

    ```python
    for images in loader:
        outputs.append(model(images.to(device)))
    outputs = torch.cat(outputs)
    ```

    ## Use instead

    Reduce each batch to what the metric needs, or fill a table in host memory: `table[i:i + n] = output` for pinned
    chunks. A `.cpu()` per batch waits for the device each time, so it pays only where memory is short.

    ## When it is silent

    On what is moved to the host or reduced first, and on lists that live for one batch. It is advice: small outputs
    of a small data set fit.

    ## Fix safety

    No fix: whether memory or time is short decides.

    ## Measured by `trainlint verify`

    Growth of memory over the evaluation.

    ## References

    - PyTorch FAQ, "My model reports cuda runtime error(2): out of memory"
    """

    code = "TL205"
    name = "outputs-kept-on-device"
    level = Level.ADVICE
    claim = Claim.MEMORY
    message = "{value} of every evaluation batch stays on the device in {target}"
    why = "the outputs of the whole data set lie in device memory at once"
    help = "reduce each batch to what the metric needs, or copy it to the host where memory is short"
    triggers = ((b".append(",),)

    def check(self, script: Script) -> Iterator[Hit]:
        if not script.uses_accelerator():
            return
        for call in script.methods("append"):
            hot = script.hot(call)
            if hot is None or keeping.is_part_of_training(script, hot):
                continue
            if hot.phase == "train" or len(call.args) != 1 or call.receiver is None:
                continue
            if self._is_large(script, call.args[0]) and keeping.outlives_turn(script, call.receiver, call, hot):
                values = {"value": describe.text(call.args[0]), "target": describe.text(call.receiver)}
                yield Hit(call, values, None, describe.notes(hot))

    def _is_large(self, script: Script, expr: Expr) -> bool:
        values = list(each(script.value(expr)))
        if not values or not all(isinstance(v, Tensor) and v.device == "device" and v.size != "scalar" for v in values):
            return False
        if any(isinstance(v, Tensor) and v.origin == "loss" for v in values):
            return False
        return not (isinstance(expr, Call) and expr.attr in _REDUCED and not expr.args and not expr.keywords)

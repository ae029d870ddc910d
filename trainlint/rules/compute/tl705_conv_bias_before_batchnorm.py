from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules import describe, rewrites
from trainlint.rules.rule import Hit, Note, Rewrite, Rule
from trainlint.semantic import batchnorm

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class ConvBiasBeforeBatchnorm(Rule):
    """A convolution or linear layer with a bias straight before a BatchNorm.

    ## Why is this bad?

    BatchNorm subtracts the mean of each channel, and with it any constant that was added before: the bias has no effect and
    its gradient is zero but for rounding. It still costs memory, a kernel in forward and backward, and optimizer state.

    ## Example

    ```python
    nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU())
    ```

    ## Use instead

    ```python
    nn.Sequential(nn.Conv2d(64, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU())
    ```

    ## When it is silent

    `bias=False` or a value that is not known; anything in between (activation, dropout, pooling); other norms; where what the
    layer gives is used a second time; where the order is not known.

    ## Fix safety

    Unsafe: the state dict loses a key, so that existing checkpoints no longer load strictly. No fix where the program takes
    pretrained weights from elsewhere, or reads a `.bias` (to initialise it, say) that may be that of the layer.

    ## Measured by `trainlint verify`

    Parameter and optimizer memory.

    ## References

    - PyTorch, Performance Tuning Guide, "Disable bias for convolutions directly followed by a batch norm"
    """

    code = "TL705"
    name = "conv-bias-before-batchnorm"
    level = Level.ADVICE
    claim = Claim.MEMORY
    message = "the bias of {layer} has no effect: a BatchNorm follows"
    why = "the norm subtracts it again; it costs memory, a kernel and optimizer state"
    help = "pass bias=False (existing checkpoints then lack the key)"
    triggers = ((b"torch",),)
    near = (b"BatchNorm",)
    by_row = True

    def check(self, script: Script) -> Iterator[Hit]:
        for layer, norm in batchnorm.before_batchnorm(script):
            rewrite: Rewrite | None = None
            if not batchnorm.needs_bias(script, layer):
                position = batchnorm.bias_position(script, layer)
                rewrite = rewrites.write_argument(layer, "bias", "False", position)
            notes = (Note(norm, "the BatchNorm is here"),)
            record = layer if batchnorm.is_part(layer) else layer.statement
            yield Hit(record, {"layer": describe.text(layer)}, None, notes, rewrite=rewrite)

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules import describe
from trainlint.rules.rule import Hit, Note, Rule
from trainlint.semantic import attention

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class HandWrittenAttention(Rule):
    """`softmax(q @ k.transpose(-2, -1) * scale) @ v` written out.

    ## Why is this bad?

    The matrix of all weights, length times length for each head, is written to memory and read back several times, and kept
    for the backward. `scaled_dot_product_attention` computes the same in blocks and never holds it: memory grows with the
    length instead of its square, and it is several times faster.

    ## Example

    ```python
    weights = F.softmax(q @ k.transpose(-2, -1) / math.sqrt(q.size(-1)), dim=-1)
    out = weights @ v
    ```

    ## Use instead

    ```python
    out = F.scaled_dot_product_attention(q, k, v)
    ```

    ## When it is silent

    Where the weights are used elsewhere: returned, stored, or put into a loss; where the scores are not a product of two
    tensors; in a function that calls `scaled_dot_product_attention` as well.

    ## Fix safety

    No fix: the mask, the dropout and the scale have to be passed along.

    ## Measured by `trainlint verify`

    Peak memory and step time.

    ## References

    - torch.nn.functional.scaled_dot_product_attention
    """

    code = "TL706"
    name = "hand-written-attention"
    level = Level.ADVICE
    claim = Claim.MEMORY
    message = "attention written out: {mixed} holds the weights of every pair"
    why = "memory grows with the square of the length, and the matrix is written and read several times"
    help = "use torch.nn.functional.scaled_dot_product_attention(q, k, v)"
    triggers = ((b"softmax",), (b"Softmax",))

    def check(self, script: Script) -> Iterator[Hit]:
        for mixed, scores in attention.written_out(script):
            yield Hit(mixed, {"mixed": describe.text(mixed)}, None, (Note(scores, "the scores are computed here"),))

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules import describe
from trainlint.rules.rule import Hit, Note, Rule
from trainlint.semantic import recovery

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class RetryInsideExcept(Rule):
    """Recovery from an out-of-memory error happens inside the `except` block, while the error still holds the memory.

    ## Why is this bad?

    The exception keeps its traceback, the traceback keeps the frames, and the frames keep every tensor that the
    failed attempt made. Inside the block nothing of it can be freed: `empty_cache()` has nothing to give back, and a
    smaller batch starts beside the remains of the large one.

    ## Example

    ```python
    try:
        output = model(batch)
    except torch.cuda.OutOfMemoryError:
        torch.cuda.empty_cache()
        output = torch.cat([model(part) for part in batch.chunk(2)])
    ```

    ## Use instead

    ```python
    failed = False
    try:
        output = model(batch)
    except torch.cuda.OutOfMemoryError:
        failed = True
    if failed:
        torch.cuda.empty_cache()
        output = torch.cat([model(part) for part in batch.chunk(2)])
    ```

    ## When it is silent

    Where the block only logs, or raises again, and for errors that have nothing to do with memory.

    ## Fix safety

    No fix.

    ## Measured by `trainlint verify`

    Memory that is free at the second attempt.

    ## References

    - PyTorch FAQ, "My out of memory exception handler can't allocate memory"
    """

    code = "TL211"
    name = "retry-inside-except"
    level = Level.WARNING
    claim = Claim.MEMORY
    message = "{call} runs while the exception still holds the tensors of the failed attempt"
    why = "the traceback keeps the frames and so every tensor in them, until the except block ends"
    help = "set a flag in the except block and recover after it"
    triggers = ((b"except", b"RuntimeError"), (b"except", b"OutOfMemoryError"), (b"except", b"torch"))

    def check(self, script: Script) -> Iterator[Hit]:
        for found in recovery.inside_handlers(script):
            notes = (Note(found.handler, "the exception lives until the end of this block"),)
            yield Hit(found.call, {"call": describe.text(found.call)}, notes=notes)

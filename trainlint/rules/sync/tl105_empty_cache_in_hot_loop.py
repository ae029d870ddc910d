from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules import describe, rewrites
from trainlint.rules.rule import Hit, Rule
from trainlint.rules.sync.hot_values import host_level
from trainlint.semantic.facts import Evaluate

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_NAMES = (
    "torch.cuda.empty_cache",
    "torch.cuda.memory.empty_cache",
    "torch.mps.empty_cache",
    "torch.xpu.empty_cache",
    "torch.accelerator.empty_cache",
    "torch.accelerator.memory.empty_cache",
    "gc.collect",
)


class EmptyCacheInHotLoop(Rule):
    """`torch.cuda.empty_cache()` or `gc.collect()` on every step of a batch loop.

    ## Why is this bad?

    `empty_cache()` hands the unused blocks of the caching allocator back to the driver, and the next step asks the
    driver for them again: `cudaFree` and `cudaMalloc`, each of which waits for the device. It gives the program no
    more memory than it had, for the allocator reuses those blocks anyhow. `gc.collect()` walks every Python object;
    tensors are freed by reference counting as soon as the last name goes, without it.

    ## Example

    ```python
    for images, labels in loader:
        train_step(images, labels)
        torch.cuda.empty_cache()
    ```

    ## Use instead

    Drop the call. Where memory is tight, drop what holds it (`del output`, `.detach()`), or call it between training
    and evaluation.

    ## When it is silent

    Once per epoch, under a condition that makes it rare, and on the way out of an out-of-memory error.

    ## Fix safety

    Unsafe: the statement goes, and the allocator's reserved memory is no longer given back between steps.

    ## Measured by `trainlint verify`

    The step time without the call.

    ## References

    - PyTorch, CUDA semantics, "Memory management": `empty_cache()` does not increase the memory available to PyTorch
    """

    code = "TL105"
    name = "empty-cache-in-hot-loop"
    level = Level.WARNING
    claim = Claim.TIME
    message = "{call} runs on every step of {loop}"
    why = "the next step asks the driver for the same memory again, or Python walks every object it knows"
    help = "drop it; where memory is tight, drop what holds it, or call it once between training and evaluation"
    triggers = ((b"empty_cache",), (b"collect", b"gc"))

    def check(self, script: Script) -> Iterator[Hit]:
        for call in script.calls(*_NAMES):
            hot = script.hot(call)
            if hot is None:
                continue
            values = {"call": describe.text(call), "loop": describe.loop_name(hot.loop, hot)}
            alone = isinstance(call.statement, Evaluate) and call.statement.value is call
            rewrite = rewrites.remove_statement(call) if alone else None
            yield Hit(call, values, host_level(hot), describe.notes(hot), rewrite=rewrite)

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules import describe, rewrites
from trainlint.rules.rule import Hit, Rule
from trainlint.rules.sync.hot_values import host_level
from trainlint.semantic import placement
from trainlint.semantic.facts import Call, Constant, Evaluate, If, Import, Jump, Return, Statement, Try, With

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


_CLEANS = ("empty_cache", "collect", "ipc_collect", "synchronize", "reset_peak_memory_stats")


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

    Unsafe: the statement goes, and the allocator's reserved memory is no longer given back between steps. No fix where a
    block or a function is there for nothing else: whoever calls that has to drop the call.

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
            rewrite = rewrites.remove_statement(call) if _can_go(script, call) else None
            yield Hit(call, values, host_level(hot), describe.notes(hot), rewrite=rewrite)


def _can_go(script: Script, call: Call) -> bool:
    """Whether the call is a statement that leaves something behind, in its block and in its function."""
    own, function = call.statement, call.context.function
    if not isinstance(own, Evaluate) or own.value is not call or len(own.block) == 1:
        return False
    return function is None or any(
        _does_something(script, inner) for outer in function.body for inner in placement.nested(outer)
    )


def _does_something(script: Script, statement: Statement) -> bool:
    if isinstance(statement, Evaluate):
        value = statement.value
        return not isinstance(value, Constant) and not (
            isinstance(value, Call) and (script.name_of(value.callee) or "").rpartition(".")[2] in _CLEANS
        )
    return not isinstance(statement, (If, Import, Jump, Try, With)) and not (
        isinstance(statement, Return) and statement.value is None
    )

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Level
from trainlint.rules import describe
from trainlint.rules.rule import Hit, Note, Rule
from trainlint.semantic import timing

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class TimingWithoutSynchronize(Rule):
    """The host's clock is read around one piece of device work, and nothing waits for that work.

    ## Why is this bad?

    Python only queues the kernels and goes on, so the difference is the time to queue them, often a tenth of the
    work. The work then shows up in whatever waits next: a `.item()` looks slow, the forward pass looks free.

    ## Example

    ```python
    start = time.perf_counter()
    output = model(images)
    print("forward:", time.perf_counter() - start)
    ```

    ## Use instead

    ```python
    torch.cuda.synchronize()
    start = time.perf_counter()
    output = model(images)
    torch.cuda.synchronize()
    print("forward:", time.perf_counter() - start)
    ```

    Or `torch.cuda.Event(enable_timing=True)` pairs, or `torch.utils.benchmark.Timer`, which synchronises by itself.

    ## When it is silent

    For durations over many steps or an epoch, per-step `batch_time` meters, programs on the CPU, and where something
    between the readings waits: `synchronize`, `.item()`, `.cpu()`.

    ## Fix safety

    No fix.

    ## Measured by `trainlint verify`

    Nothing: it is about what the script itself measures.

    ## References

    - PyTorch, CUDA semantics, "Asynchronous execution": "time measurements without synchronizations are not accurate"
    """

    code = "TL110"
    name = "timing-without-synchronize"
    level = Level.WARNING
    message = "the clock is read before {kind} ({work}) is done"
    why = "the device works asynchronously, so this is the time to queue the work, not to do it"
    help = "call torch.cuda.synchronize() before both readings, or use torch.cuda.Event or torch.utils.benchmark.Timer"
    triggers = ((b"time",),)

    def check(self, script: Script) -> Iterator[Hit]:
        if not script.uses_accelerator():
            return
        for reading in timing.unsynchronized(script):
            if timing.reported(reading.kind):
                notes = (Note(reading.start, "the first reading"), Note(reading.work, "queued here"))
                yield Hit(reading.end, {"kind": reading.kind, "work": describe.text(reading.work)}, notes=notes)

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules import describe
from trainlint.rules.rule import Hit, Note, Rule
from trainlint.semantic import hoarding, loading, pinning
from trainlint.semantic.facts import Call

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class WorkerTensorsHoarded(Rule):
    """Tensors that come from a loader with workers are collected in a list as they are.

    ## Why is this bad?

    Workers hand tensors over in shared memory, and on Linux each of them holds a file descriptor for as long as it
    lives. After about a thousand kept batches the run dies with "received 0 items of ancdata" or "Too many open
    files"; in a container /dev/shm (64 MB by default) is full before that. A kept label keeps the memory of its whole
    batch alive.

    ## Example

    ```python
    labels = []
    for _, label in DataLoader(dataset, num_workers=8):
        labels.append(label)
    ```

    ## Use instead

    ```python
        labels.append(label.clone())
    ```

    ## When it is silent

    No workers; `pin_memory=True` (the batch is copied to memory of the main process); `.clone()`, results of an
    operation, numbers, and tensors that were moved to a device; lists that are not known to hold tensors.

    ## Fix safety

    No fix: a copy, a number or an array, as the rest of the program needs.

    ## Measured by `trainlint verify`

    Open file descriptors and shared memory per step.

    ## References

    - PyTorch, multiprocessing package, "Sharing strategies: File descriptor"
    - pytorch/pytorch#973
    """

    code = "TL319"
    name = "worker-tensors-hoarded"
    level = Level.WARNING
    claim = Claim.MEMORY
    message = "{value} keeps the shared memory and file descriptor of a worker's batch alive for every step"
    why = "after about a thousand batches: 'Too many open files', or /dev/shm is full"
    help = "append a copy: {value}.clone()"
    triggers = ((b"torch",),)
    near = (b"Loader",)

    def check(self, script: Script) -> Iterator[Hit]:
        for feed in script.feeding.of_module(script.module):
            loaders = [c for c in feed.loaders if self._shares(script, c)]
            if not loaders or len(loaders) < len(feed.loaders):
                continue
            for kept, value in hoarding.kept_as_is(script, feed):
                yield Hit(kept, {"value": describe.text(value)}, None, (Note(loaders[0], "the loader with workers"),))

    def _shares(self, script: Script, call: Call) -> bool:
        workers = loading.workers(script, call)
        if workers is None or not workers.some:
            return False
        return pinning.of_loader_call(script, call) == pinning.PAGEABLE

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules import describe
from trainlint.rules.rule import Hit, Note, Rule
from trainlint.semantic import cuda_items, loading
from trainlint.semantic.facts import Call

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class CudaInWorkers(Rule):
    """CUDA tensors are made in `__getitem__`, in a collate function or in a transform, which run in worker processes.

    ## Why is this bad?

    Workers are forked from the training process, and CUDA does not survive a fork: "Cannot re-initialize CUDA in
    forked subprocess". Where they are spawned, each worker opens a CUDA context of its own (hundreds of MB), and
    every batch goes through inter-process handles that keep its memory alive.

    ## Example

    ```python
    class Pictures(Dataset):
        def __getitem__(self, index):
            return self.pictures[index].cuda()
    ```

    ## Use instead

    ```python
    class Pictures(Dataset):
        def __getitem__(self, index):
            return self.pictures[index]

    for batch in DataLoader(Pictures(), num_workers=4, pin_memory=True):
        batch = batch.cuda(non_blocking=True)
    ```

    ## When it is silent

    Devices known to be the CPU; tensors moved after loading, in the loop or in a wrapper of the loader. Without
    workers it is advice: it works, one small copy per item, and breaks with the first worker.

    ## Fix safety

    No fix: the move belongs into the training loop.

    ## Measured by `trainlint verify`

    One batch with workers, on a machine with a GPU.

    ## References

    - torch.utils.data, "Multi-process data loading": do not return CUDA tensors
    - PyTorch notes, "Multiprocessing best practices: CUDA in multiprocessing"
    """

    code = "TL313"
    name = "cuda-in-workers"
    level = Level.ERROR
    claim = Claim.BEHAVIOUR
    message = "{call} makes CUDA tensors where the loader reads its data{where}"
    why = 'forked workers cannot use CUDA: "Cannot re-initialize CUDA in forked subprocess"'
    help = "return CPU tensors, and move the batch in the training loop (pin_memory=True, non_blocking=True)"
    triggers = ((b"cuda",), (b".to",), (b"device",))
    near = (b"Loader",)

    def check(self, script: Script) -> Iterator[Hit]:
        found: dict[int, Hit] = {}
        for loader, _ in script.feeding.loaders(script.module):
            workers = loading.workers(script, loader)
            if workers is None:
                continue
            some = workers.some and not self._spawned(script, loader)
            for call, calls in cuda_items.made(script, loader):
                if call.context.module is script.module and (id(call) not in found or some):
                    found[id(call)] = self._hit(call, loader, calls, some)
        yield from found.values()

    def _hit(self, call: Call, loader: Call, calls: tuple[Call, ...], some: bool) -> Hit:
        notes = (*(Note(c, "called from here") for c in reversed(calls)), Note(loader, "the loader is built here"))
        values = {"call": describe.text(call), "where": ": in its worker processes" if some else ""}
        if some:
            return Hit(call, values, None, notes)
        why = "one small copy per item instead of one per batch, and it breaks with the first forked worker"
        return Hit(call, values, Level.ADVICE, notes, why=why)

    def _spawned(self, script: Script, loader: Call) -> bool:
        given = script.constant(loader.argument(loading.position("multiprocessing_context"), "multiprocessing_context"))
        return given in ("spawn", "forkserver")

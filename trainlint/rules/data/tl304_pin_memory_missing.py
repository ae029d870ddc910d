from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules import rewrites
from trainlint.rules.rule import Hit, Note, Rewrite, Rule
from trainlint.semantic import arguments, cuda_items, frameworks, loading, moving, pinning, reading
from trainlint.semantic.facts import Call, Constant
from trainlint.semantic.feeding import is_switched_off
from trainlint.semantic.loops import has_one_turn
from trainlint.semantic.values import Tensor, each

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class PinMemoryMissing(Rule):
    """The batches of a DataLoader are moved to CUDA, and the loader does not pin them.

    ## Why is this bad?

    CUDA can only copy by itself from page-locked ("pinned") memory. From ordinary memory every copy goes through a
    staging buffer and Python waits for it, `non_blocking=True` or not. With `pin_memory=True` a thread of the loader
    locks each batch while the device still works on the one before, and the copy can overlap.

    ## Example

    ```python
    loader = DataLoader(images, batch_size=64, shuffle=True, num_workers=8)
    for batch, target in loader:
        batch, target = batch.cuda(), target.cuda()
    ```

    ## Use instead

    ```python
    loader = DataLoader(images, batch_size=64, shuffle=True, num_workers=8, pin_memory=True)
    for batch, target in loader:
        batch, target = batch.cuda(non_blocking=True), target.cuda(non_blocking=True)
    ```

    ## When it is silent

    Where the command line can turn pinning on, it is advice. Batches that stay on the CPU or go to MPS; a dataset
    that yields CUDA tensors already; options that cannot be seen, or that depend on the device; a caller that asks
    for pinning; loaders that Accelerate, Fabric or the Hugging Face Trainer prepare. Loaders handed to Lightning are
    included: it moves the batches, and pins nothing by itself.

    ## Fix safety

    Safe: `pin_memory=True` changes where the host keeps a batch, not what is in it.

    ## Measured by `trainlint verify`

    The step time, with and without pinning.

    ## References

    - torch.utils.data, "Memory Pinning"
    - PyTorch tutorial, "A guide on good usage of non_blocking and pin_memory() in PyTorch"
    """

    code = "TL304"
    name = "pin-memory-missing"
    level = Level.WARNING
    claim = Claim.TIME
    message = "batches of this loader go to CUDA from memory that is not pinned"
    why = "each copy to the device goes through a staging buffer while Python waits, and cannot overlap with work"
    help = "pass pin_memory=True, and non_blocking=True where the batch is moved"
    near = (b"Loader",)

    def check(self, script: Script) -> Iterator[Hit]:
        for call, _ in loading.loaders(script):
            if pinning.of_loader_call(script, call) != pinning.PAGEABLE or self._taken_over(script, call):
                continue
            pinned = call.argument(loading.position("pin_memory"), "pin_memory")
            if pinned is not None and loading.is_open(script, pinned):
                continue
            if self._on_device_already(script, call):
                continue
            if reading.lightning_phase(script, call) is not None:
                if not reading.lightning_without_cuda(script, call):
                    yield Hit(call, {}, rewrite=self._rewrite(script, call))
                continue
            optional = loading.from_options(script, call, "pin_memory") or is_switched_off(script, call)
            level = Level.ADVICE if optional else None
            for feed in script.feeding.feeds(call):
                if feed.frame is None or has_one_turn(feed.frame):
                    continue  # one batch, once
                move = moving.move_to_cuda(script, feed)
                if move is not None:
                    note = Note(move, "moved to the device here")
                    yield Hit(call, {}, level, (note,), rewrite=self._rewrite(script, call))
                    break

    def _rewrite(self, script: Script, call: Call) -> Rewrite | None:
        """None where the option is passed by position, as an expression, or may come from `**options`."""
        said = call.argument(loading.position("pin_memory"), "pin_memory")
        if said is not None and (said is not call.keyword("pin_memory") or not isinstance(said, Constant)):
            return None
        if said is None and arguments.given(script.inference, call, "pin_memory") is not None:
            return None
        return rewrites.pass_keyword("pin_memory", "True", safe=True)

    def _taken_over(self, script: Script, call: Call) -> bool:
        """A framework prepares the loader, or it is built inside of its Trainer."""
        if reading.in_hf_trainer(script, call):
            return True
        for feed in script.feeding.feeds(call):
            for drawn in loading.loaders_behind(script, feed.expr):
                if drawn.call is call and frameworks.is_prepared(drawn):
                    return True
        return False

    def _on_device_already(self, script: Script, call: Call) -> bool:
        """Only tensors on the host can be pinned: the loader's thread raises on others."""
        if next(cuda_items.made(script, call), None) is not None:
            return True
        for dataset in loading.datasets(script, call):
            if dataset.cls is None and dataset.call is not None and dataset.name.endswith("TensorDataset"):
                for argument in dataset.call.args:
                    if any(isinstance(v, Tensor) and v.device == "device" for v in each(script.value(argument))):
                        return True
        return False

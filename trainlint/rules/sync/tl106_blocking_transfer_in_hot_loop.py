from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules import describe, rewrites
from trainlint.rules.rule import Hit, Rewrite, Rule
from trainlint.rules.sync.hot_values import host_level
from trainlint.semantic import pinning, transfers
from trainlint.semantic.facts import Call, Evaluate

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class BlockingTransferInHotLoop(Rule):
    """Pinned batch data is copied to the device on every step without `non_blocking=True`.

    ## Why is this bad?

    A copy from pinned memory can run beside Python and beside the kernels of the step. Without `non_blocking=True`
    Python waits until the copy is done, and queues no work meanwhile: the pinning is paid for and not used.

    ## Example

    ```python
    loader = DataLoader(dataset, batch_size=64, num_workers=4, pin_memory=True)
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
    ```

    ## Use instead

    ```python
    for images, labels in loader:
        images = images.to(device, non_blocking=True)
        labels = labels.to(device, non_blocking=True)
    ```

    Later operations on the device wait for the copy by themselves.

    ## When it is silent

    Where the loader does not pin, or that is not known; on modules, optimizers and losses; on what lies on the device
    already; on data that an operation has copied out of the pinned memory (`torch.cat` of a batch).

    ## Fix safety

    Safe: `non_blocking=True` is added; the order on the device stays as it was. No fix where what the call returns is dropped:
    something else than a tensor moves there.

    ## Measured by `trainlint verify`

    Synchronisations per step at this line, and the step time without them.

    ## References

    - PyTorch, CUDA semantics, "Use pinned memory buffers"
    - PyTorch tutorial, "A guide on good usage of non_blocking and pin_memory()"
    """

    code = "TL106"
    name = "blocking-transfer-in-hot-loop"
    level = Level.WARNING
    claim = Claim.SYNC
    message = "{call} waits for the copy of pinned data on every step of {loop}"
    why = "the batch lies in pinned memory, but Python waits for the copy and queues no work meanwhile"
    help = "pass non_blocking=True: work on the device waits for the copy by itself"
    triggers = ((b".to(",), (b".cuda(",), (b".copy_(",))

    def check(self, script: Script) -> Iterator[Hit]:
        for call in script.methods("to", "cuda", "copy_"):
            moved = transfers.moved_to_device(script, call)
            if moved is None or transfers.is_non_blocking(script, call) is not False:
                continue
            hot = script.hot(call)
            if hot is None or pinning.of_tensor(script, moved) != pinning.PINNED:
                continue
            values = {"call": describe.text(call), "loop": describe.loop_name(hot.loop, hot)}
            yield Hit(call, values, host_level(hot), describe.notes(hot), rewrite=self._rewrite(script, call))

    def _rewrite(self, script: Script, call: Call) -> Rewrite | None:
        if call.attr != "copy_" and isinstance(call.statement, Evaluate) and call.statement.value is call:
            return None  # what moves in place is no tensor of torch: its method need not know the option
        position = transfers.non_blocking_position(script, call)
        return rewrites.pass_option(call, "non_blocking", "True", position=position, over=(False,), safe=True)

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules import describe
from trainlint.rules.rule import Hit, Rule
from trainlint.rules.sync.hot_values import decodes
from trainlint.semantic import external
from trainlint.semantic.facts import Call

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class HostCopyInHotLoop(Rule):
    """A tensor is copied to the host on every step: `.cpu()`, `.numpy()`, `.tolist()`, `.to("cpu")`.

    ## Why is this bad?

    A copy to the host waits for all work that was queued before it, and then for the copy. On every step the device runs
    dry while Python waits. Metrics can be computed on the device and read once per epoch.

    ## Example

    ```python
    for images, labels in loader:
        output = model(images.cuda())
        correct += (output.cpu().argmax(1) == labels).sum()
    ```

    ## Use instead

    ```python
    for images, labels in loader:
        output = model(images.cuda())
        correct += (output.argmax(1) == labels.cuda()).sum()   # stays on the device
    accuracy = correct.item() / total
    ```

    ## When it is silent

    Where a condition makes it rare, in the data pipeline, on tensors that lie on the CPU already, in programs without an
    accelerator. Collecting predictions of an evaluation loop for a metric on the CPU is advice.

    ## Fix safety

    No fix: what the copy is for decides what to write.

    ## Measured by `trainlint verify`

    Synchronisations per step at this line, and the step time without them.

    ## References

    - PyTorch, Performance Tuning Guide, "Avoid unnecessary CPU-GPU synchronization"
    """

    code = "TL102"
    name = "host-copy-in-hot-loop"
    level = Level.WARNING
    claim = Claim.SYNC
    message = "{call} copies to the host on every step of {loop}"
    why = "the copy waits for everything queued on the device, which then runs dry"
    help = "compute on the device and copy once after the loop, or only on the steps that need it"
    triggers = ((b".cpu",), (b".numpy",), (b".tolist",), (b".to(", b"cpu"))

    def check(self, script: Script) -> Iterator[Hit]:
        if not script.uses_accelerator():
            return
        for call in script.methods("cpu", "numpy", "tolist", "to"):
            receiver = call.receiver
            if receiver is None:
                continue
            tensor = script.device_tensor(receiver)
            if tensor is None or not self._copies(script, call, tensor.device):
                continue
            hot = script.hot(call)
            if hot is None or hot.flagged:
                continue
            level: Level | None = None
            if hot.phase != "train" or decodes(script, call, hot):
                level = Level.ADVICE
            yield Hit(
                call,
                {"call": describe.text(call), "loop": describe.loop_name(hot.loop, hot)},
                level,
                describe.notes(hot),
            )

    def _copies(self, script: Script, call: Call, device: str | None) -> bool:
        if call.attr == "to":
            target = call.argument(0, "device")
            return target is not None and external.device_of(script.inference, target) == "host"
        if call.attr == "numpy":
            return device == "device"  # on a device it would raise, so where it is not known it is a host tensor
        return True

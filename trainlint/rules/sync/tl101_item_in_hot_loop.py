from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules import describe
from trainlint.rules.rule import Hit, Rule
from trainlint.rules.sync.hot_values import between_forward_and_backward, decodes, in_parameter_loop

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class ItemInHotLoop(Rule):
    """`.item()` on a tensor in code that runs on every step of a batch loop.

    ## Why is this bad?

    CUDA work is queued: Python normally runs ahead of the device and keeps it busy. `.item()` must return a Python number,
    so it waits until everything queued so far has finished, and the device then idles until new work arrives. On every step
    this costs the whole overlap of Python and device; between forward and backward it hurts most.

    ## Example

    ```python
    for images, labels in loader:
        loss = criterion(model(images.cuda()), labels.cuda())
        loss.backward()
        optimizer.step()
        running_loss += loss.item()
    ```

    ## Use instead

    ```python
    running_loss = torch.zeros((), device="cuda")
    for images, labels in loader:
        loss = criterion(model(images.cuda()), labels.cuda())
        loss.backward()
        optimizer.step()
        running_loss += loss.detach()
    print(running_loss.item() / len(loader))
    ```

    or read it only on the steps on which it is logged: `if step % 100 == 0: print(loss.item())`.

    ## When it is silent

    Where a condition makes it rare (`step % N == 0`, `i == 0`, a debug flag that is off), once per epoch, on numpy values and
    tensors known to lie on the CPU, in programs that never use an accelerator, and where the value is not known to be a
    tensor. For the end-of-sequence test of a decoding loop, and the action of an environment, it is advice.

    ## Fix safety

    Unsafe: a float32 sum on the device can differ from a sum of Python floats in the last digits.

    ## Measured by `trainlint verify`

    Synchronisations per step at this line, and the step time without them.

    ## References

    - PyTorch, Performance Tuning Guide, "Avoid unnecessary CPU-GPU synchronization"
    - pytorch/torchtune#522
    """

    code = "TL101"
    name = "item-in-hot-loop"
    level = Level.WARNING
    claim = Claim.SYNC
    message = "{call} waits for the device on every step of {loop}{where}"
    why = "the device runs dry while Python waits, and Python queues nothing meanwhile"
    help = (
        "keep `{value}` on the device (`.detach()`) and read it once after the loop, or only on the steps that log it"
    )
    triggers = ((b".item",),)

    def check(self, script: Script) -> Iterator[Hit]:
        if not script.uses_accelerator():
            return
        for call in script.methods("item"):
            receiver = call.receiver
            if receiver is None or call.args:
                continue
            hot = script.hot(call)
            if hot is None or hot.flagged or in_parameter_loop(script, call) or script.device_tensor(receiver) is None:
                continue
            level = Level.ADVICE if decodes(script, call, hot) else None
            where = ", between forward and backward" if between_forward_and_backward(script, call, hot) else ""
            yield Hit(
                call,
                {
                    "call": describe.text(call),
                    "loop": describe.loop_name(hot.loop, hot),
                    "where": where,
                    "value": describe.text(receiver),
                },
                level,
                describe.notes(hot),
            )

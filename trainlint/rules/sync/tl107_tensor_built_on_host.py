from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules import describe
from trainlint.rules.rule import Hit, Note, Rule
from trainlint.rules.sync.built_on_device import rewrite_of
from trainlint.rules.sync.hot_values import decodes, host_level
from trainlint.semantic import construction, transfers
from trainlint.semantic.environments import comes_from_environment

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class TensorBuiltOnHost(Rule):
    """A tensor is built in host memory and moved to the device on every step: `torch.zeros(n).to(device)`.

    ## Why is this bad?

    The values are computed by one CPU thread, and the copy comes from memory that is not pinned, so Python waits for
    it. Built on the device, the same tensor is one kernel launch.

    ## Example

    ```python
    for images, _ in loader:
        real = torch.ones(images.size(0), 1).to(device)
        noise = torch.randn(images.size(0), 100).cuda()
    ```

    ## Use instead

    ```python
    for images, _ in loader:
        real = torch.ones(images.size(0), 1, device=device)
        noise = torch.randn(images.size(0), 100, device=device)
    ```

    What is the same on each step belongs before the loop, or into a buffer of the module.

    ## When it is silent

    Outside of hot code, on tensors built with `device=`, on arrays (`torch.from_numpy(..).to(device)` has to be
    copied). What an environment gives (`env.step(action)`) has to be copied too: there it is only advice.

    ## Fix safety

    Safe (`device=`) for zeros, ones, full, empty and arange built and moved in one expression. Unsafe for random
    numbers: a device draws from a stream of its own. None where the tensor is built on another line, computed with
    before it is moved, or drawn with a `generator=` (one of the CPU would not fit); and none for
    `torch.tensor(values)`, which is copied wherever it is built.

    ## Measured by `trainlint verify`

    Synchronisations per step at this line, and the step time without them.

    ## References

    - PyTorch, Performance Tuning Guide, "Create tensors directly on the target device"
    """

    code = "TL107"
    name = "tensor-built-on-host"
    level = Level.WARNING
    claim = Claim.SYNC
    message = "{what} is built on the host and copied to the device on every step of {loop}"
    why = "the copy comes from memory that is not pinned, so Python waits for it, on every step"
    help = "build it on the device: {remedy}"
    triggers = ((b"torch", b".to("), (b"torch", b".cuda("), (b"torch", b".type_as("))

    def check(self, script: Script) -> Iterator[Hit]:
        for call in script.methods("to", "cuda", "type_as", "type"):
            receiver = call.receiver
            if receiver is None or transfers.target_of(script, call) != "device":
                continue
            hot = script.hot(call)
            if hot is None:
                continue
            built = construction.on_host(script, receiver)
            if built is None or script.hot(built) is None:
                continue
            ends = decodes(script, call, hot) or comes_from_environment(built)
            level = Level.ADVICE if ends else host_level(hot)
            name = describe.text(built.callee)
            copies = construction.copies_values(script, built)
            remedy = (
                f"{name}(..., device=...) once before the loop, as these values come from Python"
                if copies
                else f"{name}(..., device=...), or once before the loop where it does not change"
            )
            notes = describe.notes(hot)
            if built.statement is not call.statement:
                notes = (Note(built, "built here"), *notes)
            what = describe.text(built)
            values = {"what": what, "loop": describe.loop_name(hot.loop, hot), "remedy": remedy}
            yield Hit(call, values, level, notes, rewrite=rewrite_of(script, call, built))

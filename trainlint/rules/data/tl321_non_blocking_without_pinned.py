from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules import describe
from trainlint.rules.rule import Hit, Rule
from trainlint.semantic import moving, pinning
from trainlint.semantic.facts import Call, Expr
from trainlint.semantic.values import Batch, Tensor, each

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class NonBlockingWithoutPinned(Rule):
    """`non_blocking=True` on a copy to the device from memory that is known not to be pinned.

    ## Why is this bad?

    It has no effect: from pageable memory CUDA copies through a staging buffer, and the call returns when the source
    has been read. The line says that the copy overlaps with other work, and it does not.

    ## Example

    ```python
    states = torch.from_numpy(states).to("cuda", non_blocking=True)
    ```

    ## Use instead

    `pin_memory=True` on the loader. For tensors made by hand a pinned buffer that is filled again and again; calling
    `.pin_memory()` for each copy usually costs more than it saves.

    ## When it is silent

    Memory of unknown kind, pinned memory, copies between devices, copies to the host.

    ## Fix safety

    No fix: the remedy is where the memory is made.

    ## Measured by `trainlint verify`

    Not measured.

    ## References

    - PyTorch tutorial, "A guide on good usage of non_blocking and pin_memory() in PyTorch"
    """

    code = "TL321"
    name = "non-blocking-without-pinned"
    level = Level.ADVICE
    claim = Claim.NONE
    message = "non_blocking=True has no effect on {value}: its memory is not pinned"
    why = "from pageable memory the copy goes through a staging buffer, and Python waits for it"
    help = "pin the source (pin_memory=True on the loader, or a pinned buffer that is reused)"
    triggers = ((b"non_blocking",),)

    def check(self, script: Script) -> Iterator[Hit]:
        for call in script.methods("to", "cuda", "copy_"):
            if script.constant(call.keyword("non_blocking")) is not True:
                continue
            source = self._source(script, call)
            if (
                source is not None
                and pinning.of_tensor(script, source) == pinning.PAGEABLE
                and self._on_host(script, source)
            ):
                yield Hit(call, {"value": describe.text(source)})

    def _source(self, script: Script, call: Call) -> Expr | None:
        """What is copied to a device."""
        receiver = call.receiver
        assert receiver is not None
        if call.attr == "cuda":
            return receiver
        if call.attr == "to":
            return receiver if moving.may_be_cuda(script, call.keyword("device") or call.argument(0)) else None
        held = list(each(script.value(receiver)))
        if held and all(isinstance(v, Tensor) and v.device == "device" for v in held):
            return call.argument(0)
        return None

    def _on_host(self, script: Script, source: Expr) -> bool:
        found = list(each(script.value(source)))
        return bool(found) and all(isinstance(v, (Tensor, Batch)) and v.device == "host" for v in found)

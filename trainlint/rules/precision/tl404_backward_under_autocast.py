from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Level
from trainlint.rules import describe
from trainlint.rules.rule import Hit, Note, Rule
from trainlint.semantic.facts import Call
from trainlint.semantic.precision import region
from trainlint.semantic.values import Object, each
from trainlint.semantic.work import BACKWARD

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class BackwardUnderAutocast(Rule):
    """`backward()` inside the autocast block.

    ## Why is this bad?

    Each operation's backward runs in the type that autocast chose for its forward, so the block adds nothing there. It
    is not recommended: custom autograd functions, checkpointed parts and hooks run under autocast once more and may
    cast a gradient that was meant to stay float32.

    ## Example

    ```python
    with torch.autocast("cuda", dtype=torch.float16):
        loss = criterion(model(images), target)
        scaler.scale(loss).backward()
    ```

    ## Use instead

    ```python
    with torch.autocast("cuda", dtype=torch.float16):
        loss = criterion(model(images), target)
    scaler.scale(loss).backward()
    ```

    ## When it is silent

    The block is switched off (`enabled=False`); frameworks that run the backward themselves.

    ## Fix safety

    No fix: what else belongs out of the block is not known.

    ## Measured by `trainlint verify`

    Nothing.

    ## References

    - PyTorch, Automatic Mixed Precision package, "Autocasting": backward passes under autocast are not recommended
    """

    code = "TL404"
    name = "backward-under-autocast"
    level = Level.WARNING
    message = "{call} runs inside the autocast block"
    why = (
        "backward follows the types of the forward by itself; under autocast, hooks and custom functions are cast again"
    )
    help = "end the block after the loss is computed, and call backward() outside of it"
    triggers = ((b"backward",),)

    def check(self, script: Script) -> Iterator[Hit]:
        for call in script.methods("backward"):
            if not self._is_plain(script, call):
                continue
            found = region(script, call.context)
            if found is not None and found.enabled is not False:
                notes = [Note(c, "called from here") for c in found.calls[:3]]
                notes.append(Note(found.call, "autocast starts here"))
                yield Hit(call, {"call": describe.text(call)}, None, tuple(notes))

    def _is_plain(self, script: Script, call: Call) -> bool:
        """The backward of a loss, not of an engine or framework."""
        assert call.receiver is not None
        if script.semantics.work.kind(call) != BACKWARD:
            return False
        return not any(isinstance(v, Object) for v in each(script.value(call.receiver)))

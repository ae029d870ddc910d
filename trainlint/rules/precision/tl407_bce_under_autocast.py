from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Level
from trainlint.patterns_on_use import Pattern
from trainlint.rules import describe
from trainlint.rules.rule import Hit, Note, Rule
from trainlint.semantic.facts import Call
from trainlint.semantic.precision import autocast_device, region
from trainlint.semantic.values import External, Object, each

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_BCE = Pattern(rb"BCELoss|binary_cross_entropy")
_AUTOCAST = Pattern(rb"autocast")
_FUNCTIONS = frozenset({"torch.nn.functional.binary_cross_entropy", "torch.binary_cross_entropy"})
_CLASSES = frozenset({"torch.nn.BCELoss", "torch.nn.modules.loss.BCELoss"})


class BceUnderAutocast(Rule):
    """`BCELoss` or `binary_cross_entropy` under CUDA autocast.

    ## Why is this bad?

    It raises: "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast". In float16 a
    probability near 1 rounds to 1, and its logarithm is lost. The form that takes logits computes both in one and is
    safe.

    ## Example

    ```python
    criterion = nn.BCELoss()
    with torch.autocast("cuda"):
        loss = criterion(torch.sigmoid(model(images)), target)
    ```

    ## Use instead

    ```python
    criterion = nn.BCEWithLogitsLoss()
    with torch.autocast("cuda"):
        loss = criterion(model(images), target)
    ```

    ## When it is silent

    Outside of the block, or where autocast is off; autocast on the CPU; a device that is not known.

    ## Fix safety

    No fix: the sigmoid may be in the model.

    ## Measured by `trainlint verify`

    Nothing; it raises.

    ## References

    - PyTorch, Automatic Mixed Precision package, "Prefer binary_cross_entropy_with_logits over binary_cross_entropy"
    """

    code = "TL407"
    name = "bce-under-autocast"
    level = Level.ERROR
    message = "{call} under CUDA autocast raises a RuntimeError"
    why = "binary cross-entropy on probabilities is refused there: float16 loses what is near 0 and 1"
    help = "leave out the sigmoid and use BCEWithLogitsLoss / binary_cross_entropy_with_logits"
    triggers = ((b"BCELoss",), (b"binary_cross_entropy",), (b"torch",))
    near = (b"BCELoss", b"binary_cross_entropy")

    def check(self, script: Script) -> Iterator[Hit]:
        program = script.semantics.program
        if not program.says(script.module, _BCE) or not program.says(script.module, _AUTOCAST):
            return
        for call in script.module.calls:
            if not self._is_bce(script, call):
                continue
            found = region(script, call.context)
            if found is None or found.enabled is False or autocast_device(script, found.call) != "cuda":
                continue
            notes = [Note(c, "called from here") for c in found.calls[:3]]
            notes.append(Note(found.call, "autocast starts here"))
            yield Hit(call, {"call": describe.text(call)}, None, tuple(notes))

    def _is_bce(self, script: Script, call: Call) -> bool:
        for value in each(script.value(call.callee)):
            if isinstance(value, External) and value.name in _FUNCTIONS:
                return True
            if isinstance(value, Object) and value.name in _CLASSES and value.cls is None:
                return True
        return False

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules import describe
from trainlint.rules.rule import Hit, Note, Rule
from trainlint.semantic.cut_loss import CutLoss
from trainlint.semantic.facts import Call
from trainlint.semantic.step import BACKWARD

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class LossCutFromGraph(Rule):
    """The value that `backward` runs on no longer hangs on the model.

    ## Why is this bad?

    `torch.tensor(loss)`, `.detach()`, `.data` and `.item()` give a value without its history. `backward()` then raises
    "element 0 of tensors does not require grad", and `requires_grad=True` makes the error go away and nothing else: the
    gradient ends at the loss, and no weight ever changes.

    ## Example

    ```python
    loss = criterion(model(x).argmax(1).float(), y)
    loss.requires_grad = True
    loss.backward()
    ```

    ## Use instead

    A loss that is computed from the model's output by differentiable operations only.

    ## When it is silent

    `requires_grad` on inputs (adversarial examples, gradient penalties); a detached part of a sum; a detached copy for
    the log; values whose origin cannot be followed.

    ## Fix safety

    No fix.

    ## Measured by `trainlint verify`

    Whether the parameters have gradients after backward.

    ## References

    - PyTorch, "Autograd mechanics"; `torch.tensor` ("no autograd history")
    """

    code = "TL611"
    name = "loss-cut-from-graph"
    level = Level.ERROR
    claim = Claim.BEHAVIOUR
    message = "{what}: backward does not reach the model"
    why = "no weight gets a gradient: the model does not learn"
    help = "keep the loss as the model's output gives it; detach only what goes into a log"
    triggers = (
        (b"requires_grad",),
        (b"detach", b"backward"),
        (b".data", b"backward"),
        (b"item(", b"backward"),
        (b"tensor(", b"backward"),
        (b"detach",),
        (b"torch.tensor(",),
    )

    def check(self, script: Script) -> Iterator[Hit]:
        cut_loss = CutLoss(script.semantics)
        module = script.module
        asks = "requires_grad_" in module.calls_by_attr or any(n.endswith(".requires_grad") for n in module.stores)
        reported: set[int] = set()
        for step in script.semantics.steps.around(script.module):
            for backward in step.of(BACKWARD):
                notes = (Note(backward.record, "backward runs here"),)
                for expr in cut_loss.of(backward):
                    if expr.context.module is script.module and id(expr) not in reported:
                        reported.add(id(expr))
                        yield Hit(expr, {"what": f"{describe.text(expr)} cuts the loss off its graph"}, None, notes)
                for target in cut_loss.forced(backward) if asks else ():
                    if target.context.module is script.module and id(target) not in reported:
                        reported.add(id(target))
                        said = describe.text(target) if isinstance(target, Call) else f"{describe.text(target)} = True"
                        yield Hit(target, {"what": f"{said} only hides that the loss has no graph"}, None, notes)

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Level
from trainlint.rules import describe
from trainlint.rules.rule import Hit, Note, Rule
from trainlint.semantic import changed_weights

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class StepBeforeSharedBackward(Rule):
    """An optimizer steps, and then another loss runs backward through the graph of the weights that were changed.

    ## Why is this bad?

    `optimizer.step()` changes weights in place. A second backward through a graph that was built with the old weights
    raises "one of the variables needed for gradient computation has been modified by an inplace operation". (Before
    PyTorch 1.5 it ran, and the gradients were wrong.)

    ## Example

    ```python
    g_loss.backward(retain_graph=True)
    optimizer_g.step()
    d_loss.backward()          # over the same generator output
    optimizer_d.step()
    ```

    ## Use instead

    ```python
    g_loss.backward(retain_graph=True)
    d_loss.backward()
    optimizer_g.step()
    optimizer_d.step()
    ```

    or run the second loss on a detached output, or on a new forward pass.

    ## When it is silent

    A new forward after the step; a detached input; losses that share no forward; an optimizer that does not hold the
    weights that are shared.

    ## Fix safety

    No fix.

    ## Measured by `trainlint verify`

    Not measured: the script stops there.

    ## References

    - PyTorch, "Autograd mechanics: In-place correctness checks"; pytorch/pytorch#39141
    """

    code = "TL613"
    name = "step-before-shared-backward"
    level = Level.ERROR
    message = "{call} runs back through {module}, whose weights {step} has changed"
    why = 'it raises "modified by an inplace operation"'
    help = "run both backward passes before the first step, or give the second loss a detached or newly computed input"
    triggers = ((b"retain_graph",),)

    def check(self, script: Script) -> Iterator[Hit]:
        reported: set[int] = set()
        for step in script.semantics.steps.through(script.module):
            for found in changed_weights.find(script, step):
                if found.backward.context.module is not script.module or id(found.backward) in reported:
                    continue
                reported.add(id(found.backward))
                values = {
                    "call": describe.text(found.backward),
                    "module": describe.text(found.forward),
                    "step": describe.text(found.update),
                }
                notes = (
                    Note(found.forward, "both losses hang on this forward"),
                    Note(found.update, "changes its weights in place"),
                )
                yield Hit(found.backward, values, None, notes)

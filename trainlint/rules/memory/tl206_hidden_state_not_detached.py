from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules import describe
from trainlint.rules.rule import Hit, Rule
from trainlint.semantic import recurrence

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class HiddenStateNotDetached(Rule):
    """A hidden state is carried into the next step together with its graph, and each step runs backward.

    ## Why is this bad?

    The second backward reaches through the state into the graph of the step before, which is freed: "Trying to
    backward through the graph a second time". With `retain_graph=True` it gets slower and larger with every step
    instead, and fails on weights that the optimizer has changed meanwhile.

    ## Example

    ```python
    hidden = None
    for x, y in chunks:
        output, hidden = rnn(x, hidden)
        criterion(output, y).backward()
        optimizer.step()
    ```

    ## Use instead

    ```python
    for x, y in chunks:
        if hidden is not None:
            hidden = hidden.detach()
        output, hidden = rnn(x, hidden)
    ```

    ## When it is silent

    Where the state is reset or detached on the way, also by a helper (`repackage_hidden`), and under `no_grad`.

    ## Fix safety

    Unsafe: `.detach()` is written where the state enters the model; backpropagation then ends at the chunk.

    ## Measured by `trainlint verify`

    The exception of the second step, or the depth of the graph over steps.

    ## References

    - PyTorch example `word_language_model`: `repackage_hidden`
    """

    code = "TL206"
    name = "hidden-state-not-detached"
    level = Level.ERROR
    claim = Claim.BEHAVIOUR
    message = "{state} carries its graph from step to step, and every step runs backward"
    why = "the second backward reaches into the graph of the step before, which is freed, and raises"
    help = "detach it before the next step: `{state} = {state}.detach()` (each tensor of a tuple)"
    triggers = ((b"=",),)

    def check(self, script: Script) -> Iterator[Hit]:
        for carried in recurrence.undetached(script):
            yield Hit(carried.call, {"state": describe.text(carried.state)}, None, describe.notes(carried.hot))

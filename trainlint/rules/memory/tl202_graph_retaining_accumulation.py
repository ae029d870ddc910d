from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules import describe, rewrites
from trainlint.rules.rule import Hit, Rule
from trainlint.semantic import keeping

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class GraphRetainingAccumulation(Rule):
    """A running sum, list or average carries a tensor with its autograd graph from step to step.

    ## Why is this bad?

    Each turn adds a node that holds the ones before it, so nothing of the chain is freed until the sum goes. After a
    backward the activations are gone and only the nodes pile up, a slow leak. Where no backward ran over the value, all
    activations of every step stay, and memory runs out.

    ## Example

    ```python
    for images, labels in loader:
        loss = criterion(model(images), labels)
        loss.backward()
        optimizer.step()
        total += loss
    ```

    ## Use instead

    ```python
        total += loss.detach()      # not .item(), which waits for the device
    ```

    For an average of weights, run the update under `torch.no_grad()`.

    ## When it is silent

    On what is detached, made under `no_grad`, or has no graph; on losses of one step that are summed before its
    backward.

    ## Fix safety

    Safe: `.detach()` leaves every number as it is.

    ## Measured by `trainlint verify`

    Growth of memory over steps with and without `.detach()`.

    ## References

    - PyTorch FAQ, "My model reports cuda runtime error(2): out of memory": "Don't accumulate history across your
      training loop"
    """

    code = "TL202"
    name = "graph-retaining-accumulation"
    level = Level.WARNING
    claim = Claim.MEMORY
    message = "{target} keeps the graph of {value} from step to step"
    why = "each step adds nodes to a chain that is not freed before the end"
    help = "add `.detach()` to what is kept (not .item(), which waits for the device)"
    triggers = ((b"+=",), (b".append(",), (b"=",))

    def check(self, script: Script) -> Iterator[Hit]:
        for kept in keeping.find(script):
            values = {"target": kept.target, "value": describe.text(kept.value)}
            if kept.is_parameter:
                yield Hit(
                    kept.record, values, None, describe.notes(kept.hot),
                    why="each update hangs on the one before it, so the chain of all steps stays in memory",
                    help="update the average under `with torch.no_grad():`, or from detached weights",
                )  # fmt: skip
                continue
            rewrite = rewrites.detach(kept.value, safe=True) if script.tensor(kept.value) is not None else None
            if kept.freed:
                yield Hit(kept.record, values, None, describe.notes(kept.hot), rewrite=rewrite)
            else:
                why = "no backward frees this graph, so the activations of every step stay in memory"
                yield Hit(kept.record, values, Level.ERROR, describe.notes(kept.hot), why=why, rewrite=rewrite)

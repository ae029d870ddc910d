from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules import describe, rewrites
from trainlint.rules.rule import Hit, Rule
from trainlint.semantic import graphs
from trainlint.semantic.facts import Call

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class RetainGraphInHotLoop(Rule):
    """`backward(retain_graph=True)` on every step, and no second backward that would need the graph.

    ## Why is this bad?

    Backward frees the activations as it goes, layer by layer. With `retain_graph=True` all of them stay until the
    loss goes out of scope, so the peak is higher, and where a name keeps the loss they overlap with those of the next
    step.

    ## Example

    ```python
    loss = criterion(model(images), labels)
    loss.backward(retain_graph=True)
    optimizer.step()
    ```

    ## Use instead

    ```python
    loss = criterion(model(images), labels)
    loss.backward()
    optimizer.step()
    ```

    Where it was added against "Trying to backward through the graph a second time", something is carried over from the
    step before (a hidden state, a running loss): detach that.

    ## When it is silent

    Where a second backward or `torch.autograd.grad` runs on the same graph, or that cannot be excluded.

    ## Fix safety

    Unsafe: the argument goes; where a use of the graph was not seen, the program then raises.

    ## Measured by `trainlint verify`

    Peak memory with and without the argument.

    ## References

    - PyTorch, `torch.Tensor.backward`: "in nearly all cases setting this option to True is not needed"
    """

    code = "TL203"
    name = "retain-graph-in-hot-loop"
    level = Level.WARNING
    claim = Claim.MEMORY
    message = "{call} keeps the graph on every step, and nothing runs backward over it again"
    why = "the activations stay in memory after backward instead of being freed layer by layer"
    help = "drop retain_graph=True; if that raises, detach what is carried over from the step before"
    triggers = ((b".backward(",),)

    def check(self, script: Script) -> Iterator[Hit]:
        for call in script.methods("backward"):
            if not self._keeps(script, call) or script.hot(call) is None:
                continue
            if graphs.is_free_after(script, call):
                notes = describe.notes(hot) if (hot := script.hot(call)) else ()
                rewrite = rewrites.drop_option(call, "retain_graph", self._position(script, call), "None", safe=False)
                yield Hit(call, {"call": describe.text(call)}, notes=notes, rewrite=rewrite)

    def _keeps(self, script: Script, call: Call) -> bool:
        """`backward(gradient, retain_graph, create_graph)`; `create_graph=True` keeps the graph on purpose."""
        position = self._position(script, call)
        kept = call.argument(position, "retain_graph")
        return (
            kept is not None and script.constant(kept) is True and call.argument(position + 1, "create_graph") is None
        )

    def _position(self, script: Script, call: Call) -> int:
        return 2 if script.is_method_of(call, "accelerator") or script.is_method_of(call, "fabric") else 1

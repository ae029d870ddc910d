from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules import describe, rewrites
from trainlint.rules.rule import Hit, Rule
from trainlint.semantic import keeping, walk
from trainlint.semantic.bindings import lookup
from trainlint.semantic.facts import Binding, Call, Constant, Expr, Name, Sequence, Subscript
from trainlint.semantic.values import Tensor, each

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_DEEPEST = 4


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

    Safe: `.detach()` leaves every number as it is. No fix for one of several results of a call that cannot be seen, which
    may be a number, unless a backward runs on it.

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
            surely = script.tensor(kept.value) is not None and not _is_guessed(script, kept.value)
            rewrite = rewrites.detach(kept.value, safe=True) if surely else None
            if kept.freed:
                yield Hit(kept.record, values, None, describe.notes(kept.hot), rewrite=rewrite)
            else:
                why = "no backward frees this graph, so the activations of every step stay in memory"
                yield Hit(kept.record, values, Level.ERROR, describe.notes(kept.hot), why=why, rewrite=rewrite)


def _is_guessed(script: Script, value: Expr, depth: int = 0) -> bool:
    """`loss, count, log = criterion(...)`: that all of them are tensors is known of the loss only."""
    for expr in walk.inside(value):
        if isinstance(expr, Subscript) and isinstance(expr.index, Constant) and isinstance(expr.index.value, str):
            return True
        if isinstance(expr, Name) and not _runs_backward(expr):
            if any(_is_taken_out(script, b, depth) for b in lookup(expr, expr.id)[0] if b.path):
                return True
    return False


def _is_taken_out(script: Script, binding: Binding, depth: int) -> bool:
    """Whether a name gets a part of what is no more than called a tensor, here or in a helper that hands it on."""
    if binding.value is None or depth > _DEEPEST:
        return False
    if any(isinstance(v, Tensor) for v in each(script.value(binding.value))):
        return True
    if not isinstance(binding.value, Call):
        return False
    for callee in script.inference.callgraph.callees(binding.value):
        for given in callee.function.returns:
            part, place = given.value, binding.path[0]
            if isinstance(part, Sequence) and place is not None and place < len(part.elements):
                if _is_guessed(script, part.elements[place], depth + 1):
                    return True
    return False


def _runs_backward(name: Name) -> bool:
    """Whether the same name has `.backward()` called on it, or is given to one, or asked for its number."""
    for attr in ("backward", "item", "detach"):
        for call in name.context.module.calls_by_attr.get(attr, ()):
            if call.context.function is name.context.function:
                if any(isinstance(e, Name) and e.id == name.id for e in (call.receiver, *call.args)):
                    return True
    return False

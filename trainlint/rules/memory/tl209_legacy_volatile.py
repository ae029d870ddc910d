from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules import describe
from trainlint.rules.rule import Hit, Rule
from trainlint.semantic.facts import Call
from trainlint.semantic.options import updated
from trainlint.semantic.values import Const, Number, Table, Value, each

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class LegacyVolatile(Rule):
    """`Variable(x, volatile=True)`: has had no effect since PyTorch 0.4, autograd records.

    ## Why is this bad?

    `volatile` was how inference was done before 0.4. Today PyTorch warns that it has no effect, and keeps the whole
    graph: the memory it once saved is used again.

    ## Example

    ```python
    x = Variable(images.cuda(), volatile=True)
    output = model(x)
    ```

    ## Use instead

    ```python
    with torch.no_grad():
        output = model(images.cuda())
    ```

    ## When it is silent

    `volatile=False`, and a `Variable` that is not PyTorch's.

    ## Fix safety

    Unsafe: which statements belong under `no_grad` is a guess.

    ## Measured by `trainlint verify`

    Peak memory with and without the graph.

    ## References

    - PyTorch 0.4.0 migration guide, "What about volatile?"
    """

    code = "TL209"
    name = "legacy-volatile"
    level = Level.ERROR
    claim = Claim.MEMORY
    message = "volatile in {call} has no effect: autograd records"
    why = "since PyTorch 0.4 the flag is ignored, so the graph and all activations are kept"
    help = "run the model under `with torch.no_grad():` and drop Variable(..., volatile=True)"
    triggers = ((b"volatile",), (b"Variable", b"**"))

    def check(self, script: Script) -> Iterator[Hit]:
        for call in script.calls("torch.autograd.Variable", "torch.autograd.variable.Variable"):
            value = self._volatile(script, call)
            if value is not None and any(_may_be_true(v) for v in each(value)):
                yield Hit(call, {"call": describe.text(call)})

    def _volatile(self, script: Script, call: Call) -> Value | None:
        given = call.argument(2, "volatile")
        if given is not None:
            return script.value(given)
        for keyword in call.keywords:
            if keyword.name is None:
                for held in each(script.value(keyword.value)):
                    if isinstance(held, Table):
                        return updated(script.inference, keyword.value, held).get("volatile")
        return None


def _may_be_true(value: Value) -> bool:
    return value.value is True if isinstance(value, Const) else isinstance(value, Number) and value.kind == "bool"

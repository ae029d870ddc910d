from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules import describe
from trainlint.rules.memory import no_grad
from trainlint.rules.rule import Hit, Rewrite, Rule
from trainlint.semantic import autograd
from trainlint.semantic.facts import Call, For, While
from trainlint.semantic.options import updated
from trainlint.semantic.values import Const, Number, Table, Value, each

if TYPE_CHECKING:
    from trainlint.rewriting import Change, Site
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

    Unsafe: which statements belong under `no_grad` is a guess. A function that does nothing but evaluate is decorated,
    or else the evaluation loop is put under `with torch.no_grad():`, and the tensor is used as it is. None in the
    middle of training, and where the flag is a variable.

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
                yield Hit(call, {"call": describe.text(call)}, rewrite=self._rewrite(script, call))

    def _rewrite(self, script: Script, call: Call) -> Rewrite | None:
        """The tensor itself, with autograd off around it; None in the middle of training."""
        if len(call.args) != 1 or call.unpacks or {k.name for k in call.keywords} != {"volatile"}:
            return None
        if script.constant(call.keyword("volatile")) is not True:
            return None
        if script.autograd(call) == autograd.OFF:
            return Rewrite(False, "Use the tensor itself", _unwrapped)
        frame = next((f for f in call.context.local_frames() if f.kind == "loop"), None)
        loop = script.semantics.loops.batch_loop(frame) if frame is not None else None
        if frame is not None and (loop is None or loop.phase != "eval"):
            return None
        record = loop.record if loop is not None else None
        around = no_grad.around(script, record if isinstance(record, (For, While)) else None, call)
        if around is None:
            return None
        message, edit = around

        def both(site: Site) -> Iterable[Change]:
            own = list(_unwrapped(site))
            return [*own, *edit(site, own)]

        return Rewrite(False, f"{message}, and use the tensor itself", both)

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


def _unwrapped(site: Site) -> Iterable[Change]:
    from trainlint import rewriting

    return rewriting.unwrap(site)


def _may_be_true(value: Value) -> bool:
    return value.value is True if isinstance(value, Const) else isinstance(value, Number) and value.kind == "bool"

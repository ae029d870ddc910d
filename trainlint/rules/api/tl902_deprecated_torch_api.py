from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Level
from trainlint.rules import describe
from trainlint.rules.api import deprecated_uses
from trainlint.rules.api.deprecated_uses import Use
from trainlint.rules.replacements import rewrite_of
from trainlint.rules.rule import Hit, Rule
from trainlint.semantic import version_guards
from trainlint.semantic.facts import Call, Expr, Import
from trainlint.torch_api import offered

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_WHY = {
    Level.ERROR: "the line raises as soon as it is reached",
    Level.ADVICE: "it does nothing that the new form does not do",
}


class DeprecatedTorchApi(Rule):
    """A name, keyword or way of calling that torch has deprecated or made raise.

    ## Why is this bad?

    What warns today raises in some later version: `torch.symeig` and `loss.data[0]` already do, `verbose=` of the schedulers
    is gone since 2.7. Some defaults are wrong as well: `nn.Softmax()` without `dim` guesses the dimension from the shape, and
    `nn.MSELoss(size_average=False)` sums.

    ## Example

    ```python
    nn.init.xavier_uniform(layer.weight)
    loss = F.mse_loss(x, y, size_average=False)
    ```

    ## Use instead

    ```python
    nn.init.xavier_uniform_(layer.weight)
    loss = F.mse_loss(x, y, reduction="sum")
    ```

    ## When it is silent

    Below the version that deprecated it; under a version test, `hasattr` or an import fallback; for names that torch still
    takes without a warning (`F.sigmoid`, `torch.norm`). What is merely legacy (`Variable`) is advice.

    ## Fix safety

    Safe where the new form computes the same; each row of the table says so. `Variable(x)` becomes `x` where `x` has no
    autograd graph, and `x.detach()` where it has one, which the wrapper cuts; where that cannot be seen, `x` is unsafe.

    ## Measured by `trainlint verify`

    Nothing.

    ## References

    - The table `trainlint/torch_api/changes.json` names a source for each row
    """

    code = "TL902"
    name = "deprecated-torch-api"
    level = Level.WARNING
    message = "{what} {state}"
    why = "what is deprecated goes in some later version, and the line then raises"
    help = "{instead}"
    triggers = ()

    def check(self, script: Script) -> Iterator[Hit]:
        assert script.settings is not None
        target = script.settings.torch_range
        for use in deprecated_uses.uses(script, self.code):
            if version_guards.is_guarded(script.inference, use.record.context):
                continue
            values = {"what": self._what(use), "state": deprecated_uses.state(use, target)}
            usable = offered(use.change, target)
            values["instead"] = f"write {use.change.help}" if usable else f"from a later version on: {use.change.help}"
            rewrite = rewrite_of(script, use.record, use.change)
            yield Hit(use.record, values, use.level, why=_WHY.get(use.level), rewrite=rewrite)

    def _what(self, use: Use) -> str:
        if isinstance(use.record, Import):
            return use.change.names[0]
        assert isinstance(use.record, Expr)
        if isinstance(use.record, Call) and use.change.form == "use":
            return describe.text(use.record.callee)
        if use.argument and isinstance(use.record, Call):
            form = f"without {use.argument}=" if use.change.form == "missing" else f"with {use.argument}="
            return f"{describe.text(use.record.callee)}() {form}"
        return describe.text(use.record)

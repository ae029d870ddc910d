from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Level
from trainlint.rules import describe, rewrites
from trainlint.rules.rule import Hit, Rewrite, Rule
from trainlint.semantic import arguments
from trainlint.semantic.facts import Attribute, Call, Name
from trainlint.semantic.origins import origins
from trainlint.semantic.values import External, each

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_CHECKPOINT = "torch.utils.checkpoint.checkpoint"
_NAMES = frozenset({"torch.utils.checkpoint.checkpoint", "torch.utils.checkpoint.checkpoint_sequential"})


class CheckpointReentrantUnset(Rule):
    """Activation checkpointing without saying which of its two implementations is meant.

    ## Why is this bad?

    `torch.utils.checkpoint.checkpoint` warns on each run when `use_reentrant` is missing, and then uses the reentrant
    implementation. The other one is recommended: it works with `torch.autograd.grad`, keyword arguments, nested
    structures and inputs that need no gradient (where the reentrant one silently gives none).

    ## Example

    ```python
    x = checkpoint(block, x)
    ```

    ## Use instead

    ```python
    x = checkpoint(block, x, use_reentrant=False)
    ```

    ## When it is silent

    Where `use_reentrant` is given, also through `functools.partial` or a dict, and where options come from outside.

    ## Fix safety

    Safe: `use_reentrant=True` says what happens today. `use_reentrant=False`, the recommended one, is an unsafe fix:
    memory and the order of recomputation differ.

    ## Measured by `trainlint verify`

    Nothing: it is a warning of PyTorch.

    ## References

    - PyTorch, `torch.utils.checkpoint.checkpoint`: "the use_reentrant parameter should be passed explicitly"
    """

    code = "TL204"
    name = "checkpoint-reentrant-unset"
    level = Level.WARNING
    message = "{call}(...) does not say use_reentrant"
    why = "PyTorch warns on every run and uses the reentrant variant, which gives no gradient where no input needs one"
    help = "pass use_reentrant=False (recommended), or use_reentrant=True to keep what happens today"
    triggers = ((b"torch",),)
    near = (b"checkpoint",)

    def check(self, script: Script) -> Iterator[Hit]:
        for call in script.module.calls:
            if not isinstance(call.callee, (Name, Attribute)):
                continue
            values = list(each(script.value(call.callee)))
            if (
                values
                and all(isinstance(v, External) and v.name in _NAMES for v in values)
                and not self._is_said(script, call)
            ):
                yield Hit(call, {"call": describe.text(call.callee)}, rewrite=self._rewrite(script, call))

    def _rewrite(self, script: Script, call: Call) -> Rewrite | None:
        if rewrites.spreads(call) or not rewrites.has_remedy(script, f"{_CHECKPOINT}(use_reentrant=)"):
            return None
        recommended = rewrites.pass_keyword("use_reentrant", "False", safe=False)
        return rewrites.pass_keyword("use_reentrant", "True", safe=True, instead=recommended)

    def _is_said(self, script: Script, call: Call) -> bool:
        if arguments.given(script.inference, call, "use_reentrant") is not None:
            return True
        for origin in origins(script.inference, call.callee):
            if (
                origin is not None
                and isinstance(origin.expr, Call)
                and (origin.expr.unpacks or origin.expr.keyword("use_reentrant") is not None)
            ):
                return True  # functools.partial(checkpoint, use_reentrant=False)
        return False

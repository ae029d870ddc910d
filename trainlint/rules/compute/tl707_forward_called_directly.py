from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Level
from trainlint.rules import describe
from trainlint.rules.rule import Hit, Rewrite, Rule
from trainlint.semantic.contexts import is_self
from trainlint.semantic.facts import Expr
from trainlint.semantic.values import Object, each

if TYPE_CHECKING:
    from trainlint.rewriting import Change, Site
    from trainlint.semantic.script import Script


class ForwardCalledDirectly(Rule):
    """`model.forward(x)` instead of `model(x)`.

    ## Why is this bad?

    Calling the module runs its hooks, and what wrappers add around `forward`: the gradient averaging of
    DistributedDataParallel, the gathering of weights of FSDP, the casts of an autocast wrapper, the compiled code of
    `model.compile()`. `forward` alone runs none of them. Under DDP the ranks then train models that drift apart.

    ## Example

    ```python
    output = model.forward(images)
    ```

    ## Use instead

    ```python
    output = model(images)
    ```

    ## When it is silent

    `super().forward(...)`, `Base.forward(self, ...)`, `self.forward(...)` inside the class, objects that are no modules, and
    classes of the project that define `__call__` themselves.

    ## Fix safety

    Unsafe: hooks that were skipped then run.

    ## Measured by `trainlint verify`

    Nothing.

    ## References

    - torch.nn.Module.forward, the note on calling the instance
    """

    code = "TL707"
    name = "forward-called-directly"
    level = Level.WARNING
    message = "{call} skips the module's hooks and wrappers"
    why = "forward hooks, DDP's gradient averaging and compiled code only run when the module itself is called"
    help = "write {model}(...)"
    triggers = ((b".forward",),)

    def check(self, script: Script) -> Iterator[Hit]:
        for call in script.methods("forward"):
            receiver = call.receiver
            if receiver is not None and not is_self(receiver, call.context) and self._is_module(script, receiver):
                values = {"call": describe.text(call), "model": describe.text(receiver)}
                yield Hit(call, values, rewrite=Rewrite(False, "Call the module itself", _call_itself))

    def _is_module(self, script: Script, receiver: Expr) -> bool:
        values = list(each(script.value(receiver)))
        return bool(values) and all(self._has_hooks(script, v) for v in values) and not self._is_super(receiver)

    def _is_super(self, receiver: Expr) -> bool:
        return getattr(receiver, "attr", None) == "super"

    def _has_hooks(self, script: Script, value: object) -> bool:
        if not isinstance(value, Object) or value.role not in ("module", "engine"):
            return False
        return value.cls is None or script.inference.method(value.cls, "__call__") is None


def _call_itself(site: Site) -> Iterable[Change]:
    from trainlint import rewriting

    callee = rewriting.attribute(site.call.func)
    receiver, end = site.outer_span(callee.value)[1], site.outer_span(callee)[1]
    if "#" in site.text[receiver:end] or callee.lpar:
        raise rewriting.NoFix
    yield rewriting.Change(receiver, end, "")

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Level
from trainlint.rules import describe
from trainlint.rules.rule import Hit, Rewrite, Rule
from trainlint.semantic import known
from trainlint.semantic.contexts import dotted_name, is_self
from trainlint.semantic.facts import Attribute, Binding, Call, Class, Evaluate, Expr, Function
from trainlint.semantic.values import Object, Tensor, each

if TYPE_CHECKING:
    from trainlint.rewriting import Change, Site
    from trainlint.semantic.script import Script

_MODULES = known.LIGHTNING_MODULES | {"torch.nn.Module", "torch.nn.modules.Module", "torch.nn.modules.module.Module"}
_PLAIN = frozenset({"object", "abc.ABC", "ABC", "typing.Generic", "Generic"})


class ModuleInitWithoutSuper(Rule):
    """A module's `__init__` assigns layers or parameters before, or without, `super().__init__()`.

    ## Why is this bad?

    `nn.Module.__init__` makes the tables that layers and parameters are entered in. Without it the first assignment raises
    "cannot assign module before Module.__init__() call".

    ## Example

    ```python
    class Net(nn.Module):
        def __init__(self):
            self.fc = nn.Linear(10, 2)
    ```

    ## Use instead

    ```python
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(10, 2)
    ```

    ## When it is silent

    Plain values before `super().__init__()`; mixins and classes with bases that cannot be seen; dataclasses; a helper
    method that calls it.

    ## Fix safety

    Unsafe: code that only raised is made to run. `super().__init__()` is written, or moved, to the head of `__init__`;
    none where a base's `__init__` wants arguments, or where one of the project's may use what is set before it.

    ## Measured by `trainlint verify`

    Not measured: the script stops there.

    ## References

    - PyTorch, `torch.nn.Module`: "an `__init__()` call to the parent class must be made before assignment on the child"
    """

    code = "TL618"
    name = "module-init-without-super"
    level = Level.ERROR
    message = "{target} is assigned {when} super().__init__()"
    why = 'it raises "cannot assign module before Module.__init__() call"'
    help = "call super().__init__() first in __init__"
    triggers = ((b"__init__", b"class "),)

    def check(self, script: Script) -> Iterator[Hit]:
        for cls in script.module.classes:
            init = cls.methods.get("__init__")
            if (
                init is None
                or not all(_keeps_init(d) for d in cls.decorators)
                or not self._is_plain_module(script, cls)
            ):
                continue
            start = self._starts(script, init, cls, 0)
            for binding in sorted((b for bs in cls.attributes.values() for b in bs), key=lambda b: b.order):
                if binding.context.function is not init or (start is not None and binding.order > start):
                    continue
                if self._is_registered(script, binding):
                    when = "without" if start is None else "before"
                    values = {"target": describe.text(binding.source), "when": when}
                    yield Hit(binding.source, values, rewrite=self._rewrite(script, cls, init, start))
                    break

    def _rewrite(self, script: Script, cls: Class, init: Function, start: int | None) -> Rewrite | None:
        if init.decorators or not self._is_plain_module(script, cls):
            return None
        bases = [b for b in script.inference.bases(cls) if isinstance(b, Class) and b is not cls]
        if start is None:
            first = next((b.methods["__init__"] for b in bases if "__init__" in b.methods), None)
            if first is not None and not _runs_without_arguments(first):
                return None
            return Rewrite(False, "Call `super().__init__()` first", _call_super, at=init)
        if any("__init__" in b.methods for b in bases):
            return None
        call = next(c for c in init.calls if c.order == start)
        statement = call.statement
        if not isinstance(statement, Evaluate) or statement.value is not call or statement.block is not init.body:
            return None
        if not self._is_super(call) and dotted_name(call.callee) not in (
            "nn.Module.__init__",
            "torch.nn.Module.__init__",
        ):
            return None
        if call.keywords or len(call.args) != (0 if self._is_super(call) else 1):
            return None
        return Rewrite(
            False, "Call `super().__init__()` first", lambda site: _move_up(site, init), at=call, others=(init,)
        )

    def _is_plain_module(self, script: Script, cls: Class) -> bool:
        """All bases are seen, and come down to nn.Module."""
        bases = script.inference.bases(cls)
        outside = [b for b in bases if not isinstance(b, Class)]
        return any(b in _MODULES or b.endswith(".LightningModule") for b in outside) and all(
            b in _MODULES or b in _PLAIN or b.endswith(".LightningModule") for b in outside
        )

    def _starts(self, script: Script, function: Function, cls: Class, depth: int) -> int | None:
        """Where `nn.Module.__init__` is run: `super().__init__()`, `Base.__init__(self)`, or a method that does it."""
        for call in function.calls:
            if call.attr == "__init__" and isinstance(call.callee, Attribute):
                return call.order
            if (
                depth < 2
                and call.receiver is not None
                and (is_self(call.receiver, call.context) or self._is_super(call))
            ):
                for callee in script.callees(call):
                    if callee is not function and self._starts(script, callee, cls, depth + 1) is not None:
                        return call.order
            if call.attr in ("setup", "__setattr__", "exec", "super_init"):
                return call.order
        return None

    def _is_super(self, call: Call) -> bool:
        receiver = call.receiver
        return isinstance(receiver, Call) and dotted_name(receiver.callee) == "super"

    def _is_registered(self, script: Script, binding: Binding) -> bool:
        """A module or parameter for certain."""
        if binding.how != "assign" or binding.value is None or not isinstance(binding.source, Attribute):
            return False
        values = list(each(script.inference.descend(script.value(binding.value), binding.path)))
        return bool(values) and all(
            (isinstance(v, Object) and v.role in ("module", "loss") and v.call is not None)
            or (
                isinstance(v, Tensor)
                and v.origin == "parameter"
                and isinstance(binding.value, Call)
                and binding.value.attr == "Parameter"
            )
            for v in values
        )


def _keeps_init(decorator: Expr) -> bool:
    """One that only looks at the class: `@final`, `@register_model("net")`."""
    name = dotted_name(decorator.callee if isinstance(decorator, Call) else decorator) or ""
    last = name.rpartition(".")[2]
    return last == "final" or last.startswith("register")


def _runs_without_arguments(init: Function) -> bool:
    return all(p.default is not None or p.kind in ("*", "**") for p in init.parameters[1:])


def _call_super(site: Site) -> Iterable[Change]:
    from trainlint import row_edits

    return row_edits.first_in(site, "super().__init__()")


def _move_up(site: Site, init: Function) -> Iterable[Change]:
    from trainlint import rewriting, row_edits

    return [*row_edits.first_in(site.of(init), site.written(site.call)), *rewriting.remove_statement(site)]

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.patterns_on_use import Pattern
from trainlint.rules import rewrites
from trainlint.rules.rule import Hit, Rewrite, Rule
from trainlint.semantic import walk
from trainlint.semantic.bindings import lookup
from trainlint.semantic.contexts import dotted_name, is_self
from trainlint.semantic.facts import Assign, Attribute, Binding, Call, Class, Expr, Mapping, Name, Sequence
from trainlint.semantic.values import Const, Items, Number, Object, Table, Tensor, Text, Value, each

if TYPE_CHECKING:
    from trainlint.rewriting import Change, Site
    from trainlint.semantic.script import Script

# layers of torch that hold parameters or running statistics
_HOLDS = Pattern(
    r"Linear|Conv|Norm|LSTM|GRU|RNN|Embedding|Attention|Transformer|PReLU|Bilinear|Sequential|ModuleList|ModuleDict"
)


class UnregisteredSubmodules(Rule):
    """A plain list or dict of modules on `self` of a module.

    ## Why is this bad?

    A module only knows what is assigned to it directly. What lies in a plain list is not in `parameters()`, so the
    optimizer never trains it; not moved by `.to(device)`, so the forward fails on the GPU; not switched by `eval()`; and
    not in `state_dict()`, so a checkpoint silently lacks it.

    ## Example

    ```python
    self.layers = [nn.Linear(64, 64) for _ in range(4)]
    ```

    ## Use instead

    ```python
    self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(4))
    ```

    ## When it is silent

    Layers that are registered elsewhere too (attributes of their own, `add_module` of the same layers, a `ModuleList`
    or `Sequential` made of the list); layers without parameters; a list of one module, which is how people hide one on
    purpose.

    ## Fix safety

    Unsafe (`nn.ModuleList`): the state dict gains keys, and the optimizer parameters. No fix for a dict of modules that are
    attributes already: they would get a second name.

    ## Measured by `trainlint verify`

    Parameters that take part in the forward and are in no `parameters()`.

    ## References

    - PyTorch, `torch.nn.ModuleList`, `torch.nn.ModuleDict`
    """

    code = "TL617"
    name = "unregistered-submodules"
    level = Level.ERROR
    claim = Claim.BEHAVIOUR
    message = "self.{name} is a plain {kind}: the modules in it are not part of {cls}"
    why = "they are not trained, not moved to the device, and missing from the state dict"
    help = "use nn.{container}"
    triggers = ((b"nn", b"[", b"self."), (b"Module", b"self."))

    def check(self, script: Script) -> Iterator[Hit]:
        for cls in script.module.classes:
            if script.role(cls) != "module":
                continue
            for name, bindings in cls.attributes.items():
                for binding in bindings:
                    kind = self._plain_container(script, cls, binding)
                    if kind is None or self._is_registered(script, cls, name, binding):
                        continue
                    container = "ModuleDict" if kind == "dict" else "ModuleList"
                    values = {"name": name, "kind": kind, "cls": cls.name, "container": container}
                    yield Hit(binding.source, values, rewrite=self._rewrite(script, binding, container))
                    break

    def _rewrite(self, script: Script, binding: Binding, container: str) -> Rewrite | None:
        function = rewrites.name_for(script, f"torch.nn.{container}", binding.source)
        if function is None or binding.value is None or len(getattr(binding.statement, "targets", ())) != 1:
            return None
        if isinstance(binding.value, Mapping) and any(_is_own(value) for value in binding.value.values):
            return None  # it would be registered a second time, under another name
        return Rewrite(False, f"Use `{function}`", lambda site: _registered(site, function), at=binding.value)

    def _plain_container(self, script: Script, cls: Class, binding: Binding) -> str | None:
        if binding.how != "assign" or binding.value is None or binding.path or binding.context.function is None:
            return None
        if not isinstance(binding.source, Attribute) or not isinstance(binding.statement, Assign):
            return None
        registered = self._registered_elements(script, binding.value)
        for value in each(script.value(binding.value)):
            if isinstance(value, Items) and value.kind in ("list", "tuple"):
                # an empty display is filled later: `element` is what is appended
                elements = list(value.elements) if value.elements else [value.element]
                if value.elements and len(elements) == 1 and not any(self._added(cls, binding)):
                    return None  # hidden on purpose
                if self._holds_parameters(script, elements, registered):
                    return value.kind
            elif isinstance(value, Table):
                stored = (
                    [v for _, v in value.items] or [script.value(e) for e in self._stored(cls, binding)] or [value.rest]
                )
                if self._holds_parameters(script, stored, registered):
                    return "dict"
            else:
                return None
        return None

    def _registered_elements(self, script: Script, value: Expr) -> list[Value]:
        """Of `[self.encoder, nn.Linear(4, 2)]` the first: it is an attribute."""
        if not isinstance(value, (Sequence, Mapping)):
            return []
        elements = value.elements if isinstance(value, Sequence) else value.values
        return [script.value(e) for e in elements if _is_own(e)]

    def _puts(self, cls: Class, binding: Binding) -> Iterator[Expr]:
        """The display, and what is put into it later."""
        if binding.value is not None:
            yield binding.value
        yield from self._added(cls, binding)
        yield from self._stored(cls, binding)

    def _added(self, cls: Class, binding: Binding) -> Iterator[Expr]:
        """What `self.layers.append(...)` and `self.layers += ...` put into a list."""
        names = _names_of(binding)
        for method in ("append", "extend", "insert"):
            for call in cls.module.calls_by_attr.get(method, ()):
                if call.context.cls is cls and call.receiver is not None and dotted_name(call.receiver) in names:
                    yield from call.args
        function = binding.context.function
        scopes = [cls.attributes.get(binding.name, [])]
        if function is not None and isinstance(binding.value, Name):
            scopes.append(function.locals.get(binding.value.id, []))
        yield from (b.value for scope in scopes for b in scope if b.how == "augment" and b.value is not None)

    def _stored(self, cls: Class, binding: Binding) -> Iterator[Expr]:
        """What `self.heads[name] = ...` puts into a dict."""
        for name in _names_of(binding):
            for store in cls.module.stores.get(f"{name}[]", ()):
                if store.context.cls is cls and store.value is not None:
                    yield store.value

    def _holds_parameters(self, script: Script, elements: list[Value], registered: list[Value]) -> bool:
        """Modules only, at least one of which has parameters and is registered under no other name."""
        values = [v for e in elements for v in each(e)]
        if not values or not all(isinstance(v, Object) and v.role == "module" for v in values):
            return False
        return any(self._has_parameters(script, v) for v in values if isinstance(v, Object) and v not in registered)

    def _has_parameters(self, script: Script, value: Object) -> bool:
        if value.call is None:
            return False  # where it was made cannot be seen
        if value.cls is not None:
            return not self._trains_itself(script, value.cls)
        last = value.name.rpartition(".")[2]
        return value.name.startswith("torchvision.models.") or (
            value.name.startswith("torch.nn.") and bool(_HOLDS.search(last))
        )

    def _trains_itself(self, script: Script, cls: Class) -> bool:
        """A layer with an optimizer of its own (forward-forward, local losses)."""
        return any(
            isinstance(v, Object) and v.role == "optimizer"
            for bindings in cls.attributes.values()
            for b in bindings
            if b.value is not None and b.how == "assign"
            for v in each(script.value(b.value))
        )

    def _is_registered(self, script: Script, cls: Class, name: str, binding: Binding) -> bool:
        assert binding.value is not None
        if self._are_attributes(binding.value):
            return True
        for base in script.inference.bases(cls):
            if not isinstance(base, Class):
                continue
            for method in base.methods.values():
                for call in method.calls:
                    if self._registers(script, cls, call, name, binding):
                        return True
                    if call.attr in ("ModuleList", "ModuleDict", "Sequential", "extend") and self._names(call, name):
                        return True
        for bindings in cls.attributes.values():
            for other in bindings:
                # `self.blocks = nn.ModuleList(blocks)` of the same local list
                if other is not binding and isinstance(other.value, Call) and isinstance(binding.value, Expr):
                    local = getattr(binding.value, "id", None)
                    if local is not None and any(getattr(e, "id", None) == local for e in walk.inside(other.value)):
                        return True
        return False

    def _registers(self, script: Script, cls: Class, call: Call, name: str, binding: Binding) -> bool:
        """`self.add_module(f"layer{i}", layer)`, where that may be one of the list: not what is built for itself."""
        if call.attr not in ("add_module", "register_module", "setattr", "__setattr__") or not call.args:
            return False
        if call.attr == "setattr" and not is_self(call.args[0], call.context):
            return False
        given = call.keyword("module") or call.args[-1]
        if isinstance(given, Call):
            return not any(isinstance(v, Object) and v.call is given for v in each(script.value(given)))
        if isinstance(given, Attribute):
            return given.attr == name or not is_self(given.value, given.context)
        if all(isinstance(v, (Const, Number, Text, Tensor)) for v in each(script.value(given))):
            return False
        if not isinstance(given, Name):
            return True
        found = lookup(given, given.id)[0]
        if not found or not all(b.how == "assign" and isinstance(b.value, Call) and not b.path for b in found):
            return True
        inside = [e for put in self._puts(cls, binding) for e in walk.inside(put)]
        return any(isinstance(e, Name) and e.id == given.id for e in inside)

    def _are_attributes(self, value: Expr) -> bool:
        """`[self.down1, self.down2]`: registered under names of their own."""
        if isinstance(value, Sequence) and value.elements:
            return all(
                any(isinstance(e, Attribute) and is_self(e.value, e.context) for e in walk.inside(element))
                for element in value.elements
            )
        return False

    def _names(self, call: Call, name: str) -> bool:
        for argument in call.args:
            for expr in walk.inside(argument):
                if isinstance(expr, Attribute) and expr.attr == name and is_self(expr.value, expr.context):
                    return True
        return False


def _is_own(value: Expr) -> bool:
    """`self.encoder`"""
    return isinstance(value, Attribute) and is_self(value.value, value.context)


def _names_of(binding: Binding) -> list[str]:
    """`self.layers`, and `layers` where that is what is assigned."""
    local = [binding.value.id] if isinstance(binding.value, Name) else []
    return [f"self.{binding.name}", *local]


def _registered(site: Site, function: str) -> Iterable[Change]:
    """`[a, b]` -> `nn.ModuleList([a, b])`, `[]` -> `nn.ModuleList()`"""
    from trainlint import rewriting

    value = rewriting.expression(site.node)
    if site.written(value) in ("[]", "{}", "()", "list()", "dict()"):
        return [site.replace(value, f"{function}()")]
    return rewriting.wrapped(site, value, function)

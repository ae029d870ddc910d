"""What layers a module is made of: whether any of them depends on the mode, and which part feeds which."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from trainlint.semantic import walk
from trainlint.semantic.contexts import is_self
from trainlint.semantic.facts import Attribute, Call, Class, Expr, Function, Name
from trainlint.semantic.values import Const, External, Items, Object, Table, Unknown, Value, each

if TYPE_CHECKING:
    from trainlint.semantic.inference import Inference

# torch's own layers that do something else in training than in evaluation
_MODAL = re.compile(r"BatchNorm|Dropout|RReLU|Transformer(?:En|De)coder|^Transformer$|FractionalMaxPool")
_DROPS_IF_ASKED = frozenset({"LSTM", "GRU", "RNN", "MultiheadAttention"})
_DEEPEST = 10


class Layers:
    def __init__(self, inference: Inference) -> None:
        self.inference = inference
        self._classes: dict[int, bool | None] = {}
        self._active: set[int] = set()

    # ---------------------------------------------------------------------------------------------------- the mode

    def depends_on_mode(self, value: Value, depth: int = 0) -> bool | None:
        """Whether a module has a layer that depends on the mode (BatchNorm, Dropout); None where not all can be seen."""
        if depth > _DEEPEST:
            return None
        return _any([self._one(one, depth) for one in each(value)] or [None])

    def _one(self, value: Value, depth: int) -> bool | None:
        if isinstance(value, Items):
            parts = value.elements if value.elements is not None else (value.element,)
            return _any([self.depends_on_mode(p, depth + 1) for p in parts])
        if isinstance(value, Table):
            return _any([self.depends_on_mode(v, depth + 1) for _, v in value.items])
        if not isinstance(value, Object) or value.role not in ("module", "loss", "engine"):
            return None if isinstance(value, (Unknown, Object)) else False
        if value.cls is not None:
            return self._of_class(value.cls, depth)
        if value.inner:
            return _any([self.depends_on_mode(v, depth + 1) for v in value.inner])
        return self._outside(value)

    def _outside(self, value: Object) -> bool | None:
        last = value.name.rpartition(".")[2]
        if value.name.startswith("torchvision.models."):
            return True
        if not value.name.startswith("torch.nn.") or last in ("Module", "Sequential", "ModuleList", "ModuleDict"):
            return None
        if last in _DROPS_IF_ASKED:
            dropout = value.call.keyword("dropout") if value.call is not None else None
            return False if dropout is None else self._may_drop(dropout)
        if last.startswith("Transformer") and value.call is not None and self._is_zero(value.call.keyword("dropout")):
            return False
        return bool(_MODAL.search(last))

    def _may_drop(self, dropout: Expr) -> bool | None:
        return not self._is_zero(dropout)

    def _is_zero(self, expr: Expr | None) -> bool:
        return expr is not None and self.inference.constant(expr) in (0, 0.0)

    def _of_class(self, cls: Class, depth: int) -> bool | None:
        key = id(cls)
        if key in self._classes:
            return self._classes[key]
        if key in self._active:
            return False
        self._active.add(key)
        try:
            found = self._classes[key] = self._look_into(cls, depth)
        finally:
            self._active.discard(key)
        return found

    def _look_into(self, cls: Class, depth: int) -> bool | None:
        found: list[bool | None] = []
        for base in self.inference.bases(cls):
            if isinstance(base, Class):
                found.extend(self._own(base, depth))
            elif not base.startswith(
                (
                    "torch.nn.Module",
                    "torch.nn.modules.module.Module",
                    "lightning",
                    "pytorch_lightning",
                    "object",
                    "abc.",
                )
            ):
                found.append(self._outside(Object("module", base)))
        return _any(found)

    def _own(self, cls: Class, depth: int) -> list[bool | None]:
        found: list[bool | None] = []
        for bindings in cls.attributes.values():
            for binding in bindings:
                if binding.how != "assign" or binding.value is None:
                    continue
                for one in each(self.inference.descend(self.inference.value(binding.value), binding.path)):
                    if isinstance(one, (Object, Items, Table)):
                        if not isinstance(one, Object) or one.role == "module":
                            found.append(self._member(one, depth))
                    elif isinstance(one, Unknown) and self._is_called(cls, binding.name):
                        found.append(None)
        for method in cls.methods.values():
            found.extend(self._in_method(method, depth))
        return found

    def _member(self, one: Value, depth: int) -> bool | None:
        if isinstance(one, Object):
            return self._one(one, depth + 1)
        parts = (one.elements if one.elements is not None else (one.element,)) if isinstance(one, Items) else ()
        if isinstance(one, Table):
            parts = tuple(v for _, v in one.items)
        modules = [o for p in parts for o in each(p) if isinstance(o, Object) and o.role == "module"]
        return _any([self._one(o, depth + 1) for o in modules])

    def _is_called(self, cls: Class, name: str) -> bool:
        return any(c.attr == name and isinstance(c.callee, Attribute) for m in cls.methods.values() for c in m.calls)

    def _in_method(self, method: Function, depth: int) -> list[bool | None]:
        """`F.dropout(x, training=self.training)`, `self.add_module(name, layer)`"""
        found: list[bool | None] = []
        for call in method.calls:
            if call.attr is not None and "dropout" in call.attr:
                held = self.inference.value(call.callee)
                if isinstance(held, External) and held.name.startswith("torch.nn.functional."):
                    training = call.keyword("training")
                    found.append(training is not None and not isinstance(self.inference.value(training), Const))
            if call.attr in ("add_module", "register_module") and len(call.args) > 1:
                found.append(self.depends_on_mode(self.inference.value(call.args[1]), depth + 1))
        return found

    # ------------------------------------------------------------------------------------------------- which feeds which

    def feeds_others(self, value: Value, parts: tuple[str, ...]) -> bool:
        """Whether some other part of the module is computed from what these parts give, by its `forward`."""
        for one in each(value):
            cls = one.cls if isinstance(one, Object) else None
            forward = self.inference.method(cls, "forward") if cls is not None else None
            if forward is None or self._feeds(forward, frozenset(parts)):
                return True
        return False

    def _feeds(self, forward: Function, parts: frozenset[str]) -> bool:
        tainted: set[str] = set()
        changed = True
        while changed:
            changed = False
            for name, bindings in forward.locals.items():
                if name not in tainted and any(
                    b.value is not None and self._comes_from(b.value, parts, tainted) for b in bindings
                ):
                    tainted.add(name)
                    changed = True
        for call in forward.calls:
            own = self._own_part(call)
            if own is not None and own not in parts:
                if any(self._comes_from(a, parts, tainted) for a in (*call.args, *(k.value for k in call.keywords))):
                    return True
        return False

    def _comes_from(self, expr: Expr, parts: frozenset[str], tainted: set[str]) -> bool:
        for part in walk.inside(expr):
            if isinstance(part, Name) and part.id in tainted:
                return True
            if isinstance(part, Call) and self._own_part(part) in parts:
                return True
        return False

    def _own_part(self, call: Call) -> str | None:
        callee = call.callee
        if isinstance(callee, Attribute) and is_self(callee.value, callee.context):
            return callee.attr
        return None


def _any(found: list[bool | None]) -> bool | None:
    """True if one is, None if that cannot be told, False if none is."""
    if any(f is True for f in found):
        return True
    return None if any(f is None for f in found) else False

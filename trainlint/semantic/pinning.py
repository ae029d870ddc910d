"""Pinned (page-locked) memory: whether a loader pins its batches, and whether a tensor on the host is known to be
pinned.

A loader pins what it yields with `pin_memory=True`; `t.pin_memory()` pins on the spot. Views stay pinned, the result
of an operation does not. A view with gaps (`x[:, 0]`) is copied through a temporary that is not pinned, so it does not
count (`copy_requires_temporaries` in aten/src/ATen/native/cuda/Copy.cu).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from trainlint.patterns_on_use import Pattern
from trainlint.semantic import frameworks, loading
from trainlint.semantic.bindings import lookup
from trainlint.semantic.contexts import is_self
from trainlint.semantic.defaults import usual
from trainlint.semantic.facts import (
    Attribute,
    Binding,
    Call,
    Comprehension,
    Conditional,
    Constant,
    Expr,
    Function,
    Name,
    Parameter,
    Sequence,
    Slice,
    Starred,
    Subscript,
    Walrus,
)
from trainlint.semantic.values import Const, External, Number, Object, Routine, Text, Value, each

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

PINNED, PAGEABLE = "pinned", "pageable"

_ACCELERATED = Pattern(r"cuda|gpu|accel|device|is_available", re.I)
# tensor methods whose result shares the memory of their tensor, and container methods that hand on what they hold
_VIEWS = frozenset(
    "view reshape unsqueeze squeeze permute transpose t flatten detach view_as "
    "swapaxes movedim requires_grad_ items values get pop".split()
)
# the position of `dim` in those that leave gaps unless it is the first
_PARTS = {"narrow": 0, "select": 0, "unbind": 0, "chunk": 1, "split": 1}
_BUILDERS = frozenset(
    "torch." + n
    for n in (
        "cat stack concat hstack vstack where zeros ones full empty rand randn tensor from_numpy frombuffer"
    ).split()
)
_DEEPEST = 24


# ---------------------------------------------------------------------------------------------------------- loaders


def of_loader(script: Script, loader: Object) -> str | None:
    """PINNED, PAGEABLE, or None when it cannot be told: options from outside, loaders that a framework prepared."""
    call = loader.call
    if call is None or frameworks.is_prepared(loader) or call.attr in ("prepare", "setup_dataloaders"):
        return None
    if loader.cls is None and loader.name not in loading.DATA_LOADERS:
        return None
    return of_loader_call(script, call)


def of_loader_call(script: Script, call: Call) -> str | None:
    """As `of_loader`, for the call that builds the loader. Pinned only where there is an accelerator counts as
    pinned."""
    value = loading.option(script, call, "pin_memory")
    if value is None:
        return PAGEABLE
    states = {_state(one) for one in each(value)}
    if PINNED in states:
        return PINNED
    given = call.argument(loading.position("pin_memory"), "pin_memory")
    if given is not None:
        if _follows_accelerator(given):
            return PINNED
        known = usual(script.inference, given)
        if known is not ...:
            return PINNED if known else PAGEABLE
    return PAGEABLE if states == {PAGEABLE} else None


def _state(value: Value) -> str | None:
    if isinstance(value, Const):
        return PINNED if value.value is True else PAGEABLE if value.value in (False, None) else None
    return None


def _follows_accelerator(expr: Expr) -> bool:
    """`torch.cuda.is_available()`, `use_cuda`, `device.type == "cuda"`: pinned wherever batches are moved at all."""
    stack: list[Expr] = [expr]
    while stack:
        current = stack.pop()
        word = current.id if isinstance(current, Name) else current.attr if isinstance(current, Attribute) else ""
        if _ACCELERATED.search(word) and "pin_memory_device" not in word:
            return True
        for part in current.parts:
            child = getattr(current, part)
            if isinstance(child, tuple):
                stack.extend(c for c in child if isinstance(c, Expr))
            elif isinstance(child, Expr):
                stack.append(child)
    return False


# ---------------------------------------------------------------------------------------------------------- tensors


def of_tensor(script: Script, expr: Expr) -> str | None:
    """The state of a tensor (or container of tensors) on the host: PINNED when it is on any way that leads here,
    PAGEABLE when it is on all, None when that is not known or the tensor may lie on a device already."""
    return _Tracer(script).state(expr, 0)


class _Tracer:
    """Follows a tensor back to the loader, or the operation, that it comes from."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.active: set[int] = set()

    def state(self, expr: Expr, depth: int) -> str | None:
        if depth > _DEEPEST or id(expr) in self.active:
            return None
        self.active.add(id(expr))
        try:
            return self._state(expr, depth + 1)
        finally:
            self.active.discard(id(expr))

    def _state(self, expr: Expr, depth: int) -> str | None:
        if isinstance(expr, Name):
            bindings, _ = lookup(expr, expr.id)
            return _either([self._bound(b, depth) for b in bindings])
        if isinstance(expr, Subscript):
            return self.state(expr.value, depth) if self._is_view(expr.index) else None
        if isinstance(expr, Attribute):
            if is_self(expr.value, expr.context):
                return self._own_attribute(expr, depth)
            return self.state(expr.value, depth)
        if isinstance(expr, Call):
            return self._called(expr, depth)
        if isinstance(expr, Conditional):
            return _either([self.state(expr.body, depth), self.state(expr.orelse, depth)])
        if isinstance(expr, (Walrus, Starred)):
            return self.state(expr.value, depth)
        if isinstance(expr, Sequence):
            return _either([self.state(e, depth) for e in expr.elements])
        if isinstance(expr, Comprehension):
            return self.state(expr.element, depth)
        return None

    def _is_first(self, call: Call, position: int) -> bool:
        given = call.argument(position, "dim")
        return given is None or self.script.constant(given) == 0

    def _is_view(self, index: Expr) -> bool:
        """A key, a number or a slice, without gaps; a mask or a list of indices copies."""
        if isinstance(index, Sequence):
            if not all(self._is_view(e) for e in index.elements):
                return False
            whole = [isinstance(e, Slice) and e.lower is None and e.upper is None for e in index.elements]
            first = next((i for i, e in enumerate(index.elements) if isinstance(e, Slice)), len(whole))
            return all(whole[first + 1 :]) and not any(_is_ellipsis(e) for e in index.elements[:-1])
        if isinstance(index, Slice):
            return index.step is None
        if isinstance(index, Constant):
            return True
        return all(isinstance(v, (Const, Number, Text)) for v in each(self.script.value(index)))

    def _bound(self, binding: Binding, depth: int) -> str | None:
        if (
            binding.how == "parameter"
            and isinstance(binding.source, Parameter)
            and binding.context.function is not None
        ):
            return self._parameter(binding.context.function, binding.source, depth)
        if binding.value is None:
            return None
        if binding.how == "assign":
            value: Expr = binding.value
            for step in binding.path:
                if isinstance(value, Sequence) and isinstance(step, int) and step < len(value.elements):
                    value = value.elements[step]
                else:
                    break
            return self.state(value, depth)
        if binding.how == "for":
            return self._iterated(binding.value, depth)
        return None

    def _iterated(self, iterated: Expr, depth: int) -> str | None:
        loaders = list(loading.loaders_behind(self.script, iterated))
        if loaders:
            return _either([of_loader(self.script, loader) for loader in loaders])
        if (
            isinstance(iterated, Call)
            and isinstance(iterated.callee, Name)
            and iterated.callee.id in ("enumerate", "zip", "tqdm", "list")
        ):
            return _either([self.state(a, depth) for a in iterated.args])
        return self.state(iterated, depth)

    def _parameter(self, function: Function, parameter: Parameter, depth: int) -> str | None:
        found: list[str | None] = []
        for site in self.script.inference.callgraph.callers(function):
            argument = site.argument(function, parameter)
            if isinstance(argument, Expr):
                found.append(self.state(argument, depth))
            elif argument is None and parameter.kind == "*":
                position = function.parameters.index(parameter) - site.shift
                found.extend(self.state(a, depth) for a in site.call.args[max(position, 0) :])
        return _either(found)

    def _own_attribute(self, expr: Attribute, depth: int) -> str | None:
        cls = expr.context.cls
        bindings = cls.attributes.get(expr.attr, []) if cls is not None else []
        return _either([self._bound(b, depth) for b in bindings if not (isinstance(b.value, Constant))])

    def _called(self, call: Call, depth: int) -> str | None:
        attr = call.attr
        if isinstance(call.callee, Attribute) and attr == "pin_memory":
            return PINNED
        values = list(each(self.script.value(call.callee)))
        for value in values:
            if isinstance(value, Routine):
                function = value.function
                if function.yields:
                    return _either([self.state(y.value, depth) for y in function.yields if y.value is not None])
                return _either([self.state(r.value, depth) for r in function.returns if r.value is not None])
            if isinstance(value, External):
                if value.name in _BUILDERS:
                    return PINNED if self.script.constant(call.keyword("pin_memory")) is True else PAGEABLE
                if value.name in ("next",) and call.args:
                    return self._iterated(call.args[0], depth)
                if value.name in ("torch.autograd.Variable", "tuple", "list", "iter", "reversed") and call.args:
                    return self.state(call.args[0], depth)
        if isinstance(call.callee, Attribute):
            if attr in _VIEWS or (attr in _PARTS and self._is_first(call, _PARTS[attr])):
                return self.state(call.callee.value, depth)
            if attr in ("next", "__next__"):
                return self._iterated(call.callee.value, depth)
        return None


def _is_ellipsis(expr: Expr) -> bool:
    return isinstance(expr, Constant) and expr.value is ...


def _either(states: list[str | None]) -> str | None:
    if PINNED in states:
        return PINNED
    return PAGEABLE if states and all(s == PAGEABLE for s in states) else None

"""Where a value is made: an expression followed back through names, parameters, attributes and the project's
functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainlint.records import NamedTuple
from trainlint.semantic.bindings import lookup
from trainlint.semantic.contexts import is_self
from trainlint.semantic.facts import (
    Attribute,
    Await,
    Binding,
    Call,
    Conditional,
    Constant,
    Expr,
    Function,
    Name,
    Parameter,
    Sequence,
    Walrus,
)
from trainlint.semantic.values import Routine, each

if TYPE_CHECKING:
    from trainlint.semantic.inference import Inference

_DEEPEST = 16


class Origin(NamedTuple):
    """`expr` is no name that can be followed further. `path`: the way into it (unpacking). `element`: one turn of a
    loop over it gives the value."""

    expr: Expr
    path: tuple[int | None, ...] = ()
    element: bool = False


Origins = list[Origin | None]


def origins(inference: Inference, expr: Expr) -> Origins:
    """All places that the value of an expression may come from; None stands for one that cannot be seen."""
    return _Follower(inference).follow(expr, (), 0)


class _Follower:
    def __init__(self, inference: Inference) -> None:
        self.inference = inference
        self.active: set[tuple[int, tuple[int | None, ...]]] = set()

    def follow(self, expr: Expr, path: tuple[int | None, ...], depth: int) -> Origins:
        key = (id(expr), path)
        if key in self.active:
            return []  # a loop adds nothing
        if depth > _DEEPEST:
            return [None]
        self.active.add(key)
        try:
            return self._follow(expr, path, depth + 1)
        finally:
            self.active.discard(key)

    def _follow(self, expr: Expr, path: tuple[int | None, ...], depth: int) -> Origins:
        if isinstance(expr, Name):
            bindings, bound = lookup(expr, expr.id)
            return self._bindings(bindings, path, depth) if bound and bindings else [Origin(expr, path)]
        if isinstance(expr, Sequence) and path and isinstance(path[0], int) and path[0] < len(expr.elements):
            return self.follow(expr.elements[path[0]], path[1:], depth)
        if isinstance(expr, Conditional):
            return self.follow(expr.body, path, depth) + self.follow(expr.orelse, path, depth)
        if isinstance(expr, (Walrus, Await)):
            return self.follow(expr.value, path, depth)
        if isinstance(expr, Attribute) and is_self(expr.value, expr.context) and expr.context.cls is not None:
            bindings = [b for b in expr.context.cls.attributes.get(expr.attr, []) if b.how != "define"]
            if bindings:
                return self._bindings([b for b in bindings if not _is_placeholder(b)], path, depth)
        if isinstance(expr, Call):
            return self._called(expr, path, depth)
        return [Origin(expr, path)]

    def _bindings(self, bindings: list[Binding], path: tuple[int | None, ...], depth: int) -> Origins:
        found: Origins = []
        for binding in bindings:
            if (
                binding.how == "parameter"
                and isinstance(binding.source, Parameter)
                and binding.context.function is not None
            ):
                found += self._parameter(binding.context.function, binding.source, path, depth)
            elif binding.value is None:
                found.append(None)
            elif binding.how == "assign":
                found += self.follow(binding.value, binding.path + path, depth)
            elif binding.how == "for":
                found.append(Origin(binding.value, binding.path + path, True))
            else:
                found.append(None)
        return found

    def _parameter(self, function: Function, parameter: Parameter, path: tuple[int | None, ...], depth: int) -> Origins:
        found: Origins = []
        sites = self.inference.callgraph.callers(function)
        for site in sites:
            argument = site.argument(function, parameter) or parameter.default
            found += self.follow(argument, path, depth) if isinstance(argument, Expr) else [None]
        if not sites:
            found.append(Origin(parameter.default, path) if parameter.default is not None else None)
        return found

    def _called(self, call: Call, path: tuple[int | None, ...], depth: int) -> Origins:
        """Into a function of the project; anything else is where the value is made."""
        found: Origins = []
        for value in each(self.inference.value(call.callee)):
            if not isinstance(value, Routine) or value.function.yields or value.function.is_async:
                return [Origin(call, path)]
            returned = [r.value for r in value.function.returns if r.value is not None]
            if not returned:
                return [Origin(call, path)]
            for one in returned:
                found += self.follow(one, path, depth)
        return found or [Origin(call, path)]


def _is_placeholder(binding: Binding) -> bool:
    return isinstance(binding.value, Constant) and binding.value.value is None

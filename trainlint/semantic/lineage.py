"""What a value was computed from, across helpers: which forward passes its autograd graph hangs on, and which other parts
take part in it. Follows names to the bindings they can see, parameters to arguments, calls of the project to their returns."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from trainlint.patterns_on_use import Pattern
from trainlint.records import NamedTuple
from trainlint.semantic import autograd
from trainlint.semantic.bindings import lookup
from trainlint.semantic.contexts import is_self
from trainlint.semantic.facts import (
    Attribute,
    Binding,
    Call,
    Comprehension,
    Conditional,
    Expr,
    Function,
    Mapping,
    Name,
    Sequence,
    Starred,
    Subscript,
)
from trainlint.semantic.facts import Compare as Comparison
from trainlint.semantic.facts import Operator as OperatorRecord
from trainlint.semantic.identity import Path
from trainlint.semantic.values import External, Object, each
from trainlint.semantic.work import FORWARD

if TYPE_CHECKING:
    from trainlint.semantic.script import Semantics

_DEEPEST = 40
_CALLED_LOSS = Pattern(r"(?:^|_)loss(?:es)?$", re.I)
_CUTS = frozenset({"detach", "detach_", "item", "numpy", "tolist", "argmax", "size", "requires_grad_"})


class Part(NamedTuple):
    """An expression that takes part in a value, and the calls that lead from the value to it."""

    expr: Expr
    path: Path


class Lineage:
    def __init__(self, semantics: Semantics) -> None:
        self.semantics = semantics
        self.inference = semantics.inference

    def parts(self, expr: Expr, path: Path, through_modules: bool = True) -> list[Part]:
        """All parts of a value, nearest first; stops where the graph is cut. What goes into a module or a loss of torch
        is followed only when `through_modules`."""
        return _Walk(self, through_modules).run(expr, path)

    def forwards(self, expr: Expr, path: Path) -> list[Part]:
        """The forward passes that the graph of a value hangs on."""
        work = self.semantics.work
        return [p for p in self.parts(expr, path) if isinstance(p.expr, Call) and work.kind(p.expr) == FORWARD]

    def cut(self, expr: Expr) -> bool:
        """Whether an expression certainly carries no graph."""
        if isinstance(expr, Call) and expr.attr in _CUTS:
            return True
        if isinstance(expr, Attribute) and expr.attr in ("data", "shape", "device", "dtype"):
            return True
        if isinstance(expr, Call) and self.semantics.autograd.local(expr.context, expr.order) == autograd.OFF:
            return True
        if isinstance(expr, Call):
            for callee in self.inference.callgraph.callees(expr):
                if (
                    self.semantics.autograd.local(callee.function.inner, callee.function.inner.record.order + 1)
                    == autograd.OFF
                ):
                    return True
        return False


class _Walk:
    def __init__(self, lineage: Lineage, through_modules: bool) -> None:
        self.lineage = lineage
        self.inference = lineage.inference
        self.through_modules = through_modules
        self.seen: set[tuple[int, int]] = set()
        self.found: list[Part] = []

    def run(self, expr: Expr, path: Path) -> list[Part]:
        self.visit(expr, path, (), 0)
        return self.found

    def visit(self, expr: Expr, path: Path, way: tuple[int | None, ...], depth: int) -> None:
        key = (id(expr), hash((tuple(id(c) for c in path), way)))
        if depth > _DEEPEST or key in self.seen or len(self.found) > 500:
            return
        self.seen.add(key)
        self.found.append(Part(expr, path))
        if self.lineage.cut(expr):
            return
        if isinstance(expr, Name):
            self.name(expr, path, way, depth)
        elif isinstance(expr, Attribute):
            self.attribute(expr, path, depth)
        elif isinstance(expr, Call):
            self.call(expr, path, way, depth)
        elif isinstance(expr, Sequence):
            if way and isinstance(way[0], int) and 0 <= way[0] < len(expr.elements):
                self.visit(expr.elements[way[0]], path, way[1:], depth + 1)
            else:
                for element in expr.elements:
                    self.visit(element, path, (), depth + 1)
        elif isinstance(expr, (OperatorRecord, Comparison)):
            if isinstance(expr, OperatorRecord):
                for operand in expr.operands:
                    self.visit(operand, path, (), depth + 1)
        elif isinstance(expr, Conditional):
            self.visit(expr.body, path, way, depth + 1)
            self.visit(expr.orelse, path, way, depth + 1)
        elif isinstance(expr, (Subscript, Starred)):
            self.visit(expr.value, path, (), depth + 1)
        elif isinstance(expr, Mapping):
            for value in expr.values:
                self.visit(value, path, (), depth + 1)
        elif isinstance(expr, Comprehension):
            self.visit(expr.element, path, (), depth + 1)

    def name(self, expr: Name, path: Path, way: tuple[int | None, ...], depth: int) -> None:
        given = self.lineage.semantics.steps.identity.argument(expr, path)
        if given is not None:
            self.visit(given[0], given[1], way, depth + 1)
            return
        bindings, _ = lookup(expr, expr.id)
        for binding in bindings:
            if _later(binding, expr):
                continue
            if binding.value is not None and binding.how in ("assign", "augment", "for", "with"):
                self.visit(binding.value, path, (*binding.path, *way) if binding.how == "assign" else (), depth + 1)

    def attribute(self, expr: Attribute, path: Path, depth: int) -> None:
        if is_self(expr.value, expr.context) and expr.context.cls is not None:
            for binding in expr.context.cls.attributes.get(expr.attr, ()):
                function = binding.context.function
                if (
                    binding.value is not None
                    and binding.how in ("assign", "augment")
                    and function is not None
                    and function.name != "__init__"
                ):
                    self.visit(binding.value, (), binding.path, depth + 1)
            return
        self.visit(expr.value, path, (), depth + 1)

    def call(self, expr: Call, path: Path, way: tuple[int | None, ...], depth: int) -> None:
        is_forward = self.lineage.semantics.work.kind(expr) == FORWARD
        if not self.through_modules and (is_forward or self._is_loss(expr)):
            self.loss_of_module(expr, path, way, depth)
            return
        if not is_forward and not self._is_module(expr):
            functions = [c.function for c in self.inference.callgraph.callees(expr)]
            if functions:
                for function in functions:
                    self.returned(function, expr, path, way, depth)
                if self._is_followed(functions):
                    return
        if expr.receiver is not None:
            self.visit(expr.receiver, path, (), depth + 1)
        for argument in [*expr.args, *(k.value for k in expr.keywords)]:
            self.visit(argument, path, (), depth + 1)

    def loss_of_module(self, expr: Call, path: Path, way: tuple[int | None, ...], depth: int) -> None:
        """`_, loss = model(x, y)`, of a model of the project that computes its loss in `forward`: what it calls its loss."""
        for callee in self.inference.callgraph.callees(expr):
            for one in callee.function.returns:
                given, rest = one.value, way
                while isinstance(given, Sequence) and rest and rest[0] is not None and rest[0] < len(given.elements):
                    given, rest = given.elements[rest[0]], rest[1:]
                if isinstance(given, Name) and _CALLED_LOSS.search(given.id):
                    self.visit(given, (*path, expr), rest, depth + 1)

    def _is_loss(self, call: Call) -> bool:
        """A loss of torch: its arguments are not scalars."""
        for value in each(self.inference.value(call.callee)):
            if isinstance(value, Object) and value.role == "loss" and value.cls is None:
                return True
            if isinstance(value, External) and value.name.startswith("torch.nn.functional."):
                return True
        return False

    def _is_module(self, call: Call) -> bool:
        return any(
            isinstance(v, Object) and v.role in ("module", "loss") and v.cls is None
            for v in each(self.inference.value(call.callee))
        )

    def returned(self, function: Function, call: Call, path: Path, way: tuple[int | None, ...], depth: int) -> None:
        for one in function.returns:
            if one.value is not None:
                self.visit(one.value, (*path, call), way, depth + 1)

    def _is_followed(self, functions: list[Function]) -> bool:
        return all(f.returns and not f.yields and f.name not in ("__init__", "__post_init__") for f in functions)


def _later(binding: Binding, expr: Name) -> bool:
    """What an earlier turn of a loop left does not hang on the graph of this one."""
    return binding.order > expr.order

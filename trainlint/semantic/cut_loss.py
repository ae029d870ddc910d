"""Where a loss loses its graph: rebuilt from numbers, detached, or given `requires_grad` by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.records import NamedTuple
from trainlint.semantic.bindings import lookup
from trainlint.semantic.facts import (
    Attribute,
    Call,
    Comprehension,
    Conditional,
    Evaluate,
    Expr,
    Function,
    Name,
    Sequence,
    Subscript,
)
from trainlint.semantic.facts import Operator as OperatorRecord
from trainlint.semantic.identity import Path
from trainlint.semantic.step import Event
from trainlint.semantic.values import External, Object, Tensor, each
from trainlint.semantic.work import FORWARD

if TYPE_CHECKING:
    from trainlint.semantic.script import Semantics

_REBUILDS = frozenset({"torch.tensor", "torch.as_tensor", "torch.FloatTensor", "torch.Tensor", "torch.scalar_tensor"})
_SAME = frozenset(
    "requires_grad_ to cuda cpu float double mean sum squeeze unsqueeze view reshape clone half bfloat16 contiguous".split()
)
_CUTTING = frozenset({"detach", "item", "numpy", "tolist"})
_DEEPEST = 20


class Carried(NamedTuple):
    """`graph`: whether a value hangs on the graph of a model: True, False, or None when not known. `cuts`: the expressions
    that took the graph away."""

    graph: bool | None
    cuts: tuple[Expr, ...] = ()


class CutLoss:
    def __init__(self, semantics: Semantics) -> None:
        self.semantics = semantics
        self.inference = semantics.inference

    def of(self, event: Event) -> tuple[Expr, ...]:
        """The expressions that cut what a backward runs on off its graph; empty where some of it may still hang on it."""
        if event.owner is None:
            return ()
        found = self._carried(event.owner, event.path, (), 0)
        return found.cuts if found.graph is False else ()

    def forced(self, event: Event) -> list[Expr]:
        """`loss` of `loss.requires_grad = True` and of `loss.requires_grad_()`, where a backward runs on that name,
        directly or by arithmetic."""
        if event.owner is None or not self._computed(event.owner, event.path):
            return []
        found: list[Expr] = []
        for part in self.semantics.lineage.parts(event.owner, event.path, through_modules=False):
            if not isinstance(part.expr, Name):
                continue
            for target, order in self._demands(part.expr):
                if order < part.expr.order and self._is_result(part.expr, order):
                    found.append(target)
        return found

    def _demands(self, name: Name) -> Iterator[tuple[Expr, int]]:
        """Where gradients are asked for on a name, in its function: (what is to be shown, the place)."""
        module, function = name.context.module, name.context.function
        for binding in module.stores.get(f"{name.id}.requires_grad", ()):
            if binding.context.function is function and binding.value is not None:
                if self.inference.constant(binding.value) is True:
                    yield binding.source, binding.order
        for call in module.calls_by_attr.get("requires_grad_", ()):
            alone = isinstance(call.statement, Evaluate) and call.statement.value is call
            on_name = isinstance(call.receiver, Name) and call.receiver.id == name.id
            if alone and on_name and call.context.function is function and not _is_handed_on(name, call):
                given = call.argument(0, "requires_grad")
                if given is None or self.inference.constant(given) is True:
                    yield call, call.order

    def _is_result(self, name: Name, before: int) -> bool:
        """The name is the result of something, not an input that the graph starts from."""
        sources = [b for b in lookup(name, name.id)[0] if b.order < before]
        return bool(sources) and all(
            b.how in ("assign", "augment") and b.value is not None and self._computed(b.value, ()) for b in sources
        )

    # ---------------------------------------------------------------------------------------------------- walking

    def _carried(self, expr: Expr, path: Path, way: tuple[int | None, ...], depth: int) -> Carried:
        if depth > _DEEPEST:
            return Carried(None)
        if isinstance(expr, Name):
            return self._name(expr, path, way, depth)
        if isinstance(expr, Call):
            return self._call(expr, path, way, depth)
        if isinstance(expr, Attribute):
            if expr.attr == "data":
                return self._cut(expr, expr.value, path)
            return Carried(None)
        if isinstance(expr, OperatorRecord):
            return _any([self._carried(o, path, (), depth + 1) for o in expr.operands if not self._is_number(o)])
        if isinstance(expr, Conditional):
            return _any(
                [self._carried(expr.body, path, way, depth + 1), self._carried(expr.orelse, path, way, depth + 1)]
            )
        return Carried(None)

    def _is_number(self, expr: Expr) -> bool:
        value = self.inference.value(expr)
        return not any(isinstance(v, Tensor) for v in each(value)) and self.inference.constant(expr) is not ...

    def _name(self, expr: Name, path: Path, way: tuple[int | None, ...], depth: int) -> Carried:
        given = self.semantics.steps.identity.argument(expr, path)
        if given is not None:
            return self._carried(given[0], given[1], way, depth + 1)
        bindings = [b for b in lookup(expr, expr.id)[0] if b.order < expr.order]
        if not bindings or any(b.how not in ("assign", "augment") or b.value is None for b in bindings):
            return Carried(None)
        return _any([self._carried(b.value, path, (*b.path, *way), depth + 1) for b in bindings if b.value is not None])

    def _call(self, call: Call, path: Path, way: tuple[int | None, ...], depth: int) -> Carried:
        name = self.inference.name_of(call.callee)
        if name in _REBUILDS and call.args:
            return self._cut(call, call.args[0], path)
        receiver = call.receiver
        if receiver is not None and call.attr in _CUTTING:
            return self._cut(call, receiver, path)
        if receiver is not None and call.attr in _SAME:
            return self._carried(receiver, path, (), depth + 1)
        if self.semantics.work.kind(call) == FORWARD or self._is_loss(call):
            return Carried(True)
        if name == "torch.autograd.Variable" and call.args and self._demands_gradients(call):
            return self._cut(call, call.args[0], path)  # a new leaf
        if name in ("torch.mean", "torch.sum", "torch.autograd.Variable") and call.args:
            return self._carried(call.args[0], path, (), depth + 1)
        functions = [c.function for c in self.inference.callgraph.callees(call)]
        if functions:
            return _any([self._returned(f, call, path, way, depth) for f in functions])
        return Carried(None)

    def _demands_gradients(self, call: Call) -> bool:
        given = call.argument(1, "requires_grad")
        return given is not None and self.inference.constant(given) is True

    def _returned(self, function: Function, call: Call, path: Path, way: tuple[int | None, ...], depth: int) -> Carried:
        if function.yields or not function.returns:
            return Carried(None)
        results = []
        for one in function.returns:
            if one.value is None:
                return Carried(None)
            value = one.value
            rest = way
            if isinstance(value, Sequence) and way and isinstance(way[0], int) and 0 <= way[0] < len(value.elements):
                value, rest = value.elements[way[0]], way[1:]
            results.append(self._carried(value, (*path, call), rest, depth + 1))
        return _any(results)

    def _cut(self, where: Expr, inner: Expr, path: Path) -> Carried:
        """What is cut must have hung on a model: a constant that becomes a tensor is no loss."""
        return Carried(False, (where,)) if self._computed(inner, path) else Carried(None)

    def _computed(self, expr: Expr, path: Path) -> bool:
        """A value that comes out of a model or loss, whatever was cut on the way."""
        stack: list[tuple[Expr, Path]] = [(expr, path)]
        seen: set[int] = set()
        while stack and len(seen) < 300:
            current, where = stack.pop()
            if id(current) in seen:
                continue
            seen.add(id(current))
            if isinstance(current, Call):
                if self.semantics.work.kind(current) == FORWARD or self._is_loss(current):
                    return True
                for callee in self.inference.callgraph.callees(current):
                    stack.extend((r.value, (*where, current)) for r in callee.function.returns if r.value is not None)
            if isinstance(current, Name):
                given = self.semantics.steps.identity.argument(current, where)
                if given is not None:
                    stack.append(given)
                    continue
                for binding in lookup(current, current.id)[0]:
                    if binding.value is not None and binding.how in ("assign", "augment"):
                        stack.append((binding.value, where))
            else:
                stack.extend((part, where) for part in _operands(current))
        return False

    def _is_loss(self, call: Call) -> bool:
        for value in each(self.inference.value(call.callee)):
            if isinstance(value, Object) and value.role == "loss":
                return True
            if (
                isinstance(value, External)
                and value.name.startswith("torch.nn.functional.")
                and "loss" in value.name + call_suffix(call)
            ):
                return True
        return False


def _is_handed_on(name: Name, after: Call) -> bool:
    """Goes into a call later on, as what gradients are taken at does: `critic(mixed)`."""
    module, function = name.context.module, name.context.function
    calls = function.calls if function is not None else module.calls
    return any(c.order > after.order and any(isinstance(a, Name) and a.id == name.id for a in c.args) for c in calls)


def _operands(expr: Expr) -> list[Expr]:
    """The parts that a value is computed from."""
    if isinstance(expr, Call):
        return [*expr.args, *([expr.receiver] if expr.receiver is not None else [])]
    if isinstance(expr, OperatorRecord):
        return list(expr.operands)
    if isinstance(expr, (Attribute, Subscript)):
        return [expr.value]
    if isinstance(expr, Sequence):
        return list(expr.elements)
    if isinstance(expr, Comprehension):
        return [expr.element, *(g.iter for g in expr.generators)]
    return []


def call_suffix(call: Call) -> str:
    """`cross_entropy` and its like are losses without the word."""
    return (
        "loss"
        if call.attr in ("cross_entropy", "binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div")
        else ""
    )


def _any(parts: list[Carried]) -> Carried:
    """A sum hangs on a graph if any part does; it is cut if all parts that matter are."""
    if any(p.graph is True for p in parts):
        return Carried(True)
    cut = [p for p in parts if p.graph is False]
    if cut and len(cut) == len(parts):
        return Carried(False, tuple(c for p in cut for c in p.cuts))
    return Carried(None)

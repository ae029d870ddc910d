"""Attention that is written out: a product of values with the softmax of a product of queries and keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.semantic import walk
from trainlint.semantic.bindings import lookup
from trainlint.semantic.facts import Attribute, Call, Expr, Name, Operator
from trainlint.semantic.values import External, Object, Routine, each

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_PRODUCTS = frozenset({"torch.matmul", "torch.bmm", "torch.baddbmm"})
_SOFTMAX = frozenset({"torch.softmax", "torch.nn.functional.softmax"})
_TURNS = frozenset({"transpose", "permute", "swapaxes", "swapdims", "t", "movedim"})
_TURNED = frozenset({"mT", "T", "mH", "H"})
# methods and functions that leave scores scores, and weights weights
_KEEPS = frozenset(
    "masked_fill masked_fill_ to type type_as float half bfloat16 contiguous div div_ mul mul_ add add_ sub clamp dropout "
    "where nan_to_num squeeze unsqueeze view reshape".split()
)
_DEEPEST = 12


def written_out(script: Script) -> Iterator[tuple[Expr, Expr]]:
    """(the product with the values, the product of queries and keys)"""
    for expr in walk.of_module(script.module):
        factors = _factors(script, expr)
        if factors is None:
            continue
        inner = _softmax(script, factors[0], 0)
        scores = _scores(script, inner, 0) if inner is not None else None
        if scores is not None and not _has_other_way(expr):
            yield expr, scores


def _has_other_way(expr: Expr) -> bool:
    """The function also calls `scaled_dot_product_attention`: what is written out is for those who cannot."""
    function = expr.context.function
    return function is not None and any(c.attr == "scaled_dot_product_attention" for c in function.calls)


def _factors(script: Script, expr: Expr) -> tuple[Expr, Expr] | None:
    """The two tensors that a matrix product multiplies."""
    if isinstance(expr, Operator) and expr.op == "@" and len(expr.operands) == 2:
        return expr.operands[0], expr.operands[1]
    if not isinstance(expr, Call):
        return None
    if expr.attr not in ("matmul", "bmm", "baddbmm"):
        return None
    if len(expr.args) >= 2 and any(
        isinstance(v, External) and v.name in _PRODUCTS for v in each(script.value(expr.callee))
    ):
        return expr.args[-2], expr.args[-1]
    if len(expr.args) == 1 and expr.receiver is not None and expr.attr in ("matmul", "bmm"):
        return expr.receiver, expr.args[0]
    return None


def _softmax(script: Script, expr: Expr, depth: int) -> Expr | None:
    """What the softmax is taken of that an expression is, where nothing else uses the weights."""
    if depth > _DEEPEST:
        return None
    if isinstance(expr, Name):
        source = _only_binding(expr)
        return _softmax(script, source, depth + 1) if source is not None else None
    if not isinstance(expr, Call):
        return None
    held = list(each(script.value(expr.callee)))
    if any(isinstance(v, External) and v.name in _SOFTMAX for v in held):
        return expr.argument(0, "input")
    if any(isinstance(v, Object) and v.name == "torch.nn.Softmax" for v in held):
        return expr.argument(0)
    if expr.attr == "softmax" and expr.receiver is not None:
        return expr.receiver
    inner = _kept(script, expr)
    return _softmax(script, inner, depth + 1) if inner is not None else None


def _kept(script: Script, call: Call) -> Expr | None:
    """What a dropout, a cast or a mask is applied to."""
    for value in each(script.value(call.callee)):
        if isinstance(value, Object) and value.name.rpartition(".")[2] in ("Dropout", "Identity") and call.args:
            return call.args[0]
        if (
            isinstance(value, External)
            and value.name in ("torch.nn.functional.dropout", "torch.dropout", "torch.masked_fill")
            and call.args
        ):
            return call.args[0]
    if call.attr in _KEEPS and isinstance(call.callee, Attribute):
        return call.receiver
    return None


def _only_binding(expr: Name) -> Expr | None:
    """The value of a name that is used in this one place."""
    bindings = lookup(expr, expr.id)[0]
    if len(bindings) != 1 or bindings[0].how != "assign" or bindings[0].path or bindings[0].value is None:
        return None
    for other in walk.names_read(expr.context.module):
        if other is not expr and other.id == expr.id and other.context.function is expr.context.function:
            if any(b is bindings[0] for b in lookup(other, other.id)[0]):
                return None
    return bindings[0].value


def _scores(script: Script, expr: Expr, depth: int) -> Expr | None:
    """The product of queries and turned keys that scores come from, on every way."""
    if depth > _DEEPEST:
        return None
    factors = _factors(script, expr)
    if factors is not None:
        return expr if _is_turned(script, factors[1]) else None
    if isinstance(expr, Operator) and expr.op in ("*", "/", "+", "-"):
        return next((s for o in expr.operands if (s := _scores(script, o, depth + 1)) is not None), None)
    if isinstance(expr, Name):
        found = [
            _scores(script, b.value, depth + 1)
            for b in lookup(expr, expr.id)[0]
            if b.how == "assign" and not b.path and b.value is not None
        ]
        return found[0] if found and all(f is not None for f in found) else None
    if not isinstance(expr, Call):
        return None
    inner = _kept(script, expr)
    if inner is not None:
        return _scores(script, inner, depth + 1)
    if script.name_of(expr.callee) == "torch.where":
        return next((s for a in expr.args[1:] if (s := _scores(script, a, depth + 1)) is not None), None)
    for value in each(script.value(expr.callee)):
        if isinstance(value, Routine) and len(value.function.returns) == 1:
            returned = value.function.returns[0].value
            if returned is not None and _scores(script, returned, depth + 1) is not None:
                return expr
    return None


def _is_turned(script: Script, expr: Expr, depth: int = 0) -> bool:
    if isinstance(expr, Name) and depth < _DEEPEST:
        bindings = lookup(expr, expr.id)[0]
        values = [b.value for b in bindings if b.how == "assign" and not b.path and b.value is not None]
        return len(values) == 1 and len(bindings) == 1 and _is_turned(script, values[0], depth + 1)
    if isinstance(expr, Attribute):
        return expr.attr in _TURNED
    return isinstance(expr, Call) and expr.attr in _TURNS

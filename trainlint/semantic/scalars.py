"""Which tensors hold one number: a mean, a loss, and what is computed from nothing but such."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainlint.semantic.facts import Call, Expr, Operator
from trainlint.semantic.logits import function_of
from trainlint.semantic.origins import Origin, origins
from trainlint.semantic.values import Const, Number, Tensor, each

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_REDUCE = frozenset({"mean", "sum", "prod", "std", "var", "median", "norm"})
_ELEMENTWISE = frozenset(
    "abs exp log log1p sqrt square neg relu sigmoid tanh clamp clamp_min clamp_max pow detach clone float double half"
    " cpu cuda to squeeze".split()
)
_DEEPEST = 8


def is_scalar(script: Script, expr: Expr, depth: int = 0) -> bool:
    """Whether an expression is, on every path, a tensor without dimensions."""
    if depth > _DEEPEST:
        return False
    places = origins(script.inference, expr)
    return bool(places) and all(o is not None and _one(script, o, depth) for o in places)


def _one(script: Script, origin: Origin, depth: int) -> bool:
    if origin.path or origin.element:
        return False
    expr = origin.expr
    if _is_loss(script, expr):
        return True
    if isinstance(expr, Operator):
        tensors = [e for e in expr.operands if not _is_number(script, e)]
        return bool(tensors) and all(is_scalar(script, e, depth + 1) for e in tensors)
    if not isinstance(expr, Call):
        return False
    name = function_of(script, expr)
    method = expr.receiver is not None and script.tensor(expr.receiver) is not None
    subject = expr.receiver if method else (expr.args[0] if expr.args else None)
    if subject is None:
        return False
    if name in _REDUCE:
        return len(expr.args) == (0 if method else 1) and not expr.keywords and script.tensor(subject) is not None
    return name in _ELEMENTWISE and is_scalar(script, subject, depth + 1)


def _is_loss(script: Script, expr: Expr) -> bool:
    values = list(each(script.value(expr)))
    return bool(values) and all(isinstance(v, Tensor) and v.origin == "loss" for v in values)


def _is_number(script: Script, expr: Expr) -> bool:
    return all(isinstance(v, (Const, Number)) for v in each(script.value(expr)))

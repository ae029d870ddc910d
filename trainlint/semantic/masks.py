"""Boolean masks: tensors that are known to hold truth values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainlint.semantic.facts import Attribute, Call, Compare, Expr, Operator, Sequence, Subscript
from trainlint.semantic.origins import Origin, origins
from trainlint.semantic.values import External, Tensor, each

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_BOOLEAN = frozenset(
    "bool isnan isinf isfinite isposinf isneginf eq ne gt ge lt le logical_and logical_or logical_not logical_xor isin "
    "isclose greater greater_equal less less_equal not_equal signbit isreal".split()
)
_SAME_KIND = frozenset(
    "view reshape flatten unsqueeze squeeze expand expand_as view_as to cuda clone detach contiguous transpose "
    "permute t "
    "any all "
    "repeat triu tril".split()
)
_DEEPEST = 8


def is_mask(script: Script, index: Expr, depth: int = 0) -> bool:
    """Whether an index is a boolean tensor on every way that leads here; in `x[:, mask]`, whether one of the parts
    is."""
    if isinstance(index, Sequence):
        return any(is_mask(script, e, depth + 1) for e in index.elements)
    if depth > _DEEPEST or not any(isinstance(v, Tensor) for v in each(script.value(index))):
        return False
    found = origins(script.inference, index)
    return bool(found) and all(o is not None and _makes_mask(script, o, depth + 1) for o in found)


def _makes_mask(script: Script, origin: Origin, depth: int) -> bool:
    expr = origin.expr
    if origin.path or depth > _DEEPEST:
        return False
    if isinstance(expr, Compare):
        return not any(op in ("is", "is not", "in", "not in") for op in expr.ops)
    if isinstance(expr, Operator):
        return expr.op in ("~", "&", "|", "^") and any(is_mask(script, o, depth) for o in expr.operands)
    if isinstance(expr, Subscript):
        return is_mask(script, expr.value, depth)
    if not isinstance(expr, Call):
        return False
    if expr.attr in _BOOLEAN:
        return True
    dtype = expr.keyword("dtype")
    if dtype is not None and any(isinstance(v, External) and v.name == "torch.bool" for v in each(script.value(dtype))):
        return True
    if expr.attr in _SAME_KIND and isinstance(expr.callee, Attribute):
        return is_mask(script, expr.callee.value, depth)
    return False

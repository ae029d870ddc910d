"""What an expression comes to when nobody sets an option or an environment variable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainlint.semantic.bindings import lookup
from trainlint.semantic.facts import Attribute, Call, Compare, Expr, Name, Operator
from trainlint.semantic.values import External

if TYPE_CHECKING:
    from trainlint.semantic.inference import Inference

_DEEPEST = 8


def usual(inference: Inference, expr: Expr | None, depth: int = 0) -> object:
    """The Python value, `...` where it cannot be told: `str(os.getenv("PIN", True)).lower() == "true"` is True."""
    if expr is None or depth > _DEEPEST:
        return ...
    if isinstance(expr, Operator) and expr.op in ("not", "and", "or"):
        return _boolean(inference, expr, depth)
    if isinstance(expr, Compare) and expr.ops in (("==",), ("!=",)):
        left, right = (usual(inference, o, depth + 1) for o in expr.operands)
        return ... if left is ... or right is ... else (left == right) == (expr.ops[0] == "==")
    if isinstance(expr, Call):
        return _called(inference, expr, depth)
    found = inference.constant(expr)
    if found is ... and isinstance(expr, Name):
        bindings, _ = lookup(expr, expr.id)
        if len(bindings) == 1 and bindings[0].how == "assign" and not bindings[0].path:
            return usual(inference, bindings[0].value, depth + 1)
        if len(bindings) == 1 and bindings[0].how == "import":
            return _imported(inference, expr, bindings[0].source, depth)
    return found


def _boolean(inference: Inference, expr: Operator, depth: int) -> object:
    found = [usual(inference, o, depth + 1) for o in expr.operands]
    if expr.op == "not":
        return ... if found[0] is ... else not found[0]
    deciding = expr.op == "or"
    if any(f is not ... and bool(f) == deciding for f in found):
        return deciding
    return ... if any(f is ... for f in found) else not deciding


def _called(inference: Inference, call: Call, depth: int) -> object:
    names = inference.name_of(call.callee)
    if names in ("os.getenv", "os.environ.get"):
        return usual(inference, call.argument(1, "default"), depth + 1)
    if names in ("str", "int", "bool") and len(call.args) == 1:
        inner = usual(inference, call.args[0], depth + 1)
        if isinstance(inner, (bool, int, str)):
            try:
                return {"str": str, "int": int, "bool": bool}[names](inner)
            except ValueError:
                return ...
        return ...
    if isinstance(call.callee, Attribute) and call.callee.attr in ("lower", "upper", "strip"):
        inner = usual(inference, call.callee.value, depth + 1)
        return getattr(inner, call.callee.attr)() if isinstance(inner, str) else ...
    return inference.constant(call)


def _imported(inference: Inference, expr: Name, source: str, depth: int) -> object:
    target = inference.project.target(expr.context.module.path, source)
    if not isinstance(target, tuple) or isinstance(target, External):
        return ...
    module, name = target
    bindings = module.names.get(name, [])
    if len(bindings) == 1 and bindings[0].how == "assign" and not bindings[0].path:
        return usual(inference, bindings[0].value, depth + 1)
    return ...

"""Which function made a value: a softmax, a sigmoid, an exponential, through names and modules of the project."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainlint.semantic.facts import Call, Constant, Expr, Operator
from trainlint.semantic.origins import origins
from trainlint.semantic.values import Array, External, Method, Object, Tensor, Value, each

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_PLACES = ("torch.", "torch.nn.functional.", "torch.special.", "torch.Tensor.")
_LAYERS = {"torch.nn.Softmax": "softmax", "torch.nn.Sigmoid": "sigmoid", "torch.nn.Softmax2d": "softmax"}
_SAME = frozenset(
    "to float double contiguous squeeze unsqueeze view reshape flatten cpu cuda transpose permute".split()
)
_OF_TENSORS = frozenset({"exp", "sum", "softmax", "sigmoid", "clamp"})
_DEEPEST = 6


def made_by(script: Script, expr: Expr, wanted: frozenset[str], depth: int = 0) -> str | None:
    """The one function among `wanted` ("softmax", "sigmoid", "exp", "sum", ...) that made a value on every path."""
    if depth > _DEEPEST:
        return None
    found: set[str | None] = set()
    for origin in origins(script.inference, expr):
        if origin is None or origin.path or origin.element or not isinstance(origin.expr, Call):
            return None
        found.add(_of_call(script, origin.expr, wanted, depth))
    return found.pop() if len(found) == 1 else None


def _of_call(script: Script, call: Call, wanted: frozenset[str], depth: int) -> str | None:
    name = function_of(script, call)
    if name in wanted:
        return name
    if name in _SAME and call.receiver is not None:
        return made_by(script, call.receiver, wanted, depth + 1)
    kinds = {_of_module(script, v, wanted, depth) for v in each(script.value(call.callee))}
    return kinds.pop() if len(kinds) == 1 else None


def _of_module(script: Script, value: Value, wanted: frozenset[str], depth: int) -> str | None:
    """What the last layer of a module is."""
    if not isinstance(value, Object) or value.role not in ("module", "loss") or depth > _DEEPEST:
        return None
    if value.cls is None:
        layer = _LAYERS.get(value.name)
        if layer is not None:
            return layer if layer in wanted else None
        last = value.inner[-1] if value.inner else None
        return _of_module(script, last, wanted, depth + 1) if last is not None else None
    forward = script.inference.method(value.cls, "forward")
    if forward is None or not forward.returns:
        return None
    found = {made_by(script, r.value, wanted, depth + 1) if r.value is not None else None for r in forward.returns}
    return found.pop() if len(found) == 1 else None


def function_of(script: Script, call: Call) -> str | None:
    """The bare name of a torch function or tensor method: "softmax" of `F.softmax(x, 1)` and of `x.softmax(1)`."""
    for value in each(script.value(call.callee)):
        if isinstance(value, External):
            for place in _PLACES:
                if value.name.startswith(place) and "." not in value.name[len(place) :]:
                    return value.name[len(place) :]
        if isinstance(value, Method) and isinstance(value.owner, Tensor):
            return value.name
    receiver = call.receiver
    if receiver is not None and call.attr in ("softmax", "sigmoid", "logsumexp", "log_softmax", "clamp", "exp"):
        if not any(isinstance(v, (Array, External, Object)) for v in each(script.value(receiver))):
            return call.attr  # only tensors have it
    if isinstance(receiver, Call) and call.attr in ("sum", "log") and function_of(script, receiver) in _OF_TENSORS:
        return call.attr
    return None


def operand(script: Script, call: Call) -> Expr | None:
    """What an elementwise function works on: its first argument, or what the method is called on."""
    if any(isinstance(v, External) for v in each(script.value(call.callee))):
        return call.argument(0, "input")
    return call.receiver


def without_epsilon(script: Script, expr: Expr) -> Expr:
    """`p` of `p + 1e-8` and of `p.clamp(min=1e-8)`."""
    while True:
        if isinstance(expr, Operator) and expr.op == "+" and len(expr.operands) == 2:
            left, right = expr.operands
            if _is_number(script, right):
                expr = left
                continue
            if _is_number(script, left):
                expr = right
                continue
        if isinstance(expr, Call) and function_of(script, expr) in ("clamp", "clip", "clamp_min"):
            inner = operand(script, expr)
            if inner is not None:
                expr = inner
                continue
        return expr


def _is_number(script: Script, expr: Expr) -> bool:
    if isinstance(expr, Constant):
        return isinstance(expr.value, (int, float))
    value = script.constant(expr)
    return isinstance(value, float) and value < 1e-2

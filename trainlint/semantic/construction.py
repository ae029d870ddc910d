"""Tensors that a script makes itself, in host memory: `torch.zeros(n)` without `device=`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainlint.semantic import external, known
from trainlint.semantic.facts import Call, Constant, Expr, Operator
from trainlint.semantic.origins import Origin, origins
from trainlint.semantic.values import Array, Const, Number, Object, each

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_NOT_BUILT = frozenset({"torch.from_numpy", "torch.as_tensor", "torch.asarray", "torch.frombuffer"})
_OF_VALUES = frozenset({"torch.tensor", "torch.scalar_tensor"})
# legacy constructors: typed ones are always on the host, whatever the default device
_TYPED = frozenset("torch." + n + "Tensor" for n in "Float Long Double Int Byte Bool Half Short Char BFloat16".split())
_BUILDERS = (known.FACTORIES | _TYPED) - _NOT_BUILT
# methods that leave a tensor where it is
_ON_THE_SPOT = frozenset(
    "float long half double bool int short byte bfloat16 view reshape unsqueeze squeeze repeat expand triu tril "
    "transpose t "
    "permute contiguous requires_grad_ clone detach flatten mul add sub div neg fill_ zero_ random_ uniform_ normal_ "
    "bernoulli_ bernoulli mul_ add_ sub_ div_ clamp clamp_ exp log sqrt pow scatter_ scatter index_fill_ masked_fill "
    "masked_fill_ sum mean cumsum repeat_interleave expand_as view_as type to log_ "
    "exponential_ eq ne gt ge lt le neg_".split()
)
_DEEPEST = 12


def on_host(script: Script, expr: Expr) -> Call | None:
    """The call that builds a tensor in host memory, where every way that leads to `expr` starts at one."""
    return _built(script, expr, 0)


def _built(script: Script, expr: Expr, depth: int) -> Call | None:
    found: list[Call] = []
    for origin in origins(script.inference, expr):
        built = _from(script, origin, depth) if origin is not None and depth < _DEEPEST else None
        if built is None:
            return None
        found.append(built)
    return found[0] if found else None


def _from(script: Script, origin: Origin, depth: int) -> Call | None:
    expr = origin.expr
    if origin.path or origin.element:
        return None
    if isinstance(expr, Operator) and len(expr.operands) == 2:
        return _computed(script, expr, depth)
    if isinstance(expr, Operator) and len(expr.operands) == 1:
        return _built(script, expr.operands[0], depth + 1)
    if not isinstance(expr, Call):
        return None
    if _builds(script, expr):
        return expr
    if script.name_of(expr.callee) in ("torch.autograd.Variable", "torch.autograd.variable.Variable") and expr.args:
        return _built(script, expr.args[0], depth + 1)
    if expr.attr in _ON_THE_SPOT and expr.receiver is not None:
        if (
            expr.attr in ("to", "type", "expand_as", "view_as")
            and external.device_of(script.inference, expr.argument(0, "device")) == "device"
        ):
            return None
        return _built(script, expr.receiver, depth + 1)
    return None


def _computed(script: Script, expr: Operator, depth: int) -> Call | None:
    """`torch.ones(n) * -1`: the tensor among numbers."""
    built: Call | None = None
    for operand in expr.operands:
        if isinstance(operand, Constant) or all(isinstance(v, (Number, Const)) for v in each(script.value(operand))):
            continue
        found = _built(script, operand, depth + 1)
        if found is None:
            return None
        built = built or found
    return built


def _builds(script: Script, call: Call) -> bool:
    name = script.name_of(call.callee)
    if name not in _BUILDERS or any(k.name is None for k in call.keywords):
        return False
    device = call.keyword("device")
    if device is not None and external.device_of(script.inference, device) != "host":
        return False
    if call.keyword("pin_memory") is not None or call.keyword("out") is not None:
        return False
    if name not in _TYPED and (_default_device_is_set(script) or _under_device(script, call)):
        return False
    return not any(isinstance(v, Array) for a in call.args[:1] for v in each(script.value(a)))


def copies_values(script: Script, call: Call) -> bool:
    """Whether the tensor is made of Python's values, so that they must be copied wherever it is built."""
    name = script.name_of(call.callee) or ""
    return name in _OF_VALUES


def _default_device_is_set(script: Script) -> bool:
    """`torch.set_default_device("cuda")` anywhere in the program: then a plain `torch.zeros` is built there."""
    return any(
        m.calls_by_attr.get("set_default_device") or m.calls_by_attr.get("set_default_tensor_type")
        for m in script.project.family(script.module.path)
    )


def _under_device(script: Script, call: Call) -> bool:
    """Inside `with torch.device("cuda"):`."""
    for frame in call.context.frames():
        if frame.kind == "with":
            for item in frame.record.items:
                if any(isinstance(v, Object) and v.role == "device" for v in each(script.value(item.value))):
                    return True
    return False

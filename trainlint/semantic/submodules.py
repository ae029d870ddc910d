"""Whether a module's forward uses all that it holds, on every path."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainlint.semantic import walk
from trainlint.semantic.contexts import is_self
from trainlint.semantic.facts import (
    Attribute,
    Class,
    Context,
    For,
    Function,
    If,
    Jump,
    Match,
    Statement,
    Subscript,
    Try,
)
from trainlint.semantic.values import Items, Object, Tensor, Value, each

if TYPE_CHECKING:
    from trainlint.semantic.inference import Inference

_DEEPEST = 8
# layers of torch that may leave parameters without gradient, or choose among them
_CHOOSE = frozenset({"torch.nn.ModuleDict", "torch.nn.ParameterDict", "torch.nn.AdaptiveLogSoftmaxWithLoss"})


def uses_everything(inference: Inference, value: Value, depth: int = 0) -> bool:
    """True only where every submodule and parameter is known and surely takes part in each forward."""
    if not isinstance(value, Object) or value.role not in ("module", "loss") or depth > _DEEPEST:
        return False
    if value.cls is not None:
        return _class_uses_everything(inference, value.cls, depth)
    if value.name in _CHOOSE or not value.name.startswith("torch.nn."):
        return False
    if value.inner:
        return all(uses_everything(inference, one, depth + 1) for inner in value.inner for one in each(inner))
    return value.name not in ("torch.nn.Module", "torch.nn.Sequential", "torch.nn.ModuleList")


def _class_uses_everything(inference: Inference, cls: Class, depth: int) -> bool:
    forward = inference.method(cls, "forward")
    if forward is None or any(isinstance(b, Class) and b is not cls for b in inference.bases(cls)):
        return False
    used = _read_always(inference, cls, forward, set())
    held = {name: inference.attribute(Object("module", cls.qualname, cls), name) for name in cls.attributes}
    for name, value in held.items():
        for one in each(value):
            if isinstance(one, Tensor) and one.origin == "parameter":
                if name not in used:
                    return False
            elif isinstance(one, Object) and one.role == "module":
                if name not in used or not uses_everything(inference, one, depth + 1):
                    return False
                if one.name == "torch.nn.ModuleList" and not _runs_each(cls, name):
                    return False
            elif isinstance(one, Items) and any(
                isinstance(v, Object) and v.role == "module" for v in one.elements or (one.element,)
            ):
                return False
    modules = [v for v in held.values() if isinstance(v, Object) and v.role == "module"]
    return bool(modules) and not _registers(cls)


def _registers(cls: Class) -> bool:
    """Submodules or parameters that come by other ways than an assignment."""
    calls = [c for m in cls.methods.values() for c in m.calls]
    return any(
        c.attr in ("add_module", "register_module", "register_parameter", "setattr", "checkpoint") for c in calls
    )


def _read_always(inference: Inference, cls: Class, function: Function, seen: set[int]) -> set[str]:
    """Attributes of `self` that each call of a method reads, in methods that it surely calls too."""
    seen.add(id(function))
    found: set[str] = set()
    for name, accesses in function.module.attributes.items():
        for access in accesses:
            if (
                access.context.function is function
                and is_self(access.value, access.context)
                and _is_sure(access, function)
            ):
                found.add(name)
    for call in function.calls:
        callee = call.callee
        if isinstance(callee, Attribute) and is_self(callee.value, call.context) and _is_sure(call, function):
            method = inference.method(cls, callee.attr)
            if method is not None and id(method) not in seen:
                found |= _read_always(inference, cls, method, seen)
    return found


def _is_sure(record: object, function: Function) -> bool:
    """No condition, exception or skipped turn stands between the method's start and the place."""
    context: Context = record.context  # type: ignore[attr-defined]
    for frame in context.local_frames():
        if frame is function.inner:
            return True
        if frame.kind in ("branch", "except", "case", "try", "function"):
            return False
        if frame.kind == "with" and any(
            getattr(i.value, "attr", "") in ("no_grad", "inference_mode") for i in frame.record.items
        ):
            return False
    return True


def _runs_each(cls: Class, name: str) -> bool:
    """Whether some loop goes over all modules of a list and nothing in it can leave one out."""
    for loop in cls.module.loops:
        if not isinstance(loop, For) or loop.context.cls is not cls:
            continue
        drawn = [e for e in walk.inside(loop.iter) if isinstance(e, Attribute) and e.attr == name]
        if drawn and not any(isinstance(e, Subscript) for e in walk.inside(loop.iter)):
            frame = loop.body[0].context
            inside = [s for s in cls.module.statements if s.context.within(frame)]
            return not any(isinstance(s, (If, Match, Try, Jump)) and not _is_pass(s) for s in inside)
    for comprehension in cls.module.comprehensions:
        if comprehension.context.cls is cls and len(comprehension.generators) == 1:
            clause = comprehension.generators[0]
            if isinstance(clause.iter, Attribute) and clause.iter.attr == name:
                return not clause.conditions
    return False


def _is_pass(statement: Statement) -> bool:
    return isinstance(statement, Jump) and statement.kind == "pass"

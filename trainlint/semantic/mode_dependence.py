"""What a module is made of: whether any layer in it behaves differently in training and in evaluation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainlint.patterns_on_use import Pattern
from trainlint.semantic.contexts import is_self
from trainlint.semantic.facts import Attribute, Call, Class, Expr, Function, Name
from trainlint.semantic.values import External, Items, Object, Table, Unknown, Value, constant, each

if TYPE_CHECKING:
    from trainlint.semantic.inference import Inference

_DROPOUT = Pattern(r"^(?:Alpha|FeatureAlpha)?Dropout(?:[123]d)?$|^RReLU$")
_NORM = Pattern(r"^(?:Lazy)?BatchNorm[123]d$|^SyncBatchNorm$")
_DEEPEST = 8


class Layers:
    def __init__(self, inference: Inference) -> None:
        self.inference = inference

    def depends_on_mode(self, value: Value, depth: int = 0) -> bool | None:
        """Whether a module has BatchNorm, Dropout or the like; None when not all of it can be seen."""
        answers = [self._one(v, depth) for v in each(value)]
        return _merge(answers) if answers else None

    def feeds_others(self, value: Value, parts: tuple[str, ...]) -> bool:
        """Whether in the `forward` of a module one of these parts computes what another part then uses: a trunk, no head."""
        for one in each(value):
            if not isinstance(one, Object):
                continue
            if one.cls is None and len(set(parts)) > 1:
                return True  # not to be seen: several parts are hardly all heads
            if one.cls is None:
                continue
            forward = self.inference.method(one.cls, "forward")
            if forward is None:
                continue
            for call in forward.calls:
                if not (
                    isinstance(call.callee, Attribute)
                    and call.callee.attr in parts
                    and is_self(call.callee.value, call.context)
                ):
                    continue
                names = {b.name for bs in forward.locals.values() for b in bs if b.value is call}
                for other in forward.calls:
                    if other is call or not (
                        isinstance(other.callee, Attribute) and is_self(other.callee.value, other.context)
                    ):
                        continue
                    if any(a is call or (isinstance(a, Name) and a.id in names) for a in other.args):
                        return True
        return False

    def _one(self, value: Value, depth: int) -> bool | None:
        if depth > _DEEPEST:
            return None
        if isinstance(value, Items):
            parts = value.elements if value.elements is not None else (value.element,)
            return _merge([self.depends_on_mode(p, depth + 1) for p in parts])
        if isinstance(value, Table):
            return _merge([self.depends_on_mode(v, depth + 1) for _, v in value.items] or [None])
        if not isinstance(value, Object):
            return None
        if value.cls is not None:
            return self._class(value.cls, depth)
        return self._outside(value, depth)

    def _outside(self, value: Object, depth: int) -> bool | None:
        name = value.name
        last = name.rpartition(".")[2]
        if name.startswith("torchvision.models."):
            return True
        if value.inner:
            return _merge([self.depends_on_mode(v, depth + 1) for v in value.inner])
        if not name.startswith("torch.nn."):
            return None
        call = value.call
        if _DROPOUT.match(last) or _NORM.match(last):
            rate = (
                constant(self.inference.value(call.args[0]))
                if call is not None and call.args and _DROPOUT.match(last)
                else ...
            )
            return rate not in (0, 0.0)
        if last.startswith("InstanceNorm"):
            return call is not None and self.inference.constant(call.keyword("track_running_stats")) is True
        if last.startswith("Transformer"):
            return call is None or self.inference.constant(call.argument(3, "dropout")) not in (0, 0.0)
        if last in ("LSTM", "GRU", "RNN", "MultiheadAttention"):
            return call is not None and self._drops(call, last)
        if last in ("Module", "Sequential", "ModuleList", "ModuleDict"):
            return False if last != "Module" and call is not None and not call.args else None
        return False

    def _drops(self, call: Call, last: str) -> bool:
        rate = call.argument(2, "dropout") if last == "MultiheadAttention" else call.keyword("dropout")
        if rate is None or self.inference.constant(rate) in (0, 0.0):
            return False
        if last == "MultiheadAttention":
            return True
        layers = call.argument(2, "num_layers")
        return layers is not None and self.inference.constant(layers) != 1  # between layers only

    def _class(self, cls: Class, depth: int) -> bool | None:
        memo, key = cls.module.memo, ("depends on mode", id(cls))
        if key in memo:
            return memo[key]  # type: ignore[no-any-return]
        memo[key] = False  # a module that holds itself adds nothing
        answer = memo[key] = self._in_class(cls, depth)
        return answer

    def _in_class(self, cls: Class, depth: int) -> bool | None:
        answers: list[bool | None] = []
        for base in self.inference.bases(cls):
            if isinstance(base, Class):
                for method in base.methods.values():
                    answers.extend(self._in_function(method, depth))
            elif not base.startswith(("torch.nn.", "torch.Module", "abc.", "typing.", "object")) and "." in base:
                answers.append(None if "LightningModule" not in base else False)
        return _merge(answers)

    def _in_function(self, function: Function, depth: int, entered: int = 0) -> list[bool | None]:
        answers: list[bool | None] = []
        for access in function.module.attributes.get("training", ()):
            if access.context.function is function and is_self(access.value, access.context):
                answers.append(True)
        for call in function.calls:
            answers.append(self._call(call, function, depth))
            if entered < 3 and (function.name == "__init__" or entered):
                # `self.layers = make_layers(...)`, `block(...)`: functions that build
                for callee in self.inference.callgraph.callees(call):
                    inner = callee.function
                    if inner.cls is None and inner is not function:
                        answers.extend(self._in_function(inner, depth, entered + 1))
        return answers

    def _call(self, call: Call, function: Function, depth: int) -> bool | None:
        """What one call in a method adds: a layer that it builds, or something that cannot be seen."""
        for value in each(self.inference.value(call.callee)):
            if isinstance(value, External):
                last = value.name.rpartition(".")[2]
                if value.name.startswith("torch.nn.functional.") and "dropout" in last:
                    given = call.keyword("training") or call.argument(2, "training")
                    return given is not None and self.inference.constant(given) is ...
                if value.name.startswith("torchvision.models."):
                    return True
        for value in each(self.inference.value(call)):
            if isinstance(value, Object) and value.role in ("module", "pretrained") and value.call is call:
                return self._one(value, depth + 1) if value.role == "module" else None
        if function.name != "__init__" and call.receiver is not None and is_self(call.receiver, call.context):
            return self._held(call.callee, depth)
        return False

    def _held(self, callee: Expr, depth: int) -> bool | None:
        """`self.backbone(x)`, where the backbone came in from outside."""
        value = self.inference.value(callee)
        if isinstance(value, Unknown):
            return None
        if any(
            isinstance(v, Object) and v.role == "module" and v.cls is None and v.call is None and not v.inner
            for v in each(value)
        ):
            return None
        if any(isinstance(v, Object) and v.role == "module" for v in each(value)):
            return self.depends_on_mode(value, depth + 1)
        return False


def _merge(answers: list[bool | None]) -> bool | None:
    if True in answers:
        return True
    return None if None in answers else False

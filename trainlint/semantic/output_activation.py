"""The last thing that was done to a value: softmax, log-softmax, sigmoid, or a plain linear layer. None when paths differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainlint.semantic.bindings import lookup
from trainlint.semantic.contexts import dotted_name
from trainlint.semantic.facts import (
    Assign,
    Attribute,
    Call,
    Conditional,
    Constant,
    Expr,
    Function,
    Name,
    Sequence,
    Slice,
    Subscript,
)
from trainlint.semantic.identity import Path
from trainlint.semantic.values import External, Method, Object, Routine, Tensor, Value, each

if TYPE_CHECKING:
    from trainlint.semantic.script import Semantics

SOFTMAX, LOG_SOFTMAX, SIGMOID, LINEAR = "softmax", "log_softmax", "sigmoid", "linear"

Way = tuple[int | None, ...]
_FUNCTIONS = {"softmax": SOFTMAX, "log_softmax": LOG_SOFTMAX, "logsigmoid": "logsigmoid", "sigmoid": SIGMOID}
_LAYERS = {
    "Softmax": SOFTMAX,
    "Softmax2d": SOFTMAX,
    "LogSoftmax": LOG_SOFTMAX,
    "Sigmoid": SIGMOID,
    "Linear": LINEAR,
    "LazyLinear": LINEAR,
    "Bilinear": LINEAR,
    "Conv1d": LINEAR,
    "Conv2d": LINEAR,
    "Conv3d": LINEAR,
    "ConvTranspose2d": LINEAR,
}
_SAME_VALUES = frozenset(
    "squeeze unsqueeze view reshape flatten transpose permute contiguous float double to cuda cpu clone t movedim swapaxes "
    "expand expand_as view_as reshape_as type type_as half bfloat16".split()
)
_SAME_LAYERS = frozenset("Flatten Unflatten Identity".split())
# what the last layers of ready-made models are called
_HEADS = ("fc", "classifier", "head", "heads", "_fc", "last_linear")
_DEEPEST = 24


class OutputActivation:
    def __init__(self, semantics: Semantics) -> None:
        self.semantics = semantics
        self.inference = semantics.inference

    def of(self, expr: Expr, path: Path = (), way: Way = (), depth: int = 0) -> str | None:
        if depth > _DEEPEST:
            return None
        if isinstance(expr, Name):
            return self._name(expr, path, way, depth)
        if isinstance(expr, Call):
            return self._call(expr, path, way, depth)
        if isinstance(expr, Subscript):
            index = expr.index
            if isinstance(index, Constant) and isinstance(index.value, int):
                inner = self.of(expr.value, path, (index.value, *way), depth + 1)
                return inner
            if isinstance(index, (Slice, Sequence)):
                return self.of(expr.value, path, way, depth + 1)
            return None
        if isinstance(expr, Sequence) and way and isinstance(way[0], int) and 0 <= way[0] < len(expr.elements):
            return self.of(expr.elements[way[0]], path, way[1:], depth + 1)
        if isinstance(expr, Conditional):
            return _agree([self.of(expr.body, path, way, depth + 1), self.of(expr.orelse, path, way, depth + 1)])
        if isinstance(expr, Attribute):
            return None
        return None

    def _name(self, expr: Name, path: Path, way: Way, depth: int) -> str | None:
        given = self.semantics.steps.identity.argument(expr, path)
        if given is not None:
            return self.of(given[0], given[1], way, depth + 1)
        bindings = [b for b in lookup(expr, expr.id)[0] if b.order < expr.order]
        if not bindings:
            return None
        answers = []
        for binding in bindings:
            if binding.how != "assign" or binding.value is None:
                return None
            answers.append(self.of(binding.value, path, (*binding.path, *way), depth + 1))
        return _agree(answers)

    def _call(self, call: Call, path: Path, way: Way, depth: int) -> str | None:
        answers: list[str | None] = []
        for value in each(self.inference.value(call.callee)):
            answers.append(self._called(value, call, path, way, depth))
        return _agree(answers)

    def _called(self, value: Value, call: Call, path: Path, way: Way, depth: int) -> str | None:
        if isinstance(value, External):
            return self._function(value.name, call, path, way, depth)
        if isinstance(value, Method):
            return self._method(value, call, path, way, depth)
        if isinstance(value, Object):
            if value.role != "module":
                return None
            return self._module(value, call, path, way, depth)
        if isinstance(value, Routine):
            return self._returns(value.function, (*path, call), way, depth)
        return None if call.receiver is None else self._by_name(call, path, way, depth)

    def _function(self, name: str, call: Call, path: Path, way: Way, depth: int) -> str | None:
        root, _, last = name.rpartition(".")
        if root in ("torch", "torch.nn.functional", "torch.special"):
            if last in _FUNCTIONS:
                return _FUNCTIONS[last]
            if last in _SAME_VALUES and call.args:
                return self.of(call.args[0], path, way, depth + 1)
            if last in ("linear", "conv1d", "conv2d", "conv3d") and root == "torch.nn.functional":
                return LINEAR
        return None

    def _method(self, value: Method, call: Call, path: Path, way: Way, depth: int) -> str | None:
        if isinstance(value.owner, Tensor):
            return self._by_name(call, path, way, depth)
        if isinstance(value.owner, Object) and value.owner.role == "module" and value.name == "forward":
            return self._module(value.owner, call, path, way, depth)
        return None

    def _by_name(self, call: Call, path: Path, way: Way, depth: int) -> str | None:
        """`scores.softmax(-1)`, `output.view(-1, n)`"""
        if call.attr in _FUNCTIONS:
            return _FUNCTIONS[call.attr]
        if call.attr in _SAME_VALUES and call.receiver is not None:
            return self.of(call.receiver, path, way, depth + 1)
        return None

    def _module(self, value: Object, call: Call, path: Path, way: Way, depth: int) -> str | None:
        if depth > _DEEPEST:
            return None
        if value.cls is not None:
            forward = self.inference.method(value.cls, "forward")
            return self._returns(forward, (*path, call), way, depth) if forward is not None else None
        last = value.name.rpartition(".")[2]
        if last == "Sequential" and value.name.startswith("torch.nn."):
            for layer in reversed(value.inner):
                if isinstance(layer, Object) and layer.cls is None and layer.name.rpartition(".")[2] in _SAME_LAYERS:
                    continue
                return self._module(layer, call, path, way, depth + 1) if isinstance(layer, Object) else None
            return None
        if value.name.startswith("torch.nn.") and last in _LAYERS:
            return _LAYERS[last] if not way else None
        if value.name.startswith("torch.nn.") and last in _SAME_LAYERS and call.args:
            return self.of(call.args[0], path, way, depth + 1)
        if len(value.inner) == 1 and isinstance(value.inner[0], Object):
            return self._module(value.inner[0], call, path, way, depth + 1)
        head = self._new_head(value)
        return self._module(head, call, path, way, depth + 1) if head is not None and not way else None

    def _new_head(self, value: Object) -> Object | None:
        """What stands in the last place of a ready-made model: `model.fc = nn.Sequential(...)`, `model.classifier[6] = ...`"""
        built = value.call
        statement = built.statement if built is not None else None
        if (
            built is None
            or not isinstance(statement, Assign)
            or statement.value is not built
            or len(statement.targets) != 1
        ):
            return None
        name = dotted_name(statement.targets[0])
        if name is None or value.name.startswith("torch."):
            return None
        stores = built.context.module.stores
        heads = [b for h in _HEADS for end in ("", "[]") for b in stores.get(f"{name}.{h}{end}", ())]
        heads = [b for b in heads if b.context.function is built.context.function and b.value is not None]
        if len(heads) != 1 or heads[0].how != "assign" or heads[0].path or heads[0].value is None:
            return None
        values = list(each(self.inference.value(heads[0].value)))
        only = values[0] if len(values) == 1 else None
        return only if isinstance(only, Object) and only.role == "module" else None

    def _returns(self, function: Function, path: Path, way: Way, depth: int) -> str | None:
        memo, key = function.module.memo, ("activation", id(function), way)
        if key in memo:
            return memo[key]  # type: ignore[no-any-return]
        memo[key] = None
        answers = [self.of(r.value, path, way, depth + 1) if r.value is not None else None for r in function.returns]
        answer = _agree(answers) if not function.yields else None
        if not _depends_on_arguments(function):
            memo[key] = answer
        else:
            del memo[key]
        return answer


def _depends_on_arguments(function: Function) -> bool:
    return function.name != "forward"


def _agree(answers: list[str | None]) -> str | None:
    return answers[0] if answers and len(set(answers)) == 1 else None

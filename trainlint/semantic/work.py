"""What a call does in a training step: forward, backward, optimizer step, clearing gradients.

`kind` answers for the call itself, `Work.of` also for what it enters: split into what happens once per call and what
happens in loops inside.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from trainlint.records import NamedTuple
from trainlint.semantic import conventions, known
from trainlint.semantic.contexts import dotted_name
from trainlint.semantic.facts import Call, Context, Function, Name
from trainlint.semantic.values import Batch, External, Method, Object, Routine, Tensor, Unknown, each

if TYPE_CHECKING:
    from trainlint.semantic.inference import Inference

FORWARD, BACKWARD, STEP, ZERO = "forward", "backward", "step", "zero_grad"
_NOTHING: frozenset[str] = frozenset()


class Summary(NamedTuple):
    once: frozenset[str]  # once per call
    looped: frozenset[str]  # inside a loop of the callee


_EMPTY = Summary(_NOTHING, _NOTHING)


class Work:
    def __init__(self, inference: Inference) -> None:
        self.inference = inference
        self._active: set[int] = set()

    def kind(self, call: Call) -> str | None:
        """What the call itself does, None for anything else."""
        memo, key = call.context.module.memo, ("kind", id(call))
        if key not in memo:
            memo[key] = self._kind(call)
        return memo[key]  # type: ignore[no-any-return]

    def _kind(self, call: Call) -> str | None:
        attr = call.attr
        if attr == "manual_backward" and call.receiver is not None:  # of LightningModule
            return None if self.inference.callgraph.callees(call) else BACKWARD
        if attr == "backward":
            return BACKWARD if self._is_backward(call) else None
        if attr == "step":
            return STEP if self._is_optimizer_step(call) else None
        if attr == "zero_grad":
            return ZERO
        for value in each(self.inference.value(call.callee)):
            if isinstance(value, Object) and value.role in ("module", "engine"):
                return None if self._only_transforms(value) else FORWARD
            if isinstance(value, Method) and isinstance(value.owner, Object) and value.owner.role == "module":
                if value.name in ("forward", "generate", "encode", "decode", "sample", "predict", "inference"):
                    return FORWARD
            if isinstance(value, Routine) and isinstance(value.owner, Object) and value.owner.role == "module":
                if value.function.name == "forward":
                    return FORWARD
            if isinstance(value, External) and value.name in (
                "torch.nn.parallel.data_parallel",
                "torch.func.functional_call",
            ):
                return FORWARD
            if isinstance(value, Unknown) and attr is not None and conventions.SCALER_NAME.search(attr):
                if len(call.args) > 1:
                    return BACKWARD  # timm's NativeScaler: `loss_scaler(loss, optimizer, ...)`
            if isinstance(value, Unknown) and attr is not None and conventions.names_module(attr) and call.args:
                first = self.inference.value(call.args[0])
                if isinstance(first, (Tensor, Batch)):
                    return FORWARD
        return None

    def _only_transforms(self, value: Object) -> bool:
        """`nn.Sequential(torchaudio.transforms.MelSpectrogram(), ...)`: it prepares data, and is no model."""
        if value.name not in known.CONTAINERS or value.call is None or not value.call.args:
            return False
        return all(
            isinstance(part, Call) and (self.inference.name_of(part.callee) or "").startswith(known.TRANSFORMS)
            for part in value.call.args
        )

    def _is_backward(self, call: Call) -> bool:
        receiver = call.receiver
        if receiver is None:
            return False
        for value in each(self.inference.value(receiver)):
            if isinstance(value, Object) and value.role in ("accelerator", "fabric", "engine"):
                return True
            if isinstance(value, Object) and value.role in ("optimizer", "scaler") and value.cls is None:
                return True  # `optimizer.backward(loss)` of a library's wrapper
            if isinstance(value, (Tensor, Unknown, Batch)):
                return True
            if isinstance(value, Object) and value.cls is not None:
                return False  # the project's own method: followed as a call
        return not isinstance(self.inference.value(receiver), Object)

    def _is_optimizer_step(self, call: Call) -> bool:
        receiver = call.receiver
        if receiver is None:
            return False
        value = self.inference.value(receiver)
        for one in each(value):
            if isinstance(one, Object):
                if one.role in ("optimizer", "scaler", "engine"):
                    return True
                if one.role in ("scheduler", "object", "module"):
                    return False
        if isinstance(value, Unknown):
            dotted = dotted_name(receiver) or ""
            last = dotted.rpartition(".")[2]
            if conventions.SCHEDULER_NAME.search(last):
                return False
            return bool(conventions.OPTIMIZER_NAME.search(last) or conventions.SCALER_NAME.search(last)) or bool(
                re.search(r"optim", last, re.I)
            )
        return False

    # ----------------------------------------------------------------------------------------------- summaries

    def of_call(self, call: Call) -> Summary:
        """What happens when the call runs, what it enters included."""
        kind = self.kind(call)
        if kind is not None:
            return Summary(frozenset((kind,)), _NOTHING)
        once: set[str] = set()
        looped: set[str] = set()
        for callee in self.inference.callgraph.callees(call):
            inner = self.of_function(callee.function)
            once |= inner.once
            looped |= inner.looped
        if is_map(call):
            return Summary(_NOTHING, frozenset(once | looped))
        return Summary(frozenset(once), frozenset(looped)) if once or looped else _EMPTY

    def of_function(self, function: Function) -> Summary:
        memo, question = function.module.memo, ("work", id(function))
        found: Summary | None = memo.get(question)
        if found is None:
            key = id(function)
            if key in self._active:
                return _EMPTY
            self._active.add(key)
            try:
                found = self.within(function.calls, function.inner)
            finally:
                self._active.discard(key)
            memo[question] = found
        return found

    def within(self, calls: list[Call], frame: Context) -> Summary:
        """What happens in a block: `calls` that stand inside `frame`."""
        once: set[str] = set()
        looped: set[str] = set()
        for call in calls:
            context = call.context
            if not context.within(frame):
                continue
            done = self.of_call(call)
            if done is _EMPTY:
                continue
            if _in_loop(context, frame):
                looped |= done.once | done.looped
            else:
                once |= done.once
                looped |= done.looped
        return Summary(frozenset(once), frozenset(looped))


def is_map(call: Call) -> bool:
    """`map(step, loader)` of Python: a loop over its arguments."""
    return isinstance(call.callee, Name) and call.callee.id == "map" and len(call.args) > 1


def _in_loop(context: Context, frame: Context) -> bool:
    """Whether a loop stands between a place and a frame around it."""
    current: Context | None = context
    while current is not None and current is not frame:
        if current.kind == "loop":
            return True
        current = current.parent
    return False

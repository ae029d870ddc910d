"""CUDA tensors that are made where a loader reads its data: in a dataset, a transform or a collate function."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.semantic import known, moving, reading
from trainlint.semantic.facts import Call
from trainlint.semantic.values import External, Object, each

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


def made(script: Script, loader: Call) -> Iterator[tuple[Call, tuple[Call, ...]]]:
    """The calls that make one, each with the calls that lead to it, nearest first."""
    for function, calls in reading.entered(script, reading.item_functions(script, loader)):
        for call in function.calls:
            if is_made_on_cuda(script, call):
                yield call, calls


def is_made_on_cuda(script: Script, call: Call) -> bool:
    """Whether a call makes a CUDA tensor, or moves one there."""
    if call.attr == "cuda" and call.receiver is not None:
        return all(not isinstance(v, External) for v in each(script.value(call.receiver)))
    if call.attr == "to" and call.receiver is not None:
        target = call.keyword("device") or call.argument(0)
        held = list(each(script.value(target))) if target is not None else []
        if any(isinstance(v, External) for v in held):
            return False  # a dtype
        if any(isinstance(v, Object) and v.role != "device" for v in held):
            return False
        return moving.is_cuda(script, target)
    names = {v.name for v in each(script.value(call.callee)) if isinstance(v, External)}
    if names & known.FACTORIES or any(n.startswith("torch.") and n.endswith("_like") for n in names):
        return moving.is_cuda(script, call.keyword("device"))
    return any(n.startswith("torch.cuda.") and n.endswith("Tensor") for n in names)

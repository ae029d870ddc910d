"""Copies between host and device: `.to(device)`, `.cuda()`, `.copy_()`, `.type_as()`, and whether they wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainlint.semantic import external
from trainlint.semantic.facts import Call, Expr
from trainlint.semantic.values import Batch, Const, External, Items, Object, Table, Tensor, Text, Value, each

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_NOT_DATA = frozenset("module loss optimizer scheduler scaler engine pretrained device accelerator fabric".split())


def target_of(script: Script, call: Call) -> str | None:
    """Where a `.to()`, `.cuda()`, `.type_as()` or `.type()` takes its tensor: "host", "device", None when not known
    or nowhere."""
    attr = call.attr
    if attr == "cuda":
        return "device"
    target = call.argument(0, "other") if attr in ("type_as", "to") else call.argument(0)
    if attr == "to":
        target = call.keyword("device") or target
    if target is None:
        return None
    if attr == "type":
        held = script.value(target)
        return "device" if isinstance(held, External) and held.name.startswith("torch.cuda.") else None
    tensor = script.value(target)
    if isinstance(tensor, (Tensor, Batch)):
        return tensor.device
    if attr == "type_as" or _is_dtype(tensor):
        return None
    return external.device_of(script.inference, target)


def _is_dtype(value: Value) -> bool:
    return isinstance(value, External) and value.name.startswith("torch.")


def moved_to_device(script: Script, call: Call) -> Expr | None:
    """The tensor that a call copies from the host to a device, None when it is no such copy (or what it moves is no
    data)."""
    if call.attr == "copy_":
        receiver = call.receiver
        source = call.argument(0, "src")
        if receiver is None or source is None:
            return None
        onto = script.tensor(receiver)
        return source if onto is not None and onto.device == "device" and may_be_data(script, source) else None
    if call.receiver is None or target_of(script, call) != "device" or not may_be_data(script, call.receiver):
        return None
    return call.receiver


def may_be_data(script: Script, expr: Expr) -> bool:
    """Not a module, an optimizer or a loss, and not on the device already."""
    for value in each(script.value(expr)):
        if isinstance(value, Object) and value.role in _NOT_DATA:
            return False
        if isinstance(value, (Tensor, Batch)) and value.device == "device":
            return False
        if isinstance(value, (Items, Table, Text, Const)) and not (isinstance(value, Const) and value.value is None):
            return False
    return True


def is_non_blocking(script: Script, call: Call) -> bool | None:
    """Whether a copy is asked not to wait; None when that cannot be told.

    `to(device, dtype, non_blocking)`, `to(dtype, non_blocking)`, `to(other, non_blocking)`, `cuda(device,
    non_blocking)`, `copy_(src, non_blocking)`; `async=` and `asynchronous` were the names before 0.4.
    """
    given = call.argument(non_blocking_position(script, call), "non_blocking")
    if given is None:
        return None if call.unpacks else False
    held = script.constant(given)
    return held if isinstance(held, bool) else None


def non_blocking_position(script: Script, call: Call) -> int:
    """The place of `non_blocking` among the positional arguments of a copy."""
    if call.attr == "to" and call.args:
        first = script.value(call.args[0])
        if not _is_dtype(first) and not isinstance(first, (Tensor, Batch)):
            return 2
    return 1

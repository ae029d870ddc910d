"""Uses in a file of what the table of changes (`torch_api/changes.json`) lists, by the form that each row means."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

from trainlint.findings import Level
from trainlint.patterns_on_use import Pattern
from trainlint.records import NamedTuple
from trainlint.semantic import arguments, torch_names, walk
from trainlint.semantic.facts import Attribute, Call, Constant, Expr, Name, Record, Starred, Subscript
from trainlint.semantic.scalars import is_scalar
from trainlint.semantic.torch_names import Reference
from trainlint.semantic.values import Const, External, Number, Object, Tensor, Unknown, Value, each
from trainlint.torch_api import changes, changes_of, verdict
from trainlint.torch_api.changes import Change
from trainlint.torch_api.versions import Target, shown

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_OWN_FUNCTION = Pattern(rb"class \w+\((?:torch\.)?(?:autograd\.)?(?:function\.)?Function\b")


class Use(NamedTuple):
    record: Record
    change: Change
    level: Level
    argument: str = ""


def uses(script: Script, code: str) -> Iterator[Use]:
    """Every use that is deprecated, raises or is gone at the high end of the target, each place once."""
    assert script.settings is not None
    target = script.settings.torch_range
    seen: set[int] = set()
    for use in _all(script, code, target):
        if id(use.record) not in seen:
            seen.add(id(use.record))
            yield use


def _all(script: Script, code: str, target: Target) -> Iterator[Use]:
    for reference in torch_names.imports(script):
        for change in changes_of(reference.name):
            if change.form == "module" and change.code == code:
                yield from _use(reference.record, change, target)
    for reference in [*torch_names.references(script), *torch_names.methods(script, _methods(code))]:
        for change in changes_of(reference.name):
            if change.code == code and _applies(script, change, reference):
                yield from _use(reference.record, change, target, change.argument)
        if reference.call is None and isinstance(reference.record, Attribute):
            # `dist.reduce_op.SUM`: a member of what is deprecated
            holder = reference.name.rpartition(".")[0]
            for change in changes_of(holder) if holder.rpartition(".")[2].islower() else ():
                if change.code == code and change.form == "use" and change not in changes_of(reference.name):
                    yield from _use(reference.record.value, change, target)
    yield from _subscripts(script, code, target)
    yield from _instances(script, code, target)


def _use(record: Record, change: Change, target: Target, argument: str = "") -> Iterator[Use]:
    level = verdict(change, target)
    if level is not None:
        yield Use(record, change, level, argument)


@cache
def _methods(code: str) -> frozenset[str]:
    """Last names of the rows that can be about a method of a value."""
    return frozenset(
        name.rpartition(".")[2]
        for change in changes()
        if change.code == code and change.form not in ("module", "subscript", "instance")
        for name in change.names
        if name.split(".")[-2][:1].isupper() or name.split(".")[-2].startswith("_Base")
    )


def _applies(script: Script, change: Change, reference: Reference) -> bool:
    form, call = change.form, reference.call
    if form == "use":
        return True
    if call is None:
        return False
    if form == "method":
        return isinstance(call.callee, Attribute)
    if form == "argument":
        return _passes(script, change, call)
    if form == "missing":
        return arguments.given(script.inference, call, change.argument, change.position) is None
    if form == "positional":
        return bool(call.args) and not any(isinstance(a, Starred) for a in call.args)
    return form == "overload" and _number_before_tensor(script, change, call)


def _passes(script: Script, change: Change, call: Call) -> bool:
    direct = call.argument(change.position, change.argument)
    held = script.value(direct) if direct is not None else arguments.given(script.inference, call, change.argument)
    if held is None or (direct is None and isinstance(held, Unknown)):
        return False
    texts = {_text(script, value, direct) for value in each(held)}
    if change.values:
        return bool(texts) and all(text in change.values for text in texts)
    return not any(text in change.except_values for text in texts)


def _text(script: Script, value: Value, expr: Expr | None) -> str | None:
    """A value as a row writes it: `None`, `False`, `"elementwise_mean"`, `torch.FloatTensor`."""
    if isinstance(value, Const):
        return f'"{value.value}"' if isinstance(value.value, str) else repr(value.value)
    return value.name if isinstance(value, External) else None


def _number_before_tensor(script: Script, change: Change, call: Call) -> bool:
    place = change.position or 0
    if len(call.args) <= place + 1 or any(isinstance(a, Starred) for a in call.args):
        return False
    number, tensor = script.value(call.args[place]), script.value(call.args[place + 1])
    if not all(isinstance(v, Tensor) for v in each(tensor)):
        return False
    # of a method that changes its tensor no other form takes two arguments by position: a number that is not known is one
    in_place = (call.attr or "").endswith("_") and place == 0
    return all(_is_number(v) or (in_place and isinstance(v, Unknown)) for v in each(number))


def _is_number(value: Value) -> bool:
    if isinstance(value, Const):
        return isinstance(value.value, (int, float)) and not isinstance(value.value, bool)
    return isinstance(value, Number)


def _subscripts(script: Script, code: str, target: Target) -> Iterator[Use]:
    """`loss.data[0]`: a scalar has no first element."""
    for change in changes_of("torch.Tensor.data"):
        if change.form != "subscript" or change.code != code:
            continue
        for record in _indexed_data(script):
            value, index = record.value, record.index
            if not (isinstance(value, Attribute) and value.attr == "data"):
                continue
            if isinstance(index, Constant) and index.value == 0 and not isinstance(index.value, bool):
                tensor = script.tensor(value.value)
                if tensor is not None and (
                    tensor.origin == "loss" or _is_differentiated(value.value) or is_scalar(script, value.value)
                ):
                    yield from _use(record, change, target)


def _is_differentiated(tensor: Expr) -> bool:
    """`loss.backward()` in the same function: only a scalar has a gradient without being told one."""
    function = tensor.context.function
    if not isinstance(tensor, Name):
        return False
    return any(
        isinstance(call.receiver, Name)
        and call.receiver.id == tensor.id
        and call.context.function is function
        and call.argument(0, "gradient") is None
        for call in tensor.context.module.calls_by_attr.get("backward", ())
    )


def _indexed_data(script: Script) -> Iterator[Subscript]:
    if "data" not in script.module.attributes:
        return
    for expr in walk.of_module(script.module):
        if isinstance(expr, Subscript):
            yield expr


def _instances(script: Script, code: str, target: Target) -> Iterator[Use]:
    """`Reverse()(x)`: a Function of the project that is called like a module."""
    if not script.semantics.program.says(script.module, _OWN_FUNCTION):
        return
    for change in changes_of("torch.autograd.Function"):
        if change.form != "instance" or change.code != code:
            continue
        for call in script.module.calls:
            for value in each(script.value(call.callee)):
                if isinstance(value, Object) and value.cls is not None and _is_function(script, value):
                    yield from _use(call, change, target)
                    break


def _is_function(script: Script, value: Object) -> bool:
    assert value.cls is not None
    bases = script.inference.bases(value.cls)
    return bool(
        {"torch.autograd.Function", "torch.autograd.function.Function"} & {b for b in bases if isinstance(b, str)}
    )


def state(use: Use, target: Target) -> str:
    """`is gone since torch 2.7`, `raises since torch 2.0`, `is deprecated since torch 2.1`"""
    change = use.change
    for end, words in ((change.removed, "is gone"), (change.raises, "raises")):
        if end is not None and target.high >= end:
            return f"{words} since torch {shown(end)}"
    return f"is {'legacy' if use.level is Level.ADVICE else 'deprecated'} since torch {shown(change.since)}"

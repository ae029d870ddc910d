"""What a list that starts empty will hold: `losses = []` ... `losses.append(loss)`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainlint.semantic.contexts import dotted_name
from trainlint.semantic.facts import Assign, Sequence
from trainlint.semantic.values import UNKNOWN, Value, join

if TYPE_CHECKING:
    from trainlint.semantic.inference import Inference


def appended(inference: Inference, empty: Sequence) -> Value:
    """The join of what is appended to the name that an empty display is assigned to, in the same function or class."""
    module = empty.context.module
    names = _targets(empty)
    if not names:
        return UNKNOWN
    found: list[Value] = []
    for method in ("append", "insert", "extend"):
        for call in module.calls_by_attr.get(method, ()):
            receiver = call.receiver
            if receiver is None or dotted_name(receiver) not in names or not call.args:
                continue
            if not receiver_matches(call.context.function, call.context.cls, empty, names):
                continue
            value = inference.value(call.args[-1])
            found.append(inference.element(value) if method == "extend" else value)
    return join(found) if found else UNKNOWN


def _targets(empty: Sequence) -> set[str]:
    """Names that the display is assigned to by the statement it stands in."""
    for statement in _statements_around(empty):
        if isinstance(statement, Assign):
            if statement.value is empty:
                return {n for n in map(dotted_name, statement.targets) if n is not None}
            if isinstance(statement.value, Sequence):
                for target in statement.targets:
                    if isinstance(target, Sequence) and len(target.elements) == len(statement.value.elements):
                        for t, v in zip(target.elements, statement.value.elements, strict=False):
                            if v is empty:
                                name = dotted_name(t)
                                return {name} if name is not None else set()
    return set()


def _statements_around(empty: Sequence) -> list[object]:
    """The statement that a display belongs to: the last one that starts before it."""
    module = empty.context.module
    low, high = 0, len(module.statements)
    while low < high:
        middle = (low + high) // 2
        if module.statements[middle].order < empty.order:
            low = middle + 1
        else:
            high = middle
    return [module.statements[low - 1]] if low else []


def receiver_matches(function: object, cls: object, empty: Sequence, names: set[str]) -> bool:
    if any("." in n for n in names):
        return cls is empty.context.cls
    return function is empty.context.function or empty.context.function is None

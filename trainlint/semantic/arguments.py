"""What a call passes for one parameter, also through `**options` dicts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainlint.semantic.facts import Call, Starred
from trainlint.semantic.options import updated
from trainlint.semantic.values import UNKNOWN, Table, Unknown, Value, each

if TYPE_CHECKING:
    from trainlint.semantic.inference import Inference


def given(inference: Inference, call: Call, name: str, position: int | None = None) -> Value | None:
    """The value passed for a parameter; None when it is not passed, Unknown when it may be."""
    argument = call.argument(position, name)
    if argument is not None:
        return inference.value(argument)
    unknown = position is not None and any(isinstance(a, Starred) for a in call.args[: position + 1])
    for keyword in call.keywords:
        if keyword.name is not None:
            continue
        for held in each(inference.value(keyword.value)):
            if not isinstance(held, Table):
                unknown = True
                continue
            table = updated(inference, keyword.value, held)
            found = table.get(name)
            if any(key == name for key, _ in table.items):
                return found
            unknown = unknown or not held.complete or not isinstance(table.rest, Unknown)
    return UNKNOWN if unknown else None

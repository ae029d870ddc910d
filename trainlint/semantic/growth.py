"""What a list that starts empty will hold: `losses = []` ... `losses.append(loss)`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainlint.semantic.contexts import dotted_name
from trainlint.semantic.facts import Assign, Attribute, Expr, Name, Sequence
from trainlint.semantic.values import UNKNOWN, Items, Value, join

if TYPE_CHECKING:
    from trainlint.semantic.inference import Inference


def appended(inference: Inference, empty: Sequence) -> tuple[Value, bool]:
    """The join of what is appended to the name that an empty display is assigned to, in the same function or class, and
    whether that is all. It is not where items are made of the list itself: `y.append(layer(y[-1]))`. How far such a circle
    was followed hangs on where it was entered, so that what was once found in one counts as such for good.
    """
    module = empty.context.module
    names = _targets(empty)
    if not names:
        return UNKNOWN, False
    found: list[Value] = []
    memo, circle = module.memo, ("grows in a circle", id(empty))
    for method in ("append", "insert", "extend"):
        for call in module.calls_by_attr.get(method, ()):
            receiver = call.receiver
            if receiver is None or dotted_name(receiver) not in names or not call.args:
                continue
            if not receiver_matches(call.context.function, call.context.cls, empty, names):
                continue
            value = inference.value(call.args[-1])
            found.append(inference.element(value) if method == "extend" else value)
            if call.args[-1].known is None:  # not settled yet
                memo[circle] = True
    return (join(found), circle not in memo) if found else (UNKNOWN, False)


def added(inference: Inference, expr: Expr) -> list[Value]:
    """What is put into a list of layers that does not start empty, or with `+=`, in the function where it is used:
    `layers = [nn.Flatten()]` ... `layers += [nn.Linear(n, n), nn.Dropout()]`. After what only some branch adds comes one
    that is not known, since it need not be the last."""
    name = dotted_name(expr) if isinstance(expr, (Name, Attribute)) else None
    if name is None:
        return []
    function, module = expr.context.function, expr.context.module
    grown: list[tuple[int, Expr, bool]] = []
    value = inference.value(expr)
    if isinstance(value, Items) and value.elements:
        for method in ("append", "insert", "extend"):
            for call in module.calls_by_attr.get(method, ()):
                receiver = call.receiver
                if receiver is not None and call.args and call.context.function is function:
                    if dotted_name(receiver) == name:
                        grown.append((call.order, call.args[-1], method == "extend"))
    if isinstance(expr, Name):
        scope = function.locals if function is not None else module.names
        for binding in scope.get(name, ()):
            if binding.how == "augment" and binding.value is not None:
                grown.append((binding.order, binding.value, True))
    found: list[Value] = []
    around = {id(frame) for frame in expr.context.local_frames()}
    for _, given, many in sorted(grown, key=lambda g: g[0]):
        given_value = inference.value(given)
        if not many:
            found.append(given_value)
        elif isinstance(given_value, Items) and given_value.elements is not None:
            found.extend(given_value.elements)
        else:
            found.append(inference.element(given_value))
        if any(f.kind == "branch" and id(f) not in around for f in given.context.local_frames()):
            found.append(UNKNOWN)
    return found


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

"""The front end's own nodes behind the records of a module: let go once the module is linked, since they take twice the
room of the records, and made again from the text when one is asked for (`Record.node`): where there is a finding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainlint.semantic.facts import Module, Record, Statement
from trainlint.semantic.same import syntax

_CHILDREN: dict[type, tuple[str, ...]] = {}


def forget(module: Module, again: Callable[[], tuple[Statement, ...]]) -> None:
    """`again` reads the module's text once more, into the same records."""
    module.again = again
    for record in _records(module.body):
        try:
            del record.node
        except AttributeError:
            continue  # shared by two places


def recall(module: Module) -> None:
    """Gives all records of a module their nodes back."""
    if module.again is None:
        return
    pairs: list[tuple[Any, Any]] = [(module.body, module.again())]
    while pairs:
        old, new = pairs.pop()
        kind = old.__class__
        if kind is tuple:
            pairs.extend(zip(old, new, strict=True))
        elif isinstance(old, Record):
            old.node = new.node
            pairs.extend((getattr(old, name), getattr(new, name)) for name in _children(kind))


def _records(body: tuple[Statement, ...]) -> list[Record]:
    found: list[Record] = []
    stack: list[Any] = list(body)
    while stack:
        current = stack.pop()
        kind = current.__class__
        if kind is tuple:
            stack.extend(current)
        elif isinstance(current, Record):
            found.append(current)
            for name in _children(kind):
                child = getattr(current, name)
                if child.__class__ is not str and child is not None:
                    stack.append(child)
    return found


def _children(kind: type[Record]) -> tuple[str, ...]:
    names = _CHILDREN.get(kind)
    if names is None:
        names = _CHILDREN[kind] = syntax(kind)
    return names

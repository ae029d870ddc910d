"""Whether two pieces of lowered code say the same, wherever they stand and whichever front end made them."""

from __future__ import annotations

from typing import Any

from trainlint.semantic.facts import Record


def same(a: object, b: object) -> bool:
    """Structural equality of two records, or tuples of them. Constants of different type differ: `1` and `True`."""
    pairs: list[tuple[Any, Any]] = [(a, b)]
    while pairs:
        left, right = pairs.pop()
        if type(left) is not type(right):
            return False
        if isinstance(left, Record):
            pairs += [(getattr(left, name), getattr(right, name)) for name in syntax(type(left))]
        elif isinstance(left, tuple):
            if len(left) != len(right):
                return False
            pairs += zip(left, right, strict=True)
        elif left != right:
            return False
    return True


def syntax(kind: type[Record]) -> tuple[str, ...]:
    """The attributes that hold what is written: those that the constructor takes, other than the node."""
    code = kind.__init__.__code__
    return code.co_varnames[2 : code.co_argcount]

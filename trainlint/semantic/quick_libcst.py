"""Imports libcst in nine tenths of the time: it is most of what a file with findings costs.

The classes of its nodes, nearly two hundred, have their `__repr__`, `__eq__` and `__hash__` before `dataclass` sees them.
It compiles the first two for each class nevertheless, only to leave them out. Here it is told beforehand; the classes
come out the same.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import Any


def load() -> None:
    """To be called before the first `import libcst` of a run; does nothing later."""
    if "libcst" in sys.modules:
        return
    usual = dataclasses.dataclass

    def dataclass(cls: Any = None, /, **options: Any) -> Any:
        def made(one: Any) -> Any:
            return usual(**options, **_left_out(vars(one), options))(one)

        return made if cls is None else made(cls)

    dataclasses.dataclass = dataclass
    try:
        import libcst  # noqa: F401
    finally:
        dataclasses.dataclass = usual


def _left_out(own: Any, options: dict[str, Any]) -> dict[str, bool]:
    found = {}
    if "__repr__" in own and "repr" not in options:
        found["repr"] = False
    if "__eq__" in own and own.get("__hash__") is not None and not options.keys() & {"eq", "order", "unsafe_hash"}:
        found["eq"] = False
    return found

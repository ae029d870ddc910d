"""The names that a module binds, as they are read from its source text."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["module", "class", "function", "value", "external"]


@dataclass
class Binding:
    """What a name stands for. `origin` is the full name under which it was defined."""

    kind: Kind
    origin: str
    node: ast.AST | None = None


@dataclass
class Reference:
    """A name that another module binds: `from target import name`, or an alias `name = target.name`."""

    target: str
    name: str
    lenient: bool = True  # an import that cannot be followed still binds the name


@dataclass
class Namespace:
    """The names of one module. `exported` is its `__all__` where that could be read."""

    module: str
    names: dict[str, Binding | Reference] = field(default_factory=dict)
    exported: list[str] | None = None
    exported_partly: bool = False  # `__all__` is also extended in a way that cannot be read
    open: bool = False

"""Lists and dicts of Python objects that are read from a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.semantic import loading
from trainlint.semantic.facts import Attribute, Call, Class, Comprehension, Expr, Name
from trainlint.semantic.values import Object, Routine, each

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_READERS = frozenset(
    "json.load json.loads pickle.load yaml.safe_load yaml.load yaml.full_load ujson.load orjson.loads jsonlines.open "
    "csv.reader csv.DictReader".split()
)
_METHODS = frozenset({"readlines", "splitlines", "to_dict"})
_DEEPEST = 4


def kept(script: Script, cls: Class) -> Iterator[Expr]:
    """The values that a class keeps on its objects from `__init__` on and that are such lists or dicts."""
    for base in script.inference.bases(cls):
        if isinstance(base, str):
            continue
        for bindings in base.attributes.values():
            for binding in bindings:
                function = binding.context.function
                if binding.how != "assign" or binding.path or binding.value is None or function is None:
                    continue
                if function.name == "__init__" and holds_objects(script, binding.value):
                    yield binding.value


def holds_objects(script: Script, expr: Expr, depth: int = 0) -> bool:
    """Whether an expression is known to be a collection of Python objects out of a file."""
    if depth > _DEEPEST:
        return False
    if isinstance(expr, Comprehension):
        return expr.kind in ("list", "dict") and any(_is_read(script, g.iter, depth) for g in expr.generators)
    if isinstance(expr, (Name, Attribute)):
        found = [
            b for b in loading.definitions(script, expr) if b.how == "assign" and not b.path and b.value is not None
        ]
        return bool(found) and all(b.value is not None and holds_objects(script, b.value, depth + 1) for b in found)
    if not isinstance(expr, Call):
        return False
    name = script.name_of(expr.callee)
    if name in ("list", "sorted", "dict", "tuple") and len(expr.args) >= 1:
        return _is_read(script, expr.args[0], depth)
    if name in _READERS:
        return name.rpartition(".")[2].startswith(("load", "full", "safe"))
    if expr.attr in _METHODS and isinstance(expr.callee, Attribute):
        return not any(isinstance(v, Routine) for v in each(script.value(expr.callee)))
    for value in each(script.value(expr.callee)):
        if isinstance(value, Routine) and not value.function.yields:
            returns = [r.value for r in value.function.returns if r.value is not None]
            return bool(returns) and all(holds_objects(script, r, depth + 1) for r in returns)
    return False


def _is_read(script: Script, expr: Expr, depth: int) -> bool:
    """What yields one Python object after the other: an open file, a csv reader, a collection that was read."""
    for value in each(script.value(expr)):
        if isinstance(value, Object) and value.role == "file":
            return True
    if isinstance(expr, Call) and script.name_of(expr.callee) in _READERS:
        return True
    if isinstance(expr, Name):
        for binding in loading.definitions(script, expr):
            if binding.how in ("assign", "with") and isinstance(binding.value, Call) and not binding.path:
                if script.name_of(binding.value.callee) in _READERS:
                    return True
    return holds_objects(script, expr, depth + 1)

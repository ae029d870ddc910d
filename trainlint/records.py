"""`NamedTuple` for the records of the check path, made in a quarter of the time that `typing` and `collections` take.

There are nearly a hundred such classes, and a run begins by making most of them. `typing` compiles each annotation of each
field that is a string, of which nothing is ever asked, and `collections.namedtuple` compiles a `__new__` for each class:
here one is compiled for each number of fields, and then given their names.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING or sys.version_info >= (3, 14):  # there annotations are not evaluated until someone asks
    from typing import NamedTuple as NamedTuple
else:
    from collections import namedtuple
    from functools import cache
    from types import CodeType, FunctionType
    from typing import Any

    _Field: Any = type(namedtuple("_Field", "field").field)  # the descriptor in C that `namedtuple` reads a field with
    _GLOBALS = {"_tuple_new": tuple.__new__, "__builtins__": {}, "__name__": __name__}

    class _Record(tuple):
        """What all of them have in common: the methods that `namedtuple` makes anew for each."""

        __slots__ = ()

        _fields: tuple[str, ...] = ()

        @classmethod
        def _make(cls, values: Any) -> Any:
            return tuple.__new__(cls, values)

        def _replace(self, /, **changes: Any) -> Any:
            made = self._make(map(changes.pop, self._fields, self))
            if changes:
                raise ValueError(f"{self.__class__.__name__} has no field {', '.join(map(repr, changes))}")
            return made

        def _asdict(self) -> dict[str, Any]:
            return dict(zip(self._fields, self, strict=True))

        def __repr__(self) -> str:
            shown = (f"{field}={value!r}" for field, value in zip(self._fields, self, strict=True))
            return f"{self.__class__.__name__}({', '.join(shown)})"

        def __getnewargs__(self) -> tuple[Any, ...]:
            return tuple(self)

    class _Maker(type):
        def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> type:
            fields = tuple(body.get("__annotations__", ()))
            defaults = tuple(body.pop(field) for field in fields if field in body)
            body.pop("__annotations__", None)
            parts: dict[str, Any] = {field: _Field(n, field) for n, field in enumerate(fields)}
            parts["__new__"] = _new(name, fields, defaults)
            parts |= {"__slots__": (), "_fields": fields, "__match_args__": fields}
            return type(name, (_Record,), parts | body)

    def _new(name: str, fields: tuple[str, ...], defaults: tuple[Any, ...]) -> FunctionType:
        code = _code(len(fields)).replace(co_varnames=("_cls", *fields))
        made = FunctionType(code, _GLOBALS, "__new__", defaults)
        made.__qualname__ = f"{name}.__new__"  # as errors call it
        return made

    @cache
    def _code(count: int) -> CodeType:
        names = "".join(f"_{n}, " for n in range(count))
        function: FunctionType = eval(f"lambda _cls, {names}: _tuple_new(_cls, ({names}))", _GLOBALS)
        return function.__code__

    NamedTuple = type.__new__(_Maker, "NamedTuple", (), {})

"""`NamedTuple` for the records of the check path: made as `typing` makes it, without a look at the annotations.

There are nearly a hundred such classes, and `typing` compiles each annotation of each field that is a string: some
milliseconds at every start, of which nothing is ever asked.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING or sys.version_info >= (3, 14):  # there annotations are not evaluated until someone asks
    from typing import NamedTuple as NamedTuple
else:
    from collections import namedtuple
    from typing import Any

    class _Maker(type):
        def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> type:
            types = body.get("__annotations__", {})
            defaults = [body[field] for field in types if field in body]
            made = namedtuple(name, types, defaults=defaults, module=body["__module__"])
            for key, value in body.items():
                if key == "__annotations__" or key not in types:
                    setattr(made, key, value)
            return made

    NamedTuple = type.__new__(_Maker, "NamedTuple", (), {})

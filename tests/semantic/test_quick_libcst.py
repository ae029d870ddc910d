"""The classes of libcst are what they are when it is imported in the usual way."""

from __future__ import annotations

import subprocess
import sys

_SHOW = """
import dataclasses, libcst
for name in sorted(vars(libcst)):
    cls = getattr(libcst, name)
    if isinstance(cls, type) and dataclasses.is_dataclass(cls):
        own = {key: getattr(value, "__qualname__", "") for key, value in vars(cls).items()}
        fields = [(f.name, f.init, f.repr, f.compare, f.hash) for f in dataclasses.fields(cls)]
        print(name, sorted(own.items()), fields, cls.__dataclass_params__.frozen)
"""


def test_the_classes_are_the_same() -> None:
    usual, quick = (
        subprocess.run([sys.executable, "-c", first + _SHOW], capture_output=True, text=True, check=True).stdout
        for first in ("", "from trainlint.semantic import quick_libcst; quick_libcst.load()")
    )
    assert usual.count("\n") > 150
    assert quick == usual


def test_the_decorator_is_left_as_it_was() -> None:
    code = (
        "import dataclasses; usual = dataclasses.dataclass\n"
        "from trainlint.semantic import quick_libcst; quick_libcst.load()\n"
        "assert dataclasses.dataclass is usual\n"
        "@dataclasses.dataclass\n"
        "class Point:\n    x: int = 0\n"
        "assert Point() == Point() and repr(Point()) == 'Point(x=0)'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

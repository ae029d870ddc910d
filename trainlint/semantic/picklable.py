"""What cannot be pickled, and so cannot travel to a spawned worker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.semantic.facts import Binding, Call, Class, Comprehension, Constant, Expr, Lambda, Name
from trainlint.semantic.values import Routine, Value, each

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_HANDLES = {
    "open": "an open file",
    "io.open": "an open file",
    "gzip.open": "an open file",
    "h5py.File": "an open HDF5 file",
    "tables.open_file": "an open HDF5 file",
    "lmdb.open": "an open LMDB environment",
    "lmdb.Environment": "an open LMDB environment",
    "sqlite3.connect": "an open database connection",
    "psycopg2.connect": "an open database connection",
    "pymysql.connect": "an open database connection",
    "pymongo.MongoClient": "an open database connection",
    "zipfile.ZipFile": "an open archive",
    "tarfile.open": "an open archive",
    "netCDF4.Dataset": "an open file",
    "rasterio.open": "an open file",
    "cv2.VideoCapture": "an open video",
    "threading.Lock": "a lock",
    "threading.RLock": "a lock",
}


def unpicklable_function(value: Value | None) -> str | None:
    """ "a lambda" or "a nested function", None for anything else."""
    if value is None:
        return None
    for one in each(value):
        if isinstance(one, Routine):
            if one.function.name == "<lambda>":
                return "a lambda"
            if one.function.context.function is not None and one.function.cls is None and one.owner is None:
                return "a nested function"
    return None


def unpicklable_attributes(script: Script, cls: Class) -> Iterator[tuple[Expr, str]]:
    """What a class keeps on its objects from `__init__` on that cannot be pickled, with what it is."""
    if any(script.inference.method(cls, name) is not None for name in ("__getstate__", "__reduce__", "__reduce_ex__")):
        return
    for base in script.inference.bases(cls):
        if isinstance(base, str):
            continue
        for bindings in base.attributes.values():
            for binding in bindings:
                what = _what(script, binding)
                if what is not None and not _dropped(binding, bindings):
                    assert binding.value is not None
                    yield binding.value, what


def _what(script: Script, binding: Binding) -> str | None:
    function = binding.context.function
    if (
        binding.how != "assign"
        or binding.path
        or binding.value is None
        or function is None
        or function.name != "__init__"
    ):
        return None
    if any(f.kind == "branch" for f in binding.context.local_frames()):
        return None  # not on every way
    return _of_expression(script, binding.value)


def _of_expression(script: Script, expr: Expr) -> str | None:
    if isinstance(expr, Lambda):
        return "a lambda"
    if isinstance(expr, Comprehension):
        return "a generator" if expr.kind == "generator" else None
    if isinstance(expr, Name):
        found = unpicklable_function(script.value(expr))
        return found if found == "a nested function" else None
    if not isinstance(expr, Call):
        return None
    name = script.name_of(expr.callee)
    if name in _HANDLES:
        return _HANDLES[name]
    if name == "collections.defaultdict" and expr.args and isinstance(expr.args[0], Lambda):
        return "a lambda"
    for value in each(script.value(expr.callee)):
        if isinstance(value, Routine) and value.function.yields:
            return "a generator" if not value.function.decorators else None
    return None


def _dropped(binding: Binding, bindings: list[Binding]) -> bool:
    """`self.file = None` or `del self.file` later in `__init__`; or the handle is set anew where it is used."""
    for other in bindings:
        if other is binding:
            continue
        if isinstance(other.value, Constant) and other.value.value is None and other.order > binding.order:
            return True
    return False

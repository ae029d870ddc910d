"""Writers of other packages that open files in C++ or Rust: the redirection has to be asked for by name."""

from __future__ import annotations

import functools
import os
from typing import Any

from _trainlint_probe import guards
from _trainlint_probe.imports import after_import

#: Module -> function, which argument is the path, and its name; writers first, then readers.
_WRITERS = {"safetensors": ("serialize_file", 1, "filename"), "cv2": ("imwrite", 0, "filename")}
_READERS = {"safetensors": ("safe_open", 0, "filename"), "cv2": ("imread", 0, "filename")}


def install(config: dict[str, Any]) -> None:
    if config.get("writes") == "allow":
        return
    for module in _WRITERS:
        after_import(module, _wrap_both)


def _wrap_both(module: Any) -> None:
    for table, place in ((_WRITERS, writing_place), (_READERS, reading_place)):
        name, position, keyword = table[module.__name__]
        original = getattr(module, name, None)
        if original is not None:
            setattr(module, name, redirected(original, position, keyword, place))


def redirected(original: Any, position: int, keyword: str, place: Any) -> Any:
    """The same function with its path sent through `place`."""

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if keyword in kwargs:
            kwargs[keyword] = place(kwargs[keyword])
        elif len(args) > position:
            args = (*args[:position], place(args[position]), *args[position + 1 :])
        return original(*args, **kwargs)

    return call


def writing_place(path: Any) -> Any:
    """Where such a function is to write; in deny mode an error where the path was there."""
    guard = guards.GUARD
    if guard is None or not isinstance(path, (str, bytes, os.PathLike)):
        return path
    if guard.mode == "redirect":
        from _trainlint_probe import redirect

        return redirect.for_writing(path, truncates=True)
    guards._audit("open", (path, "wb", 0))
    return path


def reading_place(path: Any) -> Any:
    if guards.GUARD is None or guards.GUARD.mode != "redirect":
        return path
    from _trainlint_probe import redirect

    return redirect.for_reading(path)

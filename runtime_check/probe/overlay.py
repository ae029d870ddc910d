"""Serve fixed text for chosen files, under their own names: the disk stays as it is, and so do `__file__`, tracebacks,
the working directory and the paths of data.

Not served: text that the script reads itself (`exec(open(...).read())`), notebooks, zipped packages.
"""

from __future__ import annotations

import functools
import importlib.machinery
import linecache
import os
import runpy
import sys
from typing import Any

import _trainlint_probe as probe

_TEXTS: dict[str, str] = {}  # real path -> fixed text


def install(config: dict[str, Any]) -> None:
    """`overlay`: path -> file with the fixed text. Before any code of the user's is imported."""
    for path, fixed in config.get("overlay", {}).items():
        with probe._raw_open(fixed, encoding="utf-8", newline="") as file:
            text = file.read()
        _TEXTS[os.path.realpath(path)] = text
        # inspect.getsource, TorchScript, Dynamo and Triton read through linecache; an mtime of None is never stale.
        linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    if _TEXTS:
        _serve_imports()
        _serve_runpy()


def text_of(path: Any) -> str | None:
    try:
        return _TEXTS.get(os.path.realpath(os.fspath(path)))
    except (TypeError, ValueError):
        return None


def run_main(path: str, shown: str, main: dict[str, Any]) -> None:
    """Run the fixed text of the main script as Python would run the file: called by the stub that stands in for it."""
    text = text_of(path)
    assert text is not None
    sys.argv[0] = shown
    sys.path[0] = os.path.dirname(path)
    main.update(__file__=path, __cached__=None, __spec__=None)
    for name in ("_overlay", "_sys"):
        main.pop(name, None)
    exec(compile(text, path, "exec", dont_inherit=True), main)


def _serve_imports() -> None:
    loader = importlib.machinery.SourceFileLoader
    get_code, get_source = loader.get_code, loader.get_source

    @functools.wraps(get_code)
    def code(self: Any, fullname: str) -> Any:
        text = text_of(self.path)
        if text is None:
            return get_code(self, fullname)
        return compile(text, self.path, "exec", dont_inherit=True)  # never the .pyc of what is on the disk

    @functools.wraps(get_source)
    def source(self: Any, fullname: str) -> Any:
        text = text_of(self.path)
        return get_source(self, fullname) if text is None else text

    loader.get_code = code  # type: ignore[method-assign]
    loader.get_source = source  # type: ignore[method-assign]


def _serve_runpy() -> None:
    """Children of `multiprocessing` under spawn run the main file anew through this."""
    original = runpy._get_code_from_file  # type: ignore[attr-defined]

    @functools.wraps(original)
    def code_from_file(*args: Any, **kwargs: Any) -> Any:
        for value in (*args, *kwargs.values()):
            text = text_of(value) if isinstance(value, (str, os.PathLike)) else None
            if text is not None:
                code = compile(text, os.fspath(value), "exec", dont_inherit=True)
                old = original.__code__.co_argcount == 2  # (run_name, fname) gave both back, until 3.12
                return (code, os.fspath(value)) if old else code
        return original(*args, **kwargs)

    runpy._get_code_from_file = code_from_file  # type: ignore[attr-defined]

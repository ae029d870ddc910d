"""Run a function right after a module's body was executed, wherever the user's code imports it first."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from typing import Any

import _trainlint_probe as probe

_WAITING: dict[str, Callable[[Any], None]] = {}


def after_import(name: str, do: Callable[[Any], None]) -> None:
    """Call `do(module)` once `name` is imported."""
    if name in sys.modules:
        do(sys.modules[name])
        return
    if not _WAITING:
        sys.meta_path.insert(0, _Finder())
    _WAITING[name] = do


class _Finder:
    """Wraps the loader of the waited-for modules and leaves every other import alone."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        do = _WAITING.pop(name, None)  # popped first: find_spec below comes through here again
        if do is None:
            return None
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        spec.loader = _Loader(spec.loader, do)
        return spec


class _Loader:
    def __init__(self, inner: Any, do: Callable[[Any], None]) -> None:
        self._inner = inner
        self._do = do

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def create_module(self, spec: Any) -> Any:
        return self._inner.create_module(spec)

    def exec_module(self, module: Any) -> None:
        module.__spec__.loader = module.__loader__ = self._inner  # nothing of ours is left on the module
        self._inner.exec_module(module)
        try:
            self._do(module)
        except Exception:
            probe.note_error(f"hooks of {module.__name__}")

"""Puts the stand-in where the engine looks for the analysis and for the index of rules."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import fake.analysis
from trainlint.rules import registry

_RULES = ("tl101_item_in_hot_loop", "tl305_persistent_workers_missing", "tl501_data_parallel")
_ITSELF = ("tl000_not_checked", "tl001_unused_suppression")


@contextmanager
def installed(index: Path) -> Iterator[None]:
    """`index` is a file to write."""
    modules = [*(f"trainlint.rules.itself.{name}" for name in _ITSELF), *(f"fake.{name}" for name in _RULES)]
    index.write_text(registry.render_index(modules), encoding="utf-8")
    before = registry.INDEX, sys.modules.get("trainlint.analysis")
    registry.INDEX = str(index)
    sys.modules["trainlint.analysis"] = fake.analysis
    _forget()
    try:
        yield
    finally:
        registry.INDEX = before[0]
        if before[1] is None:
            del sys.modules["trainlint.analysis"]
        else:
            sys.modules["trainlint.analysis"] = before[1]
        _forget()


def _forget() -> None:
    registry.index.cache_clear()
    registry.load.cache_clear()

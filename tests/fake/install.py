"""Puts the stand-in where the engine looks for the analysis and for the index of rules."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import fake.analysis
from trainlint.rules import listed, registry

_RULES = ("tl101_item_in_hot_loop", "tl305_persistent_workers_missing", "tl501_data_parallel")
_ITSELF = ("tl000_not_checked", "tl001_unused_suppression")


@contextmanager
def installed() -> Iterator[None]:
    """Instead of the rules there are."""
    modules = [*(f"trainlint.rules.itself.{name}" for name in _ITSELF), *(f"fake.{name}" for name in _RULES)]
    before = listed.ROWS, sys.modules.get("trainlint.analysis")
    listed.ROWS = tuple(registry.list_rows(modules))
    sys.modules["trainlint.analysis"] = fake.analysis
    _forget()
    try:
        yield
    finally:
        listed.ROWS = before[0]
        if before[1] is None:
            del sys.modules["trainlint.analysis"]
        else:
            sys.modules["trainlint.analysis"] = before[1]
        _forget()


def _forget() -> None:
    registry.index.cache_clear()
    registry.load.cache_clear()

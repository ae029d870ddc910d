"""The progress bar: only on a terminal, and only when it takes long."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator

import pytest

from trainlint.cli.progress import with_progress


class Stream(io.StringIO):
    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


def clock(step: float) -> Iterator[float]:
    now = 0.0
    while True:
        yield now
        now += step


@pytest.mark.parametrize(("terminal", "step", "shown"), [(True, 0.6, True), (True, 0.001, False), (False, 0.6, False)])
def test_shown(monkeypatch: pytest.MonkeyPatch, terminal: bool, step: float, shown: bool) -> None:
    stream = Stream(terminal)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    ticks = clock(step)
    assert list(with_progress(range(20), 20, lambda: next(ticks))) == list(range(20))
    assert ("Checking" in stream.getvalue()) is shown
    assert ("20/20" in stream.getvalue()) is shown

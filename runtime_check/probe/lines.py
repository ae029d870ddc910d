"""Which of the lines that findings name were run at all, and on how many of the counted steps.

A line that was never reached can be neither confirmed nor refuted. Only the files of the findings are traced, and this
is part of the observing pass: nothing is timed in it.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

import _trainlint_probe as probe
from _trainlint_probe.clock import CLOCK


class LineCount:
    __slots__ = ("last_step", "runs", "steps")

    def __init__(self) -> None:
        self.runs = self.steps = 0
        self.last_step = -1


COUNTS: dict[tuple[str, int], LineCount] = {}


def install(torch: Any, config: dict[str, Any]) -> None:
    wanted = {path: frozenset(rows) for path, rows in config.get("lines", {}).items()}
    if not wanted:
        return
    tracers = {path: _tracer(path, rows) for path, rows in wanted.items()}
    by_name: dict[str, Any] = {}  # a code object's file name -> its tracer, or None

    def called(frame: Any, event: str, arg: Any) -> Any:
        name = frame.f_code.co_filename
        if name not in by_name:
            by_name[name] = tracers.get(os.path.realpath(name))
        return by_name[name]

    threading.settrace(called)
    sys.settrace(called)
    frame: Any = sys._getframe()
    while frame is not None:  # the script's own frames run already: they are what imported torch
        tracer = called(frame, "call", None)
        if tracer is not None:
            frame.f_trace = tracer
        frame = frame.f_back

    def records() -> dict[str, Any]:
        if threading.current_thread() is threading.main_thread() and sys.gettrace() is not called:
            return {"lines": None}  # the script traces itself: nothing is known
        return {"lines": [[path, row, count.runs, count.steps] for (path, row), count in COUNTS.items()]}

    CLOCK.on_finish.append(records)


def _tracer(path: str, rows: frozenset[int]) -> Any:
    def line_run(frame: Any, event: str, arg: Any) -> Any:
        if event == "line" and frame.f_lineno in rows and probe.STATE.active:
            _record((path, frame.f_lineno))
        return line_run

    return line_run


def _record(place: tuple[str, int]) -> None:
    count = COUNTS.get(place)
    if count is None:
        count = COUNTS[place] = LineCount()
    count.runs += 1
    if CLOCK.measuring and count.last_step != CLOCK.step_count:
        count.steps += 1
        count.last_step = CLOCK.step_count

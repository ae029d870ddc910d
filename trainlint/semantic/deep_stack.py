"""Room for recursion over nested code: Python's own limit, and the stack of the thread."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

from trainlint.semantic.syntax import MAX_DEPTH

_STACK_BYTES = 256 * 1024 * 1024  # mapped only as far as it is used
_FRAMES = 100_000
_SHALLOW = 1_000  # frames: next to nothing of such a stack

_here = threading.local()

T = TypeVar("T")


class RecursionRoom:
    """`MAX_DEPTH` levels, each of a call and a comprehension, do not fit into Python's default of 1,000 frames."""

    __slots__ = ("_before", "_frames")

    def __init__(self, frames: int = 4 * MAX_DEPTH) -> None:
        self._frames = frames

    def __enter__(self) -> None:
        self._before = sys.getrecursionlimit()
        sys.setrecursionlimit(max(self._before, self._frames))

    def __exit__(self, *_: object) -> None:
        sys.setrecursionlimit(self._before)


def run_in_deep_stack(function: Callable[[], T]) -> T:
    """What `function` returns or raises, run on a thread of its own with a stack that nested code does not overflow.

    An overflow of the native stack would end the process. Half a millisecond; nothing where the calling thread is one of
    these and has its stack still before it.
    """
    if getattr(_here, "deep", False) and _is_shallow():
        return function()
    results: list[T] = []
    errors: list[BaseException] = []

    def run_on_thread() -> None:
        _here.deep = True
        run()

    def run() -> None:
        try:
            results.append(function())
        except BaseException as error:  # a panic of the native parser is no Exception; raised again below
            errors.append(error)

    size_before = threading.stack_size(_STACK_BYTES)
    with RecursionRoom(_FRAMES):
        thread = threading.Thread(target=run_on_thread, daemon=True)
        try:
            thread.start()
        except RuntimeError:  # this process may not map that much
            run()
        else:
            thread.join()
        finally:
            threading.stack_size(size_before)
    if errors:
        raise errors[0]
    return results[0]


def _is_shallow() -> bool:
    frame: FrameType | None = sys._getframe()
    for _ in range(_SHALLOW):
        if frame is None:
            return True
        frame = frame.f_back
    return False

"""Room for recursion over nested code: Python's own limit, and the stack of the thread."""

from __future__ import annotations

import _thread  # `threading` takes as long to import as twenty files of this package
import sys
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

from trainlint.semantic.syntax import MAX_DEPTH

_STACK_BYTES = 256 * 1024 * 1024  # mapped only as far as it is used
_FRAMES = 100_000
_SHALLOW = 1_000  # frames: next to nothing of such a stack

_deep: set[int] = set()  # the threads that have such a stack

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
    if _thread.get_ident() in _deep and _is_shallow():
        return function()
    results: list[T] = []
    errors: list[BaseException] = []
    running = _thread.allocate_lock()

    def run_on_thread() -> None:
        _deep.add(_thread.get_ident())
        try:
            run()
        finally:
            _deep.discard(_thread.get_ident())
            running.release()

    def run() -> None:
        try:
            results.append(function())
        except BaseException as error:  # a panic of the native parser is no Exception; raised again below
            errors.append(error)

    size_before = _thread.stack_size(_STACK_BYTES)
    with RecursionRoom(_FRAMES):
        running.acquire()
        try:
            _thread.start_new_thread(run_on_thread, ())
        except RuntimeError:  # this process may not map that much
            run()
        else:
            running.acquire()
        finally:
            _thread.stack_size(size_before)
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

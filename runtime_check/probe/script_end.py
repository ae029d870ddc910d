"""How the script ended by itself: its uncaught error (out of memory above all), and whether it waits for a person to
type.
"""

from __future__ import annotations

import builtins
import os
import sys
import time
import traceback
from typing import Any

import _trainlint_probe as probe

ERROR: dict[str, Any] = {}
ON_ERROR: list[Any] = []  # called with the exception while its frames, and so its tensors, are still alive


def install() -> None:
    _wrap_excepthook()
    _wrap_input()


def is_out_of_memory(kind: str, message: str) -> bool:
    """Does this error say that memory ran out? CUDA's has its own class; the CPU allocator raises RuntimeError.

    Texts: c10/core/impl/alloc_cpu.cpp ("DefaultCPUAllocator: can't allocate memory"), torch.OutOfMemoryError
    ("CUDA out of memory").
    """
    text = message.lower()
    return (
        kind in ("OutOfMemoryError", "MemoryError")
        or "out of memory" in text
        or "defaultcpuallocator: can't allocate memory" in text
        or "defaultcpuallocator: not enough memory" in text
    )


def _wrap_excepthook() -> None:
    previous = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        try:
            record(kind, error, trace)
        except Exception:
            probe.note_error("excepthook")
        previous(kind, error, trace)

    sys.excepthook = hook


def record(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """Keep what the report needs of an uncaught error, and write it down at once."""
    if not probe.STATE.active:
        return
    frames = traceback.extract_tb(trace)
    from _trainlint_probe import sites

    own = [frame for frame in frames if sites._kind(frame.filename) == 2] or list(frames)
    message = str(error)[:2000]
    ERROR.update(
        type=kind.__name__,
        message=message,
        site=[own[-1].filename, own[-1].lineno, own[-1].name] if own else list(sites.UNKNOWN),
        out_of_memory=is_out_of_memory(kind.__name__, message),
        at_ns=time.time_ns(),  # of several ranks the first to fail has the cause: the others lose their peer
    )
    for do in ON_ERROR:
        do(error)
    probe.write_json(os.path.join(probe.CONFIG["run_dir"], f"error-{os.getpid()}.json"), ERROR)


def _wrap_input() -> None:
    original = builtins.input

    def asking(prompt: Any = "") -> str:
        mark = os.path.join(probe.CONFIG["run_dir"], f"input-{os.getpid()}.json")
        from _trainlint_probe import sites

        try:
            probe.write_json(mark, {"prompt": str(prompt), "site": list(sites.user_site(2))})
        except OSError:
            pass
        try:
            return original(prompt)
        finally:
            try:
                os.remove(mark)
            except OSError:
                pass

    builtins.input = asking

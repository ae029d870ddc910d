"""What a command costs: CPU time with that of its children, wall time, and the memory of its largest process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

# What the shell of the one who runs this has set must not slow Python down, or keep it from caching bytecode.
_UNSET = ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONOPTIMIZE", "PYTHONPYCACHEPREFIX")


class Cost(NamedTuple):
    """CPU and wall time in seconds; `memory` is the peak resident set of the largest process, in bytes."""

    cpu: float
    wall: float
    memory: int


class Failed(Exception):
    """A command did not do what it was measured for."""


def measure(command: Sequence[str], folder: Path, accepted: Sequence[int] = (0,), seconds: float = 3600) -> Cost:
    """Runs a command in `folder`, its output thrown away. Raises Failed, also after `seconds`."""
    return _run(command, folder, accepted, seconds, None)[0]


def output(
    command: Sequence[str], folder: Path, accepted: Sequence[int] = (0,), seconds: float = 3600
) -> tuple[str, str]:
    """(standard output, standard error) of a command. Raises Failed."""
    with tempfile.TemporaryFile() as out:
        _, errors = _run(command, folder, accepted, seconds, out.fileno())
        out.seek(0)
        return out.read().decode("utf-8", "replace"), errors


def _run(
    command: Sequence[str], folder: Path, accepted: Sequence[int], seconds: float, out: int | None
) -> tuple[Cost, str]:
    environment = {name: value for name, value in os.environ.items() if name not in _UNSET}
    with tempfile.TemporaryFile() as errors:
        begin = time.perf_counter()
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**environment, "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if out is None else out,
            stderr=errors,
            start_new_session=True,
        )
        late = threading.Event()
        timer = threading.Timer(seconds, _stop, (process.pid, late))
        timer.daemon = True
        timer.start()
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - begin
        timer.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        said = errors.read().decode("utf-8", "replace")
    name = Path(command[0]).name
    if late.is_set():
        raise Failed(f"{name}: not done after {seconds:.0f} s")
    if process.returncode not in accepted:
        raise Failed(f"{name} {' '.join(command[1:4])}: exit {process.returncode}: {said[-400:]}")
    unit = 1 if sys.platform == "darwin" else 1024
    return Cost(usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss * unit), said


def _stop(process: int, late: threading.Event) -> None:
    late.set()
    try:
        os.killpg(process, signal.SIGKILL)
    except ProcessLookupError:
        pass

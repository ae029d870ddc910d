"""The processes that files are checked on, seen from the one that wants the results: starts, feeds, replaces, ends them.

They are started as programs of their own, on every platform, so that nothing of the process that starts them runs again
(its `__main__` may have no guard) and no lock or thread of it is copied.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any

from trainlint.records import NamedTuple
from trainlint.settings import Settings, SettingsError
from trainlint.worker import READY, Task

# The path comes first: with -c the working directory, where any name may lie, is searched before the standard library.
_PROGRAM = "import sys; sys.path[:] = sys.argv[1:]; from trainlint.worker import main; main()"

_PATIENCE = 1.0  # seconds of waiting before signals are looked at, where they do not end the waiting
_ATTEMPTS = 2  # to start a process

Job = tuple[int, Task]  # a file, and its number


class Ended(NamedTuple):
    """A worker went down over a file."""

    how: str


class NotStarted(NamedTuple):
    """No worker could be started for a file."""


# The fields of a `FileResult` after path and settings, or why there are none.
Outcome = tuple[Any, ...] | SettingsError | Ended | NotStarted


class Crew:
    """`size` workers, for as long as the `with` block runs; `take` gives the next files that belong together, or none.

    It is called on several threads, but never twice at once.
    """

    def __init__(self, size: int, settings: list[Settings], take: Callable[[], list[Job]]) -> None:
        self._settings = settings
        self._take = take
        self._lock = threading.Lock()
        self._closed = False
        self._workers: set[_Worker] = set()
        self._outcomes: SimpleQueue[tuple[int, Outcome] | BaseException] = SimpleQueue()
        self._threads = [threading.Thread(target=self._serve, daemon=True) for _ in range(size)]

    def __enter__(self) -> Crew:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            with self._lock:
                self._closed = True
                for worker in self._workers:
                    worker.kill()
        for thread in self._threads:
            thread.join()

    def next(self) -> tuple[int, Outcome]:
        """(number of a file, what became of it), in the order in which they are done. To be asked once for each file."""
        while True:
            try:
                found = self._outcomes.get(timeout=_PATIENCE)  # on Windows, Ctrl+C does not end a wait
            except Empty:
                continue
            if isinstance(found, BaseException):
                raise found
            return found

    # -------------------------------------------------------------------------------------- one thread for each worker

    def _serve(self) -> None:
        _leave_interrupts_to_the_main_thread()
        worker: _Worker | None = None
        try:
            while True:
                with self._lock:
                    jobs = deque(() if self._closed else self._take())
                if not jobs:
                    break
                while jobs:
                    worker = worker or self._hired()
                    if worker is None:
                        self._give_back(jobs)
                    elif not self._checked(worker, jobs):
                        self._dismiss(worker)
                        worker = None
            if worker is not None:
                worker.send(None)
        except OSError:
            pass  # it has gone by itself; nothing was left to do
        except BaseException as error:
            self._outcomes.put(error)
        finally:
            if worker is not None:
                self._dismiss(worker)

    def _hired(self) -> _Worker | None:
        for _ in range(_ATTEMPTS):
            with self._lock:
                if self._closed:
                    return None
                try:
                    worker = _Worker()
                except OSError:
                    return None
                self._workers.add(worker)
            try:
                worker.send(self._settings)
                if worker.receive() == READY:
                    return worker
            except Exception:  # it has ended, or says what no worker says
                pass
            worker.kill()
            self._dismiss(worker)
        return None

    def _checked(self, worker: _Worker, jobs: deque[Job]) -> bool:
        """Takes off `jobs` what was done; False when the worker went down."""
        try:
            worker.send([task for _, task in jobs])
        except OSError:
            worker.kill()
            return False  # before it saw a file
        try:
            while jobs:
                outcome = worker.receive()
                self._outcomes.put((jobs.popleft()[0], outcome))
        except _GONE:
            worker.kill()
            self._outcomes.put((jobs.popleft()[0], Ended(worker.how_it_ended())))
            return False
        return True

    def _give_back(self, jobs: deque[Job]) -> None:
        while jobs:
            self._outcomes.put((jobs.popleft()[0], NotStarted()))

    def _dismiss(self, worker: _Worker) -> None:
        worker.end()
        with self._lock:
            self._workers.discard(worker)


# What reading from a worker raises when that has ended, perhaps in the midst of a message.
_GONE = (OSError, EOFError, pickle.UnpicklingError)


class _Worker:
    """A process that runs `trainlint.worker`. Raises OSError where it cannot be started."""

    def __init__(self) -> None:
        group = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)  # Windows: Ctrl+C is not for them
        self._process = subprocess.Popen(
            [sys.executable, *_flags(), "-c", _PROGRAM, *_path()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            creationflags=group,
        )

    def send(self, message: object) -> None:
        """Raises OSError when it has ended."""
        assert self._process.stdin is not None
        pickle.dump(message, self._process.stdin, pickle.HIGHEST_PROTOCOL)
        self._process.stdin.flush()

    def receive(self) -> Any:
        """Raises one of `_GONE` when it has ended."""
        assert self._process.stdout is not None
        return pickle.load(self._process.stdout)

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> None:
        """Waits for the end of a process that has been told to end, or has ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.close()
        except OSError:
            pass  # what it was sent last it will never read
        self._process.wait()
        self._process.stdout.close()

    def how_it_ended(self) -> str:
        code = self._process.wait()
        if code >= 0:
            return f"ended with exit code {code}"
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = "unknown"
        memory = "; perhaps the memory ran out" if name == "SIGKILL" else ""
        return f"was ended by signal {-code} ({name}{memory})"


def _leave_interrupts_to_the_main_thread() -> None:
    """Ctrl+C reaches every process of a terminal. What is started from a thread that blocks it never sees it: the main
    thread does, and ends the workers."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])


def _flags() -> list[str]:
    """What this Python was started with, as far as it changes what a worker reads or writes."""
    flags = sys.flags
    given = {
        "-I": flags.isolated,
        "-E": flags.ignore_environment,
        "-s": flags.no_user_site,
        "-S": flags.no_site,
        "-B": sys.dont_write_bytecode,
    }
    return [*(flag for flag, on in given.items() if on), "-X", f"utf8={int(bool(flags.utf8_mode))}"]


def _path() -> list[str]:
    """Where modules are imported from: here as there. What lies nowhere on it (an editable install) goes last."""
    own = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    path = [entry for entry in sys.path if isinstance(entry, str)]
    return path if own in path else [*path, own]

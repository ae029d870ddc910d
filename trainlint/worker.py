"""One of the processes that files are checked on: takes files from standard input, gives their results to standard output.

`trainlint.crew` starts it and speaks with it in pickled messages; it has no other use.
"""

from __future__ import annotations

import gc
import os
import pickle
import sys
import threading
from collections.abc import Iterator
from queue import SimpleQueue
from typing import IO, Any

from trainlint.discovery import Target
from trainlint.engine import check_targets
from trainlint.records import NamedTuple
from trainlint.settings import Settings, SettingsError
from trainlint.source import NotChecked

READY = "ready"  # the first message of a worker: it could be started


class Task(NamedTuple):
    """A file to check. Its settings are a number, so that equal ones stay one object, and one analysis."""

    path: str
    settings: int
    data: bytes | None
    problem: NotChecked | None


def main() -> None:
    """The first message is the list of all settings, each further one a list of tasks, the last one None."""
    gc.set_threshold(50_000, 20, 50)  # as in `trainlint.cli`
    inbox, outbox = os.fdopen(os.dup(0), "rb"), _outbox()
    messages: SimpleQueue[Any] = SimpleQueue()
    threading.Thread(target=_listen, args=(inbox, messages), daemon=True).start()
    code = 1
    try:
        _work(messages, outbox)
        code = 0
    except BrokenPipeError:
        pass  # who would read it has gone
    except Exception:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
    os._exit(code)


def _outbox() -> IO[bytes]:
    """What was standard output. From now on nothing that is printed gets between the messages."""
    outbox = os.fdopen(os.dup(1), "wb")
    try:
        os.dup2(2, 1)
    except OSError:  # there is no standard error
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return outbox


def _listen(inbox: IO[bytes], messages: SimpleQueue[Any]) -> None:
    """Runs beside the work, to end the process in the midst of it when the one that wants the results has gone."""
    try:
        while True:
            message = pickle.load(inbox)
            messages.put(message)
            if message is None:
                return
    except (OSError, EOFError, pickle.UnpicklingError):
        os._exit(1)


def _work(messages: SimpleQueue[Any], outbox: IO[bytes]) -> None:
    every: list[Settings] = messages.get()
    _send(outbox, READY)
    try:
        for result in check_targets(_targets(messages, every)):
            _send(outbox, tuple(result)[2:])  # its path and settings are known there
    except SettingsError as error:
        _send(outbox, error)


def _targets(messages: SimpleQueue[Any], every: list[Settings]) -> Iterator[Target]:
    while (tasks := messages.get()) is not None:
        for task in tasks:
            yield Target(task.path, every[task.settings], task.data, task.problem)


def _send(outbox: IO[bytes], message: object) -> None:
    pickle.dump(message, outbox, pickle.HIGHEST_PROTOCOL)
    outbox.flush()

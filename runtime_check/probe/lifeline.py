"""End this process when the one that started the run is gone, and tell that one how far the run has come.

The keeper and the parent kill what they started; this is for the case that both were killed themselves. A socket by
path is used, not an inherited pipe: torchrun and other launchers close what they do not know before they start their
ranks.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from typing import Any

import _trainlint_probe as probe


def install(config: dict[str, Any]) -> None:
    address = config.get("lifeline")
    connection: socket.socket | None = None
    if address and hasattr(socket, "AF_UNIX"):
        connection = socket.socket(socket.AF_UNIX)
        connection.setblocking(False)
        try:
            connection.connect(address)
        except BlockingIOError:
            connection = None  # too many processes at once for the queue: the keeper still watches over this one
        except OSError:
            os._exit(0)  # the run is over already
    threading.Thread(target=_watch, args=(connection, config), name="trainlint-lifeline", daemon=True).start()


def _watch(connection: socket.socket | None, config: dict[str, Any]) -> None:
    deadline_ns = probe.STARTED_NS + int(config.get("deadline_s", 1e9) * 1e9)
    progress = os.path.join(config["run_dir"], f"progress-{os.getpid()}")
    told = -1
    while True:
        if connection is not None:
            readable, _, _ = select.select([connection], [], [], 0.5)
            if readable:
                try:
                    gone = connection.recv(1) == b""
                except ConnectionError:
                    gone = True
                except BlockingIOError:
                    gone = False
                if gone:
                    os._exit(0)
        else:
            time.sleep(0.5)
        if probe.STATE.torch is None:
            continue
        from _trainlint_probe.clock import CLOCK

        if CLOCK.step_count != told:
            told = CLOCK.step_count
            try:
                with probe._raw_open(progress, "w", encoding="ascii") as file:
                    file.write(str(told))
            except OSError:
                pass
        # In a thread of its own, so that it works while the main thread sits inside one long operation.
        if time.perf_counter_ns() > deadline_ns and CLOCK.has_seen_something:
            CLOCK.finish("deadline")

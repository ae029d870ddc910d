"""Pair comparison: this process does a block of steps when it is told to, and waits while the other arm does its own.

The parent holds the other end of the socket; its end is the end of the run. Between blocks it stops this process and
its workers by a signal, so that a paused arm fetches nothing ahead for free.
"""

from __future__ import annotations

import json
import os
import socket
import time
from typing import Any

from _trainlint_probe.clock import CLOCK, rank


class Lockstep:
    def __init__(self, torch: Any, config: dict[str, Any]) -> None:
        self.torch = torch
        self.address: str = config["lockstep"]["address"]
        self.block: int = config["lockstep"]["block"]
        self.peer: Any = None
        self.started = False
        self.steps = 0
        self.begun_wall = 0
        self.begun_cpu = 0
        self.sums = [0.0, 0.0]
        self.why: set[str] = set()

    def at_boundary(self, n: int) -> None:
        if n <= CLOCK.warmup or CLOCK.finished:
            return
        if not self.started:
            if rank(self.torch) != 0:
                return
            self._connect()
            self.started = True
            self._wait({"ready": os.getpid()})
            return
        self._step_done(n - 1)
        if self.steps >= self.block:
            self._block_done()

    def _connect(self) -> None:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(self.address)
        self.peer = connection.makefile("rw", encoding="ascii")

    def _step_done(self, interval: int) -> None:
        self.steps += 1
        self.why.update(CLOCK.flags.get(interval, ()))
        sums = CLOCK.sums.get(interval, {})
        self.sums[0] += sums.get("loader_ns", 0)
        self.sums[1] += sums.get("samples", 0)

    def _block_done(self) -> None:
        if CLOCK.cuda:
            self.torch.cuda.synchronize()
        self._wait(
            {
                "wall": time.perf_counter_ns() - self.begun_wall,
                "cpu": time.process_time_ns() - self.begun_cpu,
                "steps": self.steps,
                "loader_ns": self.sums[0],
                "samples": self.sums[1],
                "why": sorted(self.why),
            }
        )

    def _wait(self, message: dict[str, Any]) -> None:
        """Report, and sleep until it is this arm's turn. The clock starts after the turn has come."""
        try:
            self.peer.write(json.dumps(message) + "\n")
            self.peer.flush()
            order = self.peer.readline()
        except OSError:
            order = ""
        if not order.startswith("go"):
            CLOCK.finish("steps")
            CLOCK._stop()
        self.steps = 0
        self.sums = [0.0, 0.0]
        self.why = set()
        self.begun_cpu = time.process_time_ns()
        self.begun_wall = time.perf_counter_ns()


def install(torch: Any, config: dict[str, Any]) -> None:
    CLOCK.on_boundary.append(Lockstep(torch, config).at_boundary)

"""Pair comparison: this process does a block of steps when it is told to, and waits while the other arm does its own.

The parent holds the other end of the socket; its end is the end of the run. Between blocks it stops this process and
its workers by a signal, so that a paused arm fetches nothing ahead for free.
"""

from __future__ import annotations

import json
import os
import socket
from typing import Any

from _trainlint_probe.block import Block, settle
from _trainlint_probe.clock import CLOCK, rank


class Lockstep:
    def __init__(self, torch: Any, config: dict[str, Any]) -> None:
        self.torch = torch
        self.address: str = config["lockstep"]["address"]
        self.block: int = config["lockstep"]["block"]
        self.peer: Any = None
        self.started = False
        self.now = Block()

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
        self.now.step_done(n - 1)
        if self.now.steps >= self.block:
            self._block_done()

    def _connect(self) -> None:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(self.address)
        self.peer = connection.makefile("rw", encoding="ascii")

    def _block_done(self) -> None:
        settle(self.torch)
        wall, cpu = self.now.times()
        self._wait(
            {
                "wall": wall,
                "cpu": cpu,
                "steps": self.now.steps,
                "loader_ns": self.now.loader_ns,
                "samples": self.now.samples,
                "why": sorted(self.now.why),
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
        self.now.begin()


def install(torch: Any, config: dict[str, Any]) -> None:
    CLOCK.on_boundary.append(Lockstep(torch, config).at_boundary)

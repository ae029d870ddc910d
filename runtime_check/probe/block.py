"""What happens in a block of steps, from one boundary to another: counted in the same way by every comparison."""

from __future__ import annotations

import time
from typing import Any

from _trainlint_probe.clock import CLOCK


class Block:
    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self.steps = 0
        self.why: set[str] = set()  # why not all of them are plain steps
        self.start_clock()

    def start_clock(self) -> None:
        self.loader_ns = 0.0
        self.samples = 0.0
        self.begun_cpu = time.process_time_ns()
        self.begun_wall = time.perf_counter_ns()

    def step_done(self, interval: int) -> None:
        self.steps += 1
        self.why.update(CLOCK.flags.get(interval, ()))
        sums = CLOCK.counted_in(interval)
        self.loader_ns += sums.get("loader_ns", 0)
        self.samples += sums.get("samples", 0)

    def times(self) -> tuple[int, int]:
        """(wall, on-CPU) nanoseconds since the clock was started."""
        return time.perf_counter_ns() - self.begun_wall, time.process_time_ns() - self.begun_cpu


def settle(torch: Any) -> None:
    """At the ends of a block only: at each step it would be the very wait."""
    if CLOCK.cuda:
        torch.cuda.synchronize()

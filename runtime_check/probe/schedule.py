"""Toggle comparison: changes switched on and off between blocks of steps, inside one process.

Rounds are ABBA (every other one BAAB) and cycle through the slots, one slot at a time, so that all of them share the
process. A block is timed from after the switch to the boundary that ends it: what switching costs is in no arm.
"""

from __future__ import annotations

import time
from typing import Any

from _trainlint_probe import interventions
from _trainlint_probe.block import Block, settle
from _trainlint_probe.clock import CLOCK, world

ON_ACCELERATOR_DROPPED = 2  # first steps of a block, where the queue still holds the other arm's work
PRELUDE = 1  # turns through all slots that do not count: the first use of a kernel or a cache is no step


class Slot:
    """The changes of one finding; an empty slot is the null, which shows how much the machine moves by itself."""

    def __init__(self, torch: Any, changes: list[dict[str, Any]]) -> None:
        self.changes = [interventions.make(torch, facts) for facts in changes]

    def switch(self, on: bool) -> None:
        for change in self.changes:
            change.switch(on)


class Schedule:
    def __init__(self, torch: Any, config: dict[str, Any]) -> None:
        wanted = config["toggle"]
        self.torch = torch
        self.slots = [Slot(torch, changes) for changes in wanted["slots"]]
        self.block: int = wanted["block"]
        self.seconds: float = wanted["seconds"]
        self.most_rounds: int = wanted["rounds"]  # of each slot
        self.swapped: bool = wanted["swapped"]
        self.blocks: list[
            list[Any]
        ] = []  # [slot, round, on, wall ns, cpu ns, steps, loader ns, samples, why not plain]
        self.turn = -PRELUDE * len(self.slots)  # rounds done, all slots together
        self.place = 0  # block within the round
        self.now: Block | None = None  # until the first one starts
        self.begun_ns = 0

    def at_boundary(self, n: int) -> None:
        if n <= CLOCK.warmup or CLOCK.finished:
            return
        if self.now is not None:
            self.now.step_done(n - 1)
            if self.now.steps < self.block:
                if CLOCK.cuda and self.now.steps == ON_ACCELERATOR_DROPPED:
                    settle(self.torch)
                    self.now.start_clock()
                return
            self._block_done(self.now)
        else:
            self.begun_ns = time.perf_counter_ns()
        if self._over():
            self._slot().switch(False)
            CLOCK.finish("steps")
            CLOCK._stop()
        self._start_block()

    def _slot(self) -> Slot:
        return self.slots[self.turn % len(self.slots)]

    def _on(self) -> bool:
        """ABBA, and BAAB on every other round of a slot."""
        reversed_ = ((self.turn // len(self.slots)) % 2 == 1) != self.swapped
        return (self.place in (1, 2)) != reversed_

    def _over(self) -> bool:
        if self.place or self.turn < 0 or self.turn % len(self.slots):
            return False
        if self.turn >= self.most_rounds * len(self.slots):
            return True
        # Ranks that looked at their own clocks would end at different steps, and the last would wait for ever.
        return world(self.torch) == 1 and (time.perf_counter_ns() - self.begun_ns) / 1e9 > self.seconds

    def _start_block(self) -> None:
        self._slot().switch(self._on())
        settle(self.torch)
        self.now = Block()

    def _block_done(self, block: Block) -> None:
        settle(self.torch)
        wall, cpu = block.times()
        steps = block.steps
        if CLOCK.cuda and steps > ON_ACCELERATOR_DROPPED:
            steps -= ON_ACCELERATOR_DROPPED
        if self.turn >= 0:
            slot, round_ = self.turn % len(self.slots), self.turn // len(self.slots)
            counted = [block.loader_ns, block.samples, sorted(block.why)]
            entry = [slot, round_, self._on(), wall, cpu, steps, *counted]
            self.blocks.append(entry)
        self.place += 1
        if self.place == 4:
            self._slot().switch(False)
            self.place = 0
            self.turn += 1

    def record(self) -> dict[str, Any]:
        slots = [
            {
                "used": sum(change.used for change in slot.changes),
                "failure": next((change.failure for change in slot.changes if change.failure), None),
            }
            for slot in self.slots
        ]
        # Where it is: if the script fails now, this change is why.
        at = self.turn % len(self.slots) if self.now is not None and self._on() else None
        return {"toggle": {"blocks": self.blocks, "slots": slots, "block": self.block, "on_at_end": at}}


def install(torch: Any, config: dict[str, Any]) -> None:
    schedule = Schedule(torch, config)
    CLOCK.on_boundary.append(schedule.at_boundary)
    CLOCK.on_finish.append(schedule.record)

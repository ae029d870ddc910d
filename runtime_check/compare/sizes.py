"""How long blocks are and how many rounds there are, from what a step takes. Pure functions."""

from __future__ import annotations

import math
from dataclasses import dataclass

ON_ACCELERATOR = 20  # steps of a block at least, where the device runs ahead of the host
TOGGLE_ROUNDS = (4, 200)  # of each slot and process: fewer make no median, more add little
PAIR_ROUNDS = (3, 20)
PAIR_BLOCK_S = 0.15  # a block of a pair lasts at least this long: handing over takes milliseconds
HANDOVER_S = 0.012  # stopping one arm's processes and waking the other's
PRELUDE_BLOCKS = 4


@dataclass(frozen=True)
class Pace:
    """What the timing pass says of the script."""

    step_s: float
    startup_s: float  # from the launch to the first step
    warmup: int
    cuda: bool = False
    prefetched: int = 0  # batches that the training loader's workers hold ready
    steps: int = 20  # that a launch counts

    @property
    def until_measuring_s(self) -> float:
        return self.startup_s + (self.warmup + 1) * self.step_s


@dataclass(frozen=True)
class Size:
    """One replicate: steps of a block, rounds of each slot, and the seconds after which it ends anyway."""

    block: int
    rounds: int
    seconds: float
    slots: int = 1

    def cost_s(self, pace: Pace) -> float:
        """Wall time of one replicate."""
        blocks = (self.rounds * 4 + PRELUDE_BLOCKS) * self.slots
        return pace.until_measuring_s + blocks * self.block * pace.step_s


def toggle_size(pace: Pace, slots: int, seconds: float, block: int | None = None) -> Size:
    """The most rounds that fit into `seconds` of measuring, all slots together; never fewer than the least."""
    block = block or (ON_ACCELERATOR if pace.cuda else 1)
    fewest, most = TOGGLE_ROUNDS if not pace.cuda else (3, 20)
    rounds = _fitting(seconds, slots * 4 * block * pace.step_s, fewest, most)
    # The rounds are what ends it; the time only guards against steps that turn out slower than they were.
    return Size(block, rounds, 2 * rounds * slots * 4 * block * pace.step_s + 1.0, slots)


def pair_size(pace: Pace, seconds: float, multiple: int = 1) -> Size:
    """Blocks longer than what the workers hold ready: else a block would only empty what waiting has filled."""
    block = max(math.ceil(PAIR_BLOCK_S / pace.step_s), 2 * pace.prefetched + 1, 2)
    block = max(block, ON_ACCELERATOR) if pace.cuda else block
    block = math.ceil(block / multiple) * multiple
    rounds = _fitting(seconds, 4 * (block * pace.step_s + HANDOVER_S), *PAIR_ROUNDS)
    return Size(block, rounds, 2 * rounds * 4 * (block * pace.step_s + HANDOVER_S) + 1.0)


def pair_cost_s(size: Size, pace: Pace) -> float:
    """Both arms start side by side; each warms up, and settles for a block."""
    return 2 * pace.until_measuring_s + (size.rounds * 4 + 2) * (size.block * pace.step_s + HANDOVER_S)


def sequential_cost_s(steps: int, pace: Pace) -> float:
    """Both launches of one replicate."""
    return 2 * (pace.until_measuring_s + steps * pace.step_s)


def _fitting(seconds: float, each: float, fewest: int, most: int) -> int:
    return min(most, max(fewest, int(seconds / each) if each > 0 else most))

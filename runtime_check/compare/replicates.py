"""From timed blocks to one log ratio for each process or pair. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from runtime_check.statistics import median

#: Why a block is no plain one, in the order in which the reasons are given up if they leave fewer than half the rounds.
_NOT_PLAIN = ("eval", "torch.save", "eval_mode", "loader_started")


@dataclass(frozen=True)
class Block:
    """Some steps in a row in one arm."""

    on: bool  # arm B
    wall_ns: float
    cpu_ns: float
    steps: int
    loader_ns: float = 0.0
    samples: float = 0.0
    why: frozenset[str] = frozenset()  # reasons that it is more than training steps

    def cost_ns(self, clock: str, per_sample: bool) -> float:
        spent = self.cpu_ns if clock == "on-CPU" else self.wall_ns
        count = self.samples if per_sample else self.steps
        return spent / count if count else math.nan


#: Four blocks, two of each arm.
Round = Sequence[Block]


@dataclass(frozen=True)
class Replicate:
    """One process or pair: the median over its rounds, and the metric in both arms, in milliseconds."""

    log_ratio: float
    a_ms: float
    b_ms: float
    rounds: int


def replicate(rounds: Iterable[Round], clock: str = "wall", per_sample: bool = False) -> Replicate | None:
    """None without a plain round."""
    ratios, a_ns, b_ns = [], [], []
    for blocks in plain(list(rounds)):
        off = sum(block.cost_ns(clock, per_sample) for block in blocks if not block.on) / 2
        on = sum(block.cost_ns(clock, per_sample) for block in blocks if block.on) / 2
        if off > 0 and on > 0:
            ratios.append(math.log(on / off))
            a_ns.append(off)
            b_ns.append(on)
    if not ratios:
        return None
    return Replicate(median(ratios), median(a_ns) / 1e6, median(b_ns) / 1e6, len(ratios))


def plain(rounds: list[Round]) -> list[Round]:
    """Whole rounds whose blocks hold training steps and nothing else."""
    whole = [blocks for blocks in rounds if sorted(block.on for block in blocks) == [False, False, True, True]]
    reasons = set(_NOT_PLAIN)
    for reason in (*reversed(_NOT_PLAIN), None):
        kept = [blocks for blocks in whole if not any(block.why & reasons for block in blocks)]
        if len(kept) * 2 >= len(whole) or reason is None:
            return kept
        reasons.discard(reason)
    return whole


def toggle_rounds(result: dict[str, Any], slot: int) -> list[Round]:
    """The rounds of one slot of a toggle launch, from the rank's result."""
    rounds: dict[int, list[Block]] = {}
    for number, round_, on, wall, cpu, steps, loader_ns, samples, why in result["toggle"]["blocks"]:
        if number == slot:
            block = Block(on, wall, cpu, steps, loader_ns, samples, frozenset(why))
            rounds.setdefault(round_, []).append(block)
    return list(rounds.values())


def block_of(on: bool, message: dict[str, Any]) -> Block:
    """A block as a process of a pair reports it."""
    return Block(
        on=on,
        wall_ns=message["wall"],
        cpu_ns=message["cpu"],
        steps=message["steps"],
        loader_ns=message["loader_ns"],
        samples=message["samples"],
        why=frozenset(message["why"]),
    )

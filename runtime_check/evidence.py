"""All that the passes saw, and the answer that an experiment gives from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from runtime_check.findings import Finding
from runtime_check.launch import Outcome
from runtime_check.measures import Timing, breakdown, forward_batch, steps_seen, timing, with_batch


class Verdict(str, Enum):
    CONFIRMED = "confirmed"
    REFUTED = "refuted"
    INCONCLUSIVE = "inconclusive"
    NOT_RUN = "not_run"


@dataclass(frozen=True)
class Answer:
    """What the run says of one claim. `why` always holds the number that decided."""

    verdict: Verdict
    why: str
    metric: str = ""  # what was tested: syncs_per_step, eval_graph_bytes, loader_wait_share, ...
    evidence: dict[str, Any] = field(default_factory=dict)
    effect: dict[str, Any] | None = None  # of the change, where a comparison was made: `compare.answers.effect_record`


@dataclass(frozen=True)
class Evidence:
    """Outcomes of the passes; a pass that was not launched or did not step is None."""

    min_effect: float
    cuda: bool
    observed: Outcome | None = None  # syncs and behaviours
    memory: Outcome | None = None
    broken_down: Outcome | None = None
    timed: Outcome | None = None
    spawned: Outcome | None = None
    timed_again: tuple[Outcome, ...] = ()  # more processes of the timing pass (--repeat)
    failed: Outcome | None = None  # the launch in which the script failed before its first step

    def ranks(self, outcome: Outcome | None) -> list[dict[str, Any]]:
        return outcome.results if outcome is not None else []

    def first(self, outcome: Outcome | None) -> dict[str, Any] | None:
        ranks = self.ranks(outcome)
        return ranks[0] if ranks else None

    @property
    def timing(self) -> Timing | None:
        result = self.first(self.timed)
        measured = timing(result) if result is not None else None
        if measured is None or measured.batch_size is not None:
            return measured
        # Without a loader the batch is what the forward was given, which only the breakdown looks at.
        other = self.first(self.broken_down)
        return with_batch(measured, forward_batch(other)) if other is not None else measured

    @property
    def shares(self) -> dict[str, float] | None:
        result = self.first(self.broken_down)
        return breakdown(result) if result is not None else None

    @property
    def wait_shares(self) -> tuple[float, float] | None:
        """Least and largest share of the step that a pass spent waiting for data.

        Two launches look at it. A stall of the machine falls into one of them, a slow loader shows in both.
        """
        timing = self.timing
        if timing is None:
            return None
        shares = [timing.wait_share]
        if self.shares is not None:
            shares.append(self.shares["loader"])
        return min(shares), max(shares)

    @property
    def observed_steps(self) -> int:
        return max((steps_seen(result) for result in self.ranks(self.observed)), default=0)

    @property
    def collective_steps(self) -> int:
        """Steps in which collectives were counted: those that were asked for, not those on the way to an evaluation."""
        result = self.first(self.observed)
        return 0 if result is None else int(result.get("collective_steps", self.observed_steps))

    @property
    def micro_batches(self) -> float:
        """Backwards for each step of the anchor. By the timing pass: the others end epochs early."""
        result = self.first(self.timed) or self.first(self.observed)
        if result is None or result.get("anchor") is None:
            return 1.0
        return float(result["backwards"]) / max(1, int(result["optimizers"][result["anchor"]]["steps"]))


#: An experiment: the finding's claim against what was seen.
Experiment = Callable[[Finding, Evidence], Answer]


def no_steps(what: str) -> Answer:
    return Answer(Verdict.INCONCLUSIVE, f"the run gave no {what}: it had no step after the warm-up")

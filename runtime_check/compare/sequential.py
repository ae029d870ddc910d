"""Sequential experiments: whole launches one after the other, A B B A, for what has several ranks.

Ranks cannot be stopped one by one (their peers would wait, and time out), so nothing runs side by side. Two launches in
a row drift apart more than two in lockstep do: intervals are wider, and say so.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

from runtime_check.compare.records import Proposal, Samples
from runtime_check.compare.replicates import Replicate
from runtime_check.compare.toggle import samples_of, why_no_effect
from runtime_check.launch import Outcome, Pass, Session
from runtime_check.measures import timing
from runtime_check.statistics import median


class Sequential:
    """`replicate` runs each arm once more; every other time the arm with the change goes first."""

    def __init__(self, session: Session, proposal: Proposal) -> None:
        self.session = session
        self.proposal = proposal
        self.outcomes: list[Outcome] = []
        self._runs = (Pass("sequential A"), arm_with(proposal))
        self._found: list[Replicate] = []
        self._seconds: list[float] = []
        self._failure: str | None = None
        self._tried = 0

    def replicate(self) -> None:
        begun = time.monotonic()
        order = (0, 1) if self._tried % 2 == 0 else (1, 0)
        self._tried += 1
        arms: dict[int, Outcome] = {}
        for which in order:
            arms[which] = self.session.launch(self._runs[which])
        self._seconds.append(time.monotonic() - begun)
        self.outcomes += [arms[0], arms[1]]
        self._failure = self._failure or failure_of(self.proposal, arms[1])
        one = pair_of(arms[0].results, arms[1].results, self.proposal.metric)
        if one is not None:
            self._found.append(one)

    def samples(self) -> list[Samples]:
        return [samples_of(self.proposal, self._found, "wall", median(self._seconds), self._failure)]


def arm_with(proposal: Proposal) -> Pass:
    change = proposal.change
    extra: dict[str, Any] = {} if change.kind == "source" else {"changes": [change.for_probe()]}
    return Pass("sequential B", extra=extra, overlay=change.overlay, launcher=change.parameters.get("launcher"))


def failure_of(proposal: Proposal, outcome: Outcome) -> str | None:
    """Of arm B: it made no step, or the change took no effect in it."""
    if not outcome.stepped:
        last = outcome.log_tail.rstrip().splitlines()[-1:]
        return f"the script with the change made no step ({' '.join(last).strip()[:160]})"
    facts = outcome.results[0].get("changes", ())
    return why_no_effect(proposal, facts[0]) if facts else None


def pair_of(a: Sequence[dict[str, Any]], b: Sequence[dict[str, Any]], metric: str) -> Replicate | None:
    """One log ratio of two launches' results, all ranks of each. None: one of them has no step that counts."""
    cost_a, cost_b = cost_ms(a, metric), cost_ms(b, metric)
    if cost_a is None or cost_b is None:
        return None
    return Replicate(math.log(cost_b / cost_a), cost_a, cost_b, 1)


def cost_ms(ranks: Sequence[dict[str, Any]], metric: str) -> float | None:
    """Milliseconds of a step on the slowest rank; for "sample_time" by the samples that all ranks take in a step."""
    measured = [one for one in (timing(result) for result in ranks) if one is not None]
    if not measured or len(measured) < len(ranks):
        return None
    slowest = max(one.median_ms for one in measured)
    if metric != "sample_time":
        return slowest
    batch = sum(one.batch_size or 0.0 for one in measured)
    return slowest / batch if batch else None

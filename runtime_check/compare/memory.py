"""Memory experiments: bytes are counted in a run as it is and in a run with the change, two of each.

A count has no noise of its own, so there is no t interval: the range over the runs is what the script itself varies by
(data of varying length, threads), and the verdict is taken from the range.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from runtime_check.compare.records import Decision, Design, Effect, Proposal
from runtime_check.compare.toggle import why_no_effect
from runtime_check.compare.verdicts import says, verdict_of
from runtime_check.evidence import Verdict
from runtime_check.experiments.memory import NOISE_BYTES, growth_per_step
from runtime_check.launch import Outcome, Pass, Session
from runtime_check.statistics import median, slope

RUNS = 2  # of each arm
GROWTH = ("growth_per_step", "growth_per_eval_batch")


class Memory:
    """`replicate` makes one more run of the arm that has fewer; `decide` answers once both have `RUNS`."""

    def __init__(self, session: Session, proposal: Proposal, baseline: Sequence[Outcome] = ()) -> None:
        self.session = session
        self.proposal = proposal
        self.a = [outcome for outcome in baseline if outcome.stepped]
        self.b: list[Outcome] = []
        self.outcomes: list[Outcome] = []

    @property
    def complete(self) -> bool:
        return len(self.a) >= RUNS and len(self.b) >= RUNS

    def replicate(self) -> Outcome:
        changed = len(self.b) <= len(self.a) and len(self.b) < RUNS
        outcome = self.session.launch(memory_pass(self.proposal if changed else None))
        (self.b if changed else self.a).append(outcome)
        self.outcomes.append(outcome)
        return outcome

    def failure(self) -> str | None:
        """Why nothing can be decided, as far as the runs of arm B show it."""
        for outcome in self.b:
            if not outcome.stepped:
                last = outcome.log_tail.rstrip().splitlines()[-1:]
                return f"the script with the change made no step ({' '.join(last).strip()[:160]})"
            for result in outcome.results[:1]:
                for facts in result.get("changes", ())[:1]:
                    reason = why_no_effect(self.proposal, facts)
                    if reason is not None:
                        return reason
        return None

    def decide(self, delta: float) -> Decision:
        failure = self.failure()
        if failure is not None:
            return Decision(self.proposal, Verdict.NOT_RUN, failure)
        metric = self.proposal.metric
        a = [value for value in (measure(outcome, metric) for outcome in self.a) if value is not None]
        b = [value for value in (measure(outcome, metric) for outcome in self.b) if value is not None]
        return decide_counted(self.proposal, a, b, delta)


def memory_pass(proposal: Proposal | None) -> Pass:
    """The memory pass of the observing half, with the change in place."""
    if proposal is None:
        return Pass("memory", ("memory",), until_eval=True)
    change = proposal.change
    extra = {} if change.kind == "source" else {"changes": [change.for_probe()]}
    return Pass("memory B", ("memory",), until_eval=True, extra=extra, overlay=change.overlay)


def decide_counted(proposal: Proposal, a: Sequence[float], b: Sequence[float], delta: float) -> Decision:
    """`a`, `b`: bytes in the runs of each arm. Pure."""
    title = proposal.change.title
    if not a or not b:
        what = "evaluation" if "eval" in proposal.metric else "step"
        return Decision(proposal, Verdict.INCONCLUSIVE, f"{title}: no {what} was reached in the steps that ran")
    if proposal.metric in GROWTH:
        if max(a) <= NOISE_BYTES:
            effect = _effect(proposal, a, b, 0.0, 0.0)
            return Decision(proposal, Verdict.REFUTED, f"memory does not grow: {title} changes nothing", effect)
        a, b = [max(value, 0.0) for value in a], [max(value, 0.0) for value in b]
    if min(a) <= 0:
        return Decision(proposal, Verdict.INCONCLUSIVE, f"{title}: nothing was counted in the run as it is")
    effect = _effect(proposal, a, b, 1 - max(b) / min(a), 1 - min(b) / max(a))
    verdict = verdict_of(effect.low, effect.high, delta)
    settle = None
    if verdict is Verdict.INCONCLUSIVE:
        settle = "the counts differ from run to run: fixed shapes and a fixed --seed would settle it"
    return Decision(proposal, verdict, says(effect, title, verdict, delta), effect, settle)


def _effect(proposal: Proposal, a: Sequence[float], b: Sequence[float], low: float, high: float) -> Effect:
    middle_a, middle_b = median(list(a)), median(list(b))
    return Effect(
        metric=proposal.metric,
        design=Design.MEMORY,
        a=middle_a,
        b=middle_b,
        unit="bytes",
        saving=1 - middle_b / middle_a if middle_a else 0.0,
        low=low,
        high=high,
        confidence=1.0,
        replicates=min(len(a), len(b)),
        rounds=0,
        clock="counted",
        a_each=tuple(a),
        b_each=tuple(b),
    )


def measure(outcome: Outcome, metric: str) -> float | None:
    """Bytes of `metric` in one run: the allocator's on CUDA, live tensors' else. None: not reached."""
    for result in outcome.results[:1]:
        value = _measure(result, metric)
        if value is not None and math.isfinite(value):
            return float(value)
    return None


def _measure(result: dict[str, Any], metric: str) -> float | None:
    memory = result.get("memory")
    if memory is None:
        return None
    if metric == "growth_per_step":
        rise = growth_per_step(result)
        return None if rise is None else rise.value
    if metric == "growth_per_eval_batch":
        rise = slope(memory["eval_bytes"])
        return None if rise is None else rise.value
    cuda = result.get("cuda_memory")
    if cuda:
        counted = [step["allocated"] for step in cuda["steps"] if step["step"] > result["warmup"]]
        phases: dict[str, float] = {**cuda["phases"], "train": max(counted, default=0)}
    else:
        phases = {phase: facts["peak"] for phase, facts in memory["phases"].items()}
        phases["train"] = max(phases.get("start", 0), phases.get("train", 0))
    return phases.get("eval" if metric == "eval_peak_bytes" else "train") or None

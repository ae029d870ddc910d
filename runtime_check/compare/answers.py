"""Findings, what was observed of them, and what the comparisons say: one answer for each. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from runtime_check.compare.proposals import propose
from runtime_check.compare.records import Comparisons, Decision, Effect, Noise, Proposal
from runtime_check.evidence import Answer, Evidence, Verdict
from runtime_check.findings import Finding
from runtime_check.measures import cores_text

Answered = tuple[Finding, Answer]


def proposals_for(answers: Sequence[Answered], evidence: Evidence) -> list[Proposal]:
    """Comparisons for what the observation has not refuted already: the cheap exits come first."""
    proposals = []
    for finding, answer in answers:
        if answer.verdict is Verdict.REFUTED:
            continue
        proposal = propose(finding, evidence)
        if proposal is not None:
            proposals.append(proposal)
    return proposals


def with_comparisons(answers: Sequence[Answered], comparisons: Comparisons) -> list[Answered]:
    by_finding: dict[int, Decision] = {
        id(decision.proposal.finding): decision
        for decision in comparisons.decisions
        if decision.proposal.finding is not None
    }
    return [(finding, _joined(answer, by_finding.get(id(finding)))) for finding, answer in answers]


def _joined(answer: Answer, decision: Decision | None) -> Answer:
    """A comparison that was made decides; one that could not be made leaves the observation as it is, and says so."""
    if decision is None:
        return answer
    if decision.verdict is Verdict.NOT_RUN:
        if answer.verdict is Verdict.NOT_RUN:
            return replace(answer, why=decision.why)
        return replace(answer, why=f"{answer.why}; {decision.why}")
    observed = f"; observed: {answer.why}" if answer.verdict is not Verdict.NOT_RUN else ""
    settle = (
        f" (to settle it: {decision.settle})" if decision.settle and decision.verdict is Verdict.INCONCLUSIVE else ""
    )
    return Answer(
        verdict=decision.verdict,
        why=f"{decision.why}{settle}{observed}",
        metric=decision.proposal.metric,
        evidence=answer.evidence,
        effect=effect_record(decision),
    )


def effect_record(decision: Decision) -> dict[str, Any]:
    """The comparison as the JSON report has it. Shares are of the metric as it is; times in ms, sizes in bytes."""
    change = decision.proposal.change
    record: dict[str, Any] = {
        "change": {"kind": change.kind, "title": change.title, **change.parameters},
        "design": decision.proposal.design.value,
        "metric": decision.proposal.metric,
        "upper_bound": decision.proposal.upper_bound,
        "settle": decision.settle,
    }
    if decision.effect is not None:
        record.update(_numbers(decision.effect))
    return record


def _numbers(effect: Effect) -> dict[str, Any]:
    return {
        "a": _finite(effect.a),
        "b": _finite(effect.b),
        "unit": effect.unit,
        "saving": _finite(effect.saving),
        "interval": [_finite(effect.low), _finite(effect.high)],
        "confidence": effect.confidence,
        "replicates": effect.replicates,
        "rounds": effect.rounds,
        "clock": effect.clock,
        "p_value": _finite(effect.p_value),
        "savings": [_finite(value) for value in effect.savings],
        "a_each": [_finite(value) for value in effect.a_each],
        "b_each": [_finite(value) for value in effect.b_each],
    }


def _finite(value: float | None) -> float | None:
    """JSON has no infinity."""
    if value is None or value != value or value in (float("inf"), float("-inf")):
        return None
    return round(value, 6)


def noise_line(noise: Noise) -> str:
    """How much the machine moved: printed with every comparison."""
    parts = []
    if noise.load is not None:
        parts.append(f"load {noise.load:.1f} on {cores_text(noise.cpus)}")
    if noise.null_half_width is not None:
        parts.append(f"a change of nothing measured {noise.null_saving or 0:+.1%} ± {noise.null_half_width:.1%}")
    if noise.clock == "on-CPU":
        parts.append("times are on-CPU times, since the machine is busy")
    if noise.threads:
        parts.append(f"both arms with {noise.threads} thread, since the machine is busy")
    if noise.biased:
        parts.append("no verdict of the toggled findings is given")
    return f"noise: {'; '.join(parts)}" if parts else ""

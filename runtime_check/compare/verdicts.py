"""The rule that turns log ratios into confirmed, refuted or inconclusive. Pure functions.

Claim: the change saves at least `delta` of the metric. The interval of the saving wholly beyond delta confirms it,
wholly short of it refutes it ("saves at most x %"), across it leaves it open, with what would settle it. Looks before
the last one use 99 %. Confirmations of several findings tested together stand only if they pass Holm's procedure.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace

from runtime_check.compare.intervals import p_below, replicates_needed, t_interval
from runtime_check.compare.records import Decision, Effect, Samples
from runtime_check.evidence import Verdict
from runtime_check.measures import bytes_text

FEWEST = 5  # replicates before anything is said
CONFIDENCE = 0.95
CONFIDENCE_OF_EARLY_LOOK = 0.99


def verdict_of(low: float, high: float, delta: float) -> Verdict:
    """`low` and `high` of the saving, as shares; `delta` is the least saving that counts."""
    if low > delta:
        return Verdict.CONFIRMED
    if high < delta:
        return Verdict.REFUTED
    return Verdict.INCONCLUSIVE


def effect_of(samples: Samples, delta: float, confidence: float = CONFIDENCE) -> Effect:
    interval = t_interval(samples.log_ratios, confidence)
    return Effect(
        metric=samples.proposal.metric,
        design=samples.proposal.design,
        a=samples.a,
        b=samples.b,
        unit=samples.unit,
        saving=_saving(interval.mean),
        low=_saving(interval.high),
        high=_saving(interval.low),
        confidence=confidence,
        replicates=interval.n,
        rounds=samples.rounds,
        clock=samples.clock,
        p_value=p_below(samples.log_ratios, math.log1p(-delta)),
        savings=tuple(_saving(ratio) for ratio in samples.log_ratios),
        a_each=samples.a_each,
        b_each=samples.b_each,
    )


def decide(measured: Sequence[Samples], delta: float, last_look: bool = True) -> list[Decision]:
    """One decision for each of `measured`, in their order."""
    confidence = CONFIDENCE if last_look else CONFIDENCE_OF_EARLY_LOOK
    decisions = [_decide(samples, delta, confidence) for samples in measured]
    return holm(decisions, measured, delta, 1.0 - confidence)


def settled(decisions: Sequence[Decision]) -> bool:
    """Nothing is left that more replicates could decide."""
    return all(decision.verdict is not Verdict.INCONCLUSIVE or decision.effect is None for decision in decisions)


def _decide(samples: Samples, delta: float, confidence: float) -> Decision:
    proposal = samples.proposal
    if samples.failure is not None:
        return Decision(proposal, Verdict.NOT_RUN, samples.failure)
    if len(samples.log_ratios) < FEWEST:
        text = f"{proposal.change.title}: only {len(samples.log_ratios)} of {FEWEST} replicates could be measured"
        return Decision(proposal, Verdict.INCONCLUSIVE, text, settle="a longer --budget")
    effect = effect_of(samples, delta, confidence)
    verdict = verdict_of(effect.low, effect.high, delta)
    if verdict is Verdict.CONFIRMED and proposal.upper_bound:
        # What was left out is more than a fix could leave out: it bounds the gain, and cannot show it.
        why = f"{says(effect, proposal.change.title, verdict, delta)}; an upper bound: its value steers the script"
        return Decision(proposal, Verdict.INCONCLUSIVE, why, effect, "reading the code at this line")
    settle = _settle(samples, effect, delta) if verdict is Verdict.INCONCLUSIVE else None
    return Decision(proposal, verdict, says(effect, proposal.change.title, verdict, delta), effect, settle)


def holm(
    decisions: Sequence[Decision], measured: Sequence[Samples], delta: float, alpha: float = 0.05
) -> list[Decision]:
    """Holm's step-down procedure over all that was tested, one-sided at `alpha / 2` as the intervals are.

    A confirmation that does not pass becomes inconclusive; a refutation is left alone.
    """
    tested = [n for n, decision in enumerate(decisions) if decision.effect is not None]
    ordered = sorted(tested, key=lambda n: _p_value(decisions[n]))
    kept = list(decisions)
    standing = True
    for rank, n in enumerate(ordered):
        standing = standing and _p_value(decisions[n]) <= alpha / 2 / (len(ordered) - rank)
        if not standing and decisions[n].verdict is Verdict.CONFIRMED:
            why = f"{decisions[n].why}, which does not stand among {len(ordered)} findings tested together"
            settle = _settle(measured[n], _effect(decisions[n]), delta) or "--only with this finding, or a --budget"
            kept[n] = replace(decisions[n], verdict=Verdict.INCONCLUSIVE, why=why, settle=settle)
    return kept


def says(effect: Effect, title: str, verdict: Verdict, delta: float) -> str:
    """The sentence for a person: the number that decided, with its interval."""
    what = METRICS.get(effect.metric, effect.metric)
    span = f"[{_percent(effect.low)}, {_percent(effect.high)}]"
    of = f"{_amount(effect.a, effect.unit)} -> {_amount(effect.b, effect.unit)}"
    clock = " (on-CPU time, since the machine is busy)" if effect.clock == "on-CPU" else ""
    if verdict is Verdict.CONFIRMED:
        return f"this costs {_percent(effect.saving)} % of {what} {span}{clock}: {title}, {of}"
    if verdict is Verdict.REFUTED and effect.high < 0:
        return f"{title} makes it worse: {what} {_percent(-effect.saving)} % more {_mirrored(effect)}{clock}, {of}"
    if verdict is Verdict.REFUTED:
        most = f"{max(0.0, 100 * effect.high):.1f}"
        return f"{title} saves at most {most} % of {what} here {span}{clock}, less than the {delta:.0%} that count"
    return f"{title} saves {_percent(effect.saving)} % of {what} {span}{clock}, across the {delta:.0%} that count"


def duration(seconds: float) -> str:
    """As `--budget` takes it, rounded up."""
    return f"{max(1, math.ceil(seconds / 60))}m" if seconds >= 60 else f"{max(10, math.ceil(seconds / 10) * 10)}s"


METRICS = {
    "step_time": "step time",
    "sample_time": "the time per sample",
    "train_peak_bytes": "peak memory in training",
    "eval_peak_bytes": "peak memory in evaluation",
    "growth_per_step": "memory growth per step",
    "growth_per_eval_batch": "memory growth per evaluation batch",
}


def _settle(samples: Samples, effect: Effect, delta: float) -> str | None:
    """How many more replicates would move the interval off delta, if the mean stays where it is."""
    values = samples.log_ratios
    if len(values) < 2:
        return None
    distance = abs(statistics.fmean(values) - math.log1p(-delta))
    needed = replicates_needed(statistics.stdev(values), distance)
    unit = "pairs" if samples.proposal.design.value in ("pairs", "sequential") else "processes"
    half = 100 * (effect.high - effect.low) / 2
    if needed is None or needed > 60:
        return f"the effect lies too near {delta:.0%} (half-width {half:.1f} %): another --min-effect, or a quieter machine"
    needed = max(needed, len(values) + 1)
    seconds = needed * samples.seconds_each
    return f"half-width {half:.1f} %; about {needed} {unit} would settle it: --budget {duration(seconds)}"


def _saving(log_ratio: float) -> float:
    """Log of B over A -> the share of A that B saves."""
    if log_ratio == math.inf:
        return -math.inf
    return -math.expm1(log_ratio) if log_ratio < 700 else -math.inf


def _p_value(decision: Decision) -> float:
    effect = decision.effect
    return 1.0 if effect is None or effect.p_value is None else effect.p_value


def _effect(decision: Decision) -> Effect:
    assert decision.effect is not None
    return decision.effect


def _percent(share: float) -> str:
    if not math.isfinite(share):
        return "-inf" if share < 0 else "inf"
    value = 100 * share
    return f"{value:.0f}" if abs(value) >= 9.95 else f"{value:.1f}"


def _mirrored(effect: Effect) -> str:
    return f"[{_percent(-effect.high)}, {_percent(-effect.low)}]"


def _amount(value: float, unit: str) -> str:
    if unit == "bytes":
        return bytes_text(value)
    return f"{value:.2f} {unit}" if value < 100 else f"{value:.0f} {unit}"

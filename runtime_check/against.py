"""A report against an earlier one, for CI: what has become worse, by the rule that findings are judged by. Pure.

Claim: the metric is at least delta higher than it was. An interval wholly beyond delta is a regression, one wholly
short of it is none, one across it leaves it open. Bytes and calls are counted and need no interval. Times need several
processes in both reports (`--repeat 5`), since the process is the replicate, and the same machine.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from runtime_check.compare.intervals import t_quantile
from runtime_check.compare.verdicts import CONFIDENCE, FEWEST
from runtime_check.experiments.memory import NOISE_BYTES
from runtime_check.measures import bytes_text, cores_text

SCHEMA = "trainlint-verify/1"
HALF_A_CALL = 0.5  # per step: a call on fewer than half of the steps is no call of every step
OTHERS_DIFFER = 0.1  # of the processors: what other programs may take more or less than before
SAME_HOST = ("cpu", "cpus", "gpu", "torch", "cuda", "threads", "shim")


class Change(str, Enum):
    REGRESSION = "regression"
    NONE = "no regression"
    IMPROVEMENT = "improvement"
    OPEN = "inconclusive"
    NOT_COMPARED = "not compared"


@dataclass(frozen=True)
class Metric:
    """One metric then and now. `change`, `low` and `high` are shares of what it was; positive: more than it was."""

    name: str
    verdict: Change
    why: str
    before: float | None = None
    after: float | None = None
    unit: str = ""
    change: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Listed:
    """A finding whose verdict is another one than it was."""

    code: str
    place: str
    why: str
    was: str  # its verdict in the earlier report; "absent"
    regression: bool


@dataclass(frozen=True)
class Against:
    source: str  # how the earlier report was named
    made_at: str
    metrics: tuple[Metric, ...]
    newly_confirmed: tuple[Listed, ...]

    @property
    def regressed(self) -> bool:
        return any(metric.verdict is Change.REGRESSION for metric in self.metrics) or any(
            finding.regression for finding in self.newly_confirmed
        )

    @property
    def said(self) -> str:
        return said(self.as_object())

    def lines(self) -> list[str]:
        """For a person."""
        lines = [f"{metric.name}: {metric.verdict.value}: {metric.why}" for metric in self.metrics]
        for finding in self.newly_confirmed:
            word = "regression" if finding.regression else "newly confirmed"
            was = "not there before" if finding.was == "absent" else f"was {finding.was.replace('_', ' ')}"
            lines.append(f"{finding.code} {finding.place}: {word}: confirmed, {was}")
        return lines

    def as_object(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "made_at": self.made_at,
            "regressed": self.regressed,
            "metrics": [{**asdict(metric), "verdict": metric.verdict.value} for metric in self.metrics],
            "newly_confirmed": [asdict(finding) for finding in self.newly_confirmed],
        }


def said(stored: dict[str, Any]) -> str:
    """What stands before the name of the earlier report, of `as_object`. What could not be settled is no "no regression"."""
    if stored["regressed"]:
        return "worse than"
    unsettled = [metric["name"] for metric in stored["metrics"] if metric["verdict"] == Change.OPEN.value]
    return f"no regression seen, {', '.join(unsettled)} not settled, against" if unsettled else "no regression against"


def read_report(text: str) -> dict[str, Any]:
    """Raises ValueError, with what is wrong, for what is no report of this schema."""
    try:
        report = json.loads(text)
    except ValueError as error:
        raise ValueError(f"no JSON: {error}") from error
    schema = report.get("schema") if isinstance(report, dict) else None
    if schema != SCHEMA:
        named = f"schema {schema}" if schema else "no schema"
        raise ValueError(f"a report with {named}; this version reads {SCHEMA} (--output-format json writes it)")
    return dict(report)


def against(before: dict[str, Any], after: dict[str, Any], source: str) -> Against:
    delta = float(after.get("min_effect") or before.get("min_effect") or 0.03)
    metrics = [
        _time(before, after, delta),
        *_memory(before, after, delta),
        _growth(before, after),
        _syncs(before, after),
    ]
    return Against(
        source=source,
        made_at=str(before.get("made_at") or ""),
        metrics=tuple(metric for metric in metrics if metric is not None),
        newly_confirmed=tuple(_newly_confirmed(before, after)),
    )


def _time(before: dict[str, Any], after: dict[str, Any], delta: float) -> Metric | None:
    """Milliseconds a step, by process; per sample where the batch size is another one."""
    old, new = _processes(before), _processes(after)
    if not old and not new:
        return None
    name, unit = "step time", "ms"
    if not old or not new:
        return Metric(name, Change.NOT_COMPARED, "one of the reports has no step time")
    sizes = {process.get("batch_size") for process in (*old, *new)}
    a, b = [float(p["step_ms"]) for p in old], [float(p["step_ms"]) for p in new]
    if len(sizes) > 1 and None not in sizes:
        name, unit = "time per sample", "ms per sample"
        a = [value / p["batch_size"] for value, p in zip(a, old, strict=True)]
        b = [value / p["batch_size"] for value, p in zip(b, new, strict=True)]
    before_ms, after_ms = statistics.median(a), statistics.median(b)

    def metric(verdict: Change, why: str, low: float | None = None, high: float | None = None) -> Metric:
        return Metric(name, verdict, why, before_ms, after_ms, unit, after_ms / before_ms - 1, low, high)

    moved = f"{_number(before_ms)} -> {_number(after_ms)} {unit}"
    other = _other_host(before, after)
    if other is not None:
        return metric(Change.NOT_COMPARED, f"{moved}, {other}")
    busy = _busy(before, "the earlier report") or _busy(after, "this report") or _busier(before, after)
    if busy is not None:
        return metric(Change.OPEN, f"{moved}, {busy}")
    if min(len(a), len(b)) < FEWEST:
        few = f"{len(a)} and {len(b)} processes, and {FEWEST} are the least that tell: --repeat {FEWEST}, for both reports"
        return metric(Change.OPEN, f"{moved}, {few}")
    low, high = welch([math.log(value) for value in a], [math.log(value) for value in b])
    verdict = verdict_of(math.expm1(low), math.expm1(high), delta)
    span = f"{after_ms / before_ms - 1:+.1%} [{math.expm1(low):+.1%}, {math.expm1(high):+.1%}]"
    across = f", across the {delta:.0%} that count" if verdict is Change.OPEN else ""
    return metric(verdict, f"{moved}, {span}{across}", math.expm1(low), math.expm1(high))


def verdict_of(low: float, high: float, delta: float) -> Change:
    """`low` and `high` of the rise, as shares."""
    if low > delta:
        return Change.REGRESSION
    if high < -delta:
        return Change.IMPROVEMENT
    return Change.NONE if high < delta else Change.OPEN


def welch(before: Sequence[float], after: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Interval of the difference of two means, after - before; the variances may differ."""
    parts = [(statistics.variance(values) / len(values), len(values) - 1) for values in (before, after)]
    error = sum(part for part, _ in parts)
    difference = statistics.fmean(after) - statistics.fmean(before)
    if error == 0.0:
        return difference, difference
    freedom = error**2 / sum(part**2 / n for part, n in parts)
    reach = t_quantile(0.5 + confidence / 2, max(1, math.floor(freedom))) * math.sqrt(error)
    return difference - reach, difference + reach


def _memory(before: dict[str, Any], after: dict[str, Any], delta: float) -> list[Metric | None]:
    return [_peak(before, after, delta, phase) for phase in ("train", "eval")]


def _peak(before: dict[str, Any], after: dict[str, Any], delta: float, phase: str) -> Metric | None:
    old, new = ((report.get("baseline") or {}).get("peak_bytes", {}).get(phase) for report in (before, after))
    if not old or not new:
        return None
    rise = new / old - 1
    verdict = verdict_of(rise, rise, delta)
    name = f"peak memory in {'training' if phase == 'train' else 'evaluation'}"
    why = f"{bytes_text(old)} -> {bytes_text(new)}, {rise:+.1%}"
    return Metric(name, verdict, why, old, new, "bytes", rise, rise, rise)


def _growth(before: dict[str, Any], after: dict[str, Any]) -> Metric | None:
    old, new = ((report.get("baseline") or {}).get("growth_bytes_per_step") for report in (before, after))
    if old is None or new is None:
        return None
    worse = new > NOISE_BYTES and new > old + NOISE_BYTES
    better = old > NOISE_BYTES and new <= NOISE_BYTES
    verdict = Change.REGRESSION if worse else Change.IMPROVEMENT if better else Change.NONE
    return Metric("memory growth", verdict, f"{bytes_text(old)} -> {bytes_text(new)} a step", old, new, "bytes a step")


def _syncs(before: dict[str, Any], after: dict[str, Any]) -> Metric | None:
    old, new = ((report.get("baseline") or {}).get("syncs_per_step") for report in (before, after))
    if old is None or new is None:
        return None
    verdict = Change.NONE
    if abs(new - old) >= HALF_A_CALL:
        verdict = Change.REGRESSION if new > old else Change.IMPROVEMENT
    why = f"{old:.2f} -> {new:.2f} a step"
    return Metric("host-device synchronisations", verdict, why, old, new, "calls a step")


def _newly_confirmed(before: dict[str, Any], after: dict[str, Any]) -> list[Listed]:
    """Confirmed now and not then. One that the earlier run could not settle is listed, and is no regression."""
    was = {f.get("id"): str(f["verdict"]) for f in before.get("findings", ())}
    was.update({f.get("id"): "not_run" for f in before.get("not_run", ())})
    found = []
    for finding in after.get("findings", ()):
        then = was.get(finding["id"], "absent") if finding.get("id") else "absent"
        if finding["verdict"] == "confirmed" and then != "confirmed":
            base = str(after.get("cwd", "")) + "/"
            place = f"{str(finding['file']).removeprefix(base)}:{finding['line']}"
            found.append(Listed(finding["code"], place, finding["why"], then, then in ("absent", "refuted")))
    return found


def _processes(report: dict[str, Any]) -> list[dict[str, Any]]:
    return list((report.get("baseline") or {}).get("processes", ()))


def _other_host(before: dict[str, Any], after: dict[str, Any]) -> str | None:
    old, new = before.get("host", {}), after.get("host", {})
    for name in SAME_HOST:
        if old.get(name) != new.get(name):
            return f"but {name} is {new.get(name)} and was {old.get(name)}: times of two machines tell nothing"
    return None


def _busy(report: dict[str, Any], named: str) -> str | None:
    host = report.get("host", {})
    load, cpus = (host.get("load") or [0.0])[0], host.get("cpus") or 1
    return f"but the machine was busy for {named}: load {load:.1f} on {cores_text(cpus)}" if load > cpus else None


def _busier(before: dict[str, Any], after: dict[str, Any]) -> str | None:
    """Other programs took more of the machine in one report than in the other: whose doing the change is cannot be told."""
    old, new = ((report.get("utilisation") or {}).get("others_cpus") for report in (before, after))
    cpus = after.get("host", {}).get("cpus") or 1
    if old is None or new is None or abs(new - old) <= OTHERS_DIFFER * cpus:
        return None
    return f"but other programs took {new:.1f} of {cores_text(cpus)}, and {old:.1f} for the earlier report"


def _number(value: float) -> str:
    return f"{value:.2f}" if value >= 1 else f"{value:.4f}"

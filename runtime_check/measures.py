"""What a rank's result says, in milliseconds, bytes and shares."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from runtime_check.statistics import median, quantile, share

# : Why an interval is no plain step, in the order in which the reasons are given up if they leave fewer than half of
# the steps.
_NOT_PLAIN = ("eval", "torch.save", "eval_mode", "loader_started")

PHASES = ("loader", "host_to_device", "forward", "backward", "optimizer")


@dataclass(frozen=True)
class Timing:
    """Plain steps of one rank after the warm-up."""

    steps_ms: tuple[float, ...]
    wait_share: float  # of the time of the plain steps, waiting for a loader
    samples_per_s: float | None
    tokens_per_s: float | None
    batch_size: float | None  # samples of a step
    excluded: dict[str, int]
    cpu_share: float  # of one core
    cuda_ms: tuple[float, ...] = ()
    to_backward_each: tuple[float, ...] = ()  # milliseconds from a step's start to its first backward

    @property
    def median_ms(self) -> float:
        return median(self.steps_ms)

    @property
    def p10_ms(self) -> float:
        return quantile(self.steps_ms, 0.1)

    @property
    def p90_ms(self) -> float:
        return quantile(self.steps_ms, 0.9)

    @property
    def to_backward_ms(self) -> float | None:
        return median(self.to_backward_each) if self.to_backward_each else None

    @property
    def jitter(self) -> float:
        """Spread of the middle 80 % of the steps, as a share of the median step."""
        return share(self.p90_ms - self.p10_ms, self.median_ms)


def plain_intervals(result: dict[str, Any]) -> tuple[list[int], dict[str, int]]:
    """Intervals that are a training step and nothing else, and how many were left out for which reason.

    Interval `n` lies between boundary `n - 1` and boundary `n` of the list (0-based), as the probe numbers it.
    """
    measured = range(result["warmup"] + 1, len(result["boundaries_ns"]))
    reasons = list(_NOT_PLAIN)
    while True:
        flags = {n: set(result["flags"].get(str(n), ())) & set(reasons) for n in measured}
        plain = [n for n in measured if not flags[n]]
        if len(plain) * 2 >= len(measured) or not reasons:
            break
        reasons.pop()  # a frozen backbone is put into eval mode on each step, `next(iter(loader))` starts one on each
    excluded: dict[str, int] = {}
    for why in (why for n in measured for why in flags[n]):
        excluded[why] = excluded.get(why, 0) + 1
    return plain, excluded


def sums(result: dict[str, Any], name: str, intervals: Iterable[int]) -> float:
    return float(sum(result["sums"].get(str(n), {}).get(name, 0) for n in intervals))


def timing(result: dict[str, Any]) -> Timing | None:
    """None when no step was completed after the warm-up."""
    plain, excluded = plain_intervals(result)
    boundaries, cpu = result["boundaries_ns"], result["cpu_ns"]
    steps_ms = tuple((boundaries[n] - boundaries[n - 1]) / 1e6 for n in plain)
    if not steps_ms:
        return None
    total_ns = sum(steps_ms) * 1e6
    samples = sums(result, "samples", plain)
    tokens = sums(result, "tokens", plain)
    cuda = result.get("cuda_ms") or []
    to_backward = [result["sums"].get(str(n), {}).get("to_backward_ns") for n in plain]
    known = [value / 1e6 for value in to_backward if value is not None]
    return Timing(
        steps_ms=steps_ms,
        wait_share=share(sums(result, "loader_ns", plain), total_ns),
        samples_per_s=samples / total_ns * 1e9 if samples else None,
        tokens_per_s=tokens / total_ns * 1e9 if tokens else None,
        batch_size=samples / len(plain) if samples else None,
        excluded=excluded,
        cpu_share=share(sum(cpu[n] - cpu[n - 1] for n in plain), total_ns),
        cuda_ms=tuple(cuda[n - 1] for n in plain if n - 1 < len(cuda)),
        to_backward_each=tuple(known),
    )


def forward_batch(result: dict[str, Any]) -> tuple[float, float]:
    """Samples and tokens of a step, by the inputs of its forwards."""
    plain, _ = plain_intervals(result)
    count = max(1, len(plain))
    return sums(result, "forward_samples", plain) / count, sums(result, "forward_tokens", plain) / count


def with_batch(measured: Timing, batch: tuple[float, float]) -> Timing:
    samples, tokens = batch
    per_s = 1e3 * len(measured.steps_ms) / sum(measured.steps_ms)
    return replace(
        measured,
        batch_size=samples or None,
        samples_per_s=samples * per_s or None,
        tokens_per_s=tokens * per_s or None,
    )


def breakdown(result: dict[str, Any]) -> dict[str, float] | None:
    """Shares of the step by phase; what no phase claims is "other"."""
    plain, _ = plain_intervals(result)
    boundaries = result["boundaries_ns"]
    total = float(sum(boundaries[n] - boundaries[n - 1] for n in plain))
    if not total:
        return None
    shares = {phase: sums(result, f"{phase}_ns", plain) / total for phase in PHASES}
    # Moves to the device happen inside forward's stretch when the script moves after its first module call.
    shares["other"] = max(0.0, 1.0 - sum(shares.values()))
    return shares


def steps_seen(result: dict[str, Any]) -> int:
    """Steps after the warm-up, those around evaluations included."""
    return max(0, len(result["boundaries_ns"]) - 1 - int(result["warmup"]))


def steps_done(result: dict[str, Any]) -> int:
    """Turns of the anchor (or of the unit) since the script began, the ones before the anchor was chosen included."""
    anchor = result.get("anchor")
    if anchor is not None and anchor < len(result["optimizers"]):
        return int(result["optimizers"][anchor]["steps"])
    if result["optimizers"]:
        return max(int(optimizer["steps"]) for optimizer in result["optimizers"])
    return len(result["boundaries_ns"])


def cores_text(count: int) -> str:
    return f"{count} core" if count == 1 else f"{count} cores"


def bytes_text(size: float) -> str:
    for limit, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if abs(size) >= limit:
            return f"{size / limit:.1f} {unit}"
    return f"{size:.0f} B"

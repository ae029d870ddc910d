"""Numbers about numbers: quantiles, shares, and a slope with its interval.

Nothing here gives an interval for a step time: steps of one process are no replicates (an interval over them is wrong
in a third of the runs). Counted bytes are: the same run gives the same counts.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

#: Two-sided 95 % quantiles of Student's t by degrees of freedom 1..30; beyond, the normal's.
_T95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
    2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048,
    2.045, 2.042,
)  # fmt: skip
_NORMAL95 = 1.960


def quantile(values: Sequence[float], share: float) -> float:
    """By linear interpolation between the ordered values. Empty: nan."""
    if not values:
        return math.nan
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else math.nan


@dataclass(frozen=True)
class Slope:
    """Change per step, with its 95 % interval."""

    value: float
    low: float
    high: float
    points: int


def slope(values: Sequence[float]) -> Slope | None:
    """Least squares over equally spaced points. None with fewer than four."""
    n = len(values)
    if n < 4:
        return None
    middle, mean = (n - 1) / 2, statistics.fmean(values)
    spread = sum((i - middle) ** 2 for i in range(n))
    rise = sum((i - middle) * (value - mean) for i, value in enumerate(values)) / spread
    rest = sum((value - mean - rise * (i - middle)) ** 2 for i, value in enumerate(values))
    error = math.sqrt(rest / (n - 2) / spread)
    factor = _T95[n - 3] if n - 3 < len(_T95) else _NORMAL95
    return Slope(rise, rise - factor * error, rise + factor * error, n)


def share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def span(least: float, most: float) -> str:
    """Two shares as one text: `7% to 12%`, or `8%` where they look the same."""
    digits = 0 if least >= 0.1 else 1
    low, high = f"{least:.{digits}%}", f"{most:.{digits}%}"
    return low if low == high else f"{low} to {high}"

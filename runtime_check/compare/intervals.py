"""Student's t: the interval of a mean over a few processes, and one-sided tests. Pure functions.

The process (or the pair of processes) is the replicate. A bootstrap over the steps of one pair is wrong in a third of
the runs, since two processes that run the same code differ lastingly.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True)
class Interval:
    """A mean with its two-sided interval. With fewer than two values it reaches everywhere."""

    mean: float
    low: float
    high: float
    error: float  # standard error of the mean
    n: int
    confidence: float


def t_interval(values: Sequence[float], confidence: float = 0.95) -> Interval:
    n = len(values)
    mean = statistics.fmean(values) if values else math.nan
    if n < 2:
        return Interval(mean, -math.inf, math.inf, math.inf, n, confidence)
    error = statistics.stdev(values) / math.sqrt(n)
    reach = t_quantile(0.5 + confidence / 2, n - 1) * error
    return Interval(mean, mean - reach, mean + reach, error, n, confidence)


def p_below(values: Sequence[float], bound: float) -> float:
    """One-sided p-value of "the mean is `bound` or more", against "it is below"."""
    n = len(values)
    if n < 2:
        return 1.0
    error = statistics.stdev(values) / math.sqrt(n)
    distance = statistics.fmean(values) - bound
    if error == 0.0:
        return 0.0 if distance < 0 else 1.0
    return t_cdf(distance / error, n - 1)


def t_cdf(t: float, freedom: int) -> float:
    """P(T <= t) with `freedom` degrees of freedom."""
    tail = 0.5 * _incomplete_beta(freedom / (freedom + t * t), freedom / 2, 0.5)
    return 1.0 - tail if t > 0 else tail


@lru_cache(maxsize=512)
def t_quantile(probability: float, freedom: int) -> float:
    """The t that `t_cdf` maps to `probability`, by bisection."""
    if not 0.0 < probability < 1.0 or freedom < 1:
        raise ValueError(f"no quantile of {probability} with {freedom} degrees of freedom")
    if probability < 0.5:
        return -t_quantile(1.0 - probability, freedom)
    low, high = 0.0, 1.0
    while t_cdf(high, freedom) < probability:
        high *= 2.0
    for _ in range(200):
        middle = (low + high) / 2
        if t_cdf(middle, freedom) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def replicates_needed(deviation: float, distance: float, confidence: float = 0.95, most: int = 200) -> int | None:
    """How many replicates make the half-width smaller than `distance`. None: more than `most`."""
    if distance <= 0:
        return None
    for n in range(2, most + 1):
        if t_quantile(0.5 + confidence / 2, n - 1) * deviation / math.sqrt(n) < distance:
            return n
    return None


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """Regularised, by its continued fraction (Abramowitz and Stegun 26.5.8), evaluated as Lentz did."""
    if x <= 0.0 or x >= 1.0:
        return 0.0 if x <= 0.0 else 1.0
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    if x < (a + 1.0) / (a + b + 2.0):
        return front * _fraction(x, a, b) / a
    return 1.0 - front * _fraction(1.0 - x, b, a) / b


def _fraction(x: float, a: float, b: float) -> float:
    tiny = 1e-300
    c, d = 1.0, 1.0 - (a + b) * x / (a + 1.0)
    d = 1.0 / (d if abs(d) > tiny else tiny)
    result = d
    for m in range(1, 300):
        for step in (
            m * (b - m) * x / ((a + 2 * m - 1.0) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1.0)),
        ):
            d = 1.0 + step * d
            d = 1.0 / (d if abs(d) > tiny else tiny)
            c = 1.0 + step / c
            c = c if abs(c) > tiny else tiny
            result *= d * c
        if abs(d * c - 1.0) < 1e-14:
            break
    return result

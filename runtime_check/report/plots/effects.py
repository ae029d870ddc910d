"""Comparisons: the metric in both arms, replicate by replicate, and the saving with its interval."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from runtime_check.measures import bytes_text
from runtime_check.report.plots.svg import WIDTH, Scale, box, dot, drawing, line, polygon, text, ticks

ROW = 82.0
TOP = 48.0
ARMS = (150.0, 400.0)  # where the values of both arms are drawn
SAVING = (470.0, 846.0)
DELTA_LABEL = 110.0  # what the words beside the dashed line take
FARTHEST = -1.0  # what makes a run more than twice as slow is not drawn to its end
MARKS = {"confirmed": "\N{BLACK CIRCLE}", "refuted": "\N{MULTIPLICATION SIGN}", "inconclusive": "?"}


def effects(rows: Sequence[dict[str, Any]], delta: float) -> str:
    """`rows`: title, what (the metric), verdict, effect (of the JSON report, with numbers)."""
    drawn = [value for row in rows for value in (*_bounds(row["effect"]), row["effect"]["saving"]) if value is not None]
    low, high = max(FARTHEST, min(0.0, *drawn)), max(delta * 1.5, *drawn)
    pad = 0.06 * (high - low)
    x = Scale(low - pad, high + pad, *SAVING)
    bottom = TOP + ROW * len(rows)
    parts = [
        text(0, 14, "as it is (A) and changed (B), each replicate", "key"),
        text(SAVING[0], 14, "share that the change saves", "key"),
        box(
            x(-delta) if low < -delta else x.start,
            TOP - 12,
            x(delta) - (x(-delta) if low < -delta else x.start),
            bottom - TOP + 12,
            "band",
        ),
    ]
    for mark in ticks(x.low, x.high, 5):
        parts.append(line(x(mark), TOP - 12, x(mark), bottom, "axis" if abs(mark) < 1e-9 else "grid"))
        parts.append(text(x(mark), bottom + 15, f"{mark:+.0%}" if abs(mark) > 1e-9 else "0", "tick", "middle"))
    parts.append(line(x(delta), TOP - 12, x(delta), bottom, "delta"))
    room = x.end - x(delta) >= DELTA_LABEL
    parts.append(text(x(delta), TOP - 16, f"{delta:.0%} and more count", "tick", "start" if room else "end"))
    for n, row in enumerate(rows):
        parts += _row(row, TOP + n * ROW, x)
    return drawing(bottom + 24, "comparisons: both arms, and the saving with its interval", parts)


def _row(row: dict[str, Any], top: float, x: Scale) -> list[str]:
    effect, middle = row["effect"], top + 46
    parts = [line(0, top - 2, WIDTH, top - 2, "grid")] if top > TOP else []
    parts.append(text(0, top + 14, shortened(row["title"], 66), "name"))
    parts.append(text(ARMS[1], top + 30, row["what"], "tick", "end"))
    parts += _arms(effect, top + 30)
    low, high = _bounds(effect)
    verdict = row["verdict"].replace("_", " ")
    said = f"{effect['saving']:+.1%} [{_said(low, '-')}, {_said(high, '+')}] {verdict}"
    start, end = (x.inside(low) if low is not None else x.start), (x.inside(high) if high is not None else x.end)
    parts.append(line(start, middle, end, middle, "interval"))
    for bound in (low, high):
        if bound is not None and bound >= x.low:  # one that lies beyond the drawing has no end here
            parts.append(line(x(bound), middle - 6, x(bound), middle + 6, "interval"))
    for n, saving in enumerate(effect.get("savings") or ()):
        if saving is not None:
            parts.append(dot(x.inside(saving), middle + 14, 2.6, "replicate", f"replicate {n + 1}: {saving:+.2%}"))
    at = x.inside(effect["saving"])
    diamond = [(at, middle - 7), (at + 7, middle), (at, middle + 7), (at - 7, middle)]
    parts.append(polygon(diamond, f"estimate {row['verdict']}"))
    parts.append(text(SAVING[1], top + 14, f"{MARKS.get(row['verdict'], '')} {said}", "name halo", "end"))
    return parts


def shortened(title: str, most: int) -> str:
    return title if len(title) <= most else title[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"


def _arms(effect: dict[str, Any], top: float) -> list[str]:
    """A and B on one scale of their own, from the lowest to the highest value."""
    arms = [[v for v in (effect.get(f"{arm}_each") or [effect[arm]]) if v is not None] for arm in ("a", "b")]
    values = [value for arm in arms for value in arm]
    if not values:
        return []
    low, high = min(values), max(values)
    room = max(0.08 * (high - low), 0.002 * abs(high), 1e-12)
    x = Scale(low - room, high + room, *ARMS)
    parts = []
    for n, (name, arm, middle) in enumerate(zip("AB", arms, (effect["a"], effect["b"]), strict=True)):
        y = top + 10 + 22 * n
        parts.append(text(ARMS[0] - 10, y + 4, f"{name}  {_amount(middle, effect['unit'])}", "key", "end"))
        parts.append(line(ARMS[0], y, ARMS[1], y, "grid"))
        parts += [dot(x(v), y, 4, f"arm-{name.lower()}", f"{name}: {_amount(v, effect['unit'])}") for v in arm]
        parts.append(line(x.inside(middle), y - 8, x.inside(middle), y + 8, "interval"))
    return parts


def _bounds(effect: dict[str, Any]) -> tuple[float | None, float | None]:
    """None: it has no end (of a single replicate)."""
    low, high = effect["interval"]
    return low, high


def _said(bound: float | None, sign: str) -> str:
    return f"{sign}\N{INFINITY}" if bound is None else f"{bound:+.1%}"


def _amount(value: float, unit: str) -> str:
    if unit == "bytes":
        return bytes_text(value)
    return f"{value:.3g} {unit}" if value < 100 else f"{value:.0f} {unit}"

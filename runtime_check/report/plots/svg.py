"""Elements of SVG, and the scale that puts values onto them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 860.0
LEFT = 66.0  # of the plot's area, for the labels of the axis
RIGHT = 14.0


@dataclass(frozen=True)
class Scale:
    """Maps `low`..`high` onto `start`..`end` of the drawing."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        span = self.high - self.low or 1.0
        return self.start + (value - self.low) / span * (self.end - self.start)

    def inside(self, value: float) -> float:
        """As `__call__`, held within the ends."""
        return self(min(max(value, self.low), self.high))


def ticks(low: float, high: float, count: int = 5, base: float = 10.0) -> list[float]:
    """Round values within `low`..`high`. `base` 2: round as sizes are."""
    if not high > low:
        return [low]
    raw = (high - low) / max(1, count)
    if base == 2.0:
        step = 2.0 ** math.ceil(math.log2(raw))
    else:
        power = 10.0 ** math.floor(math.log10(raw))
        step = next((factor * power for factor in (1.0, 2.0, 2.5, 5.0) if factor * power >= raw), 10 * power)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [step * n for n in range(first, last + 1)]


def drawing(height: float, label: str, parts: Sequence[str], width: float = WIDTH) -> str:
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(label)}" '
        f'xmlns="http://www.w3.org/2000/svg">{"".join(parts)}</svg>'
    )


def text(x: float, y: float, content: str, kind: str = "", anchor: str = "start") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{named}>{escape(content)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def box(x: float, y: float, width: float, height: float, kind: str, title: str = "") -> str:
    shape = f'x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.0):.1f}" height="{max(height, 0.0):.1f}" class="{kind}"'
    return f"<rect {shape}>{hint(title)}</rect>" if title else f"<rect {shape}/>"


def dot(x: float, y: float, radius: float, kind: str, title: str = "") -> str:
    shape = f'cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" class="{kind}"'
    return f"<circle {shape}>{hint(title)}</circle>" if title else f"<circle {shape}/>"


def polygon(points: Sequence[tuple[float, float]], kind: str) -> str:
    return f'<polygon points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}" class="{kind}"/>'


def hint(title: str) -> str:
    """What the pointer shows."""
    return f"<title>{escape(title)}</title>" if title else ""


def left_axis(scale: Scale, values: Sequence[float], labels: Sequence[str], right: float) -> list[str]:
    """Grid lines with their labels at the left."""
    parts = []
    for value, label in zip(values, labels, strict=True):
        y = scale(value)
        parts.append(line(LEFT, y, right, y, "grid" if value else "axis"))
        parts.append(text(LEFT - 6, y + 4, label, "tick", "end"))
    return parts


def legend(entries: Sequence[tuple[str, str]], x: float, y: float, width: float) -> tuple[list[str], float]:
    """(class of the fill, name) in rows. Gives the parts and the height that they take."""
    parts: list[str] = []
    at, row = x, y
    for kind, name in entries:
        needs = 24 + 6.7 * len(name) + 16
        if at > x and at + needs > x + width:
            at, row = x, row + 20
        parts.append(box(at, row - 11, 16, 13, kind))
        parts.append(text(at + 22, row, name, "key"))
        at += needs
    return parts, row - y + 20

"""Steps: the parts of each, and what each waits for data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from runtime_check.diagnosis import phase_name
from runtime_check.report.plots.svg import LEFT, RIGHT, WIDTH, Scale, box, drawing, left_axis, legend, line, text, ticks
from runtime_check.statistics import median

PARTS = ("loader", "host_to_device", "forward", "backward", "optimizer", "other")
#: What a step may hold besides itself.
HOLDS = {
    "eval": "an evaluation",
    "loader_started": "a loader's start",
    "torch.save": "torch.save",
    "eval_mode": "a model in eval mode",
}
HEIGHT = 190.0
TOP = 16.0
CUT = 1.5  # times the longest plain step: what is longer (an evaluation is in it) is cut off there, and says so


def shares(breakdown: dict[str, float]) -> str:
    """A mean step as one bar, each part with its name and share where there is room, and in the legend."""
    present = [(name, breakdown[name]) for name in PARTS if breakdown.get(name, 0) >= 0.0005]
    parts, at = [], 1.0
    width = WIDTH - 2
    for name, share in present:
        label = f"{phase_name(name)} {share:.1%}"
        parts.append(box(at, 4, share * width, 34, f"mark {css(name)}", label))
        at += share * width
    entries = [(f"mark {css(name)}", f"{phase_name(name)} {share:.1%}") for name, share in present]
    keys, height = legend(entries, 1, 60, width)
    return drawing(56 + height, "parts of a step: " + ", ".join(name for _, name in entries), [*parts, *keys])


def timeline(steps: Sequence[dict[str, Any]]) -> str:
    """A stacked bar for each step."""
    names = [name for name in PARTS if any(step[name] > 0.0005 * step["ms"] for step in steps)]

    def stack(step: dict[str, Any]) -> list[tuple[str, float, str]]:
        return [(f"mark {css(name)}", step[name], f"{phase_name(name)} {step[name]:.2f} ms") for name in names]

    keys = [(f"mark {css(name)}", phase_name(name)) for name in names]
    return _bars(steps, stack, keys, "milliseconds of each step, by part")


def waits(steps: Sequence[dict[str, Any]]) -> str:
    """Step times as they are, with the wait for data in them."""

    def stack(step: dict[str, Any]) -> list[tuple[str, float, str]]:
        return [
            ("mark part-loader", step["wait_ms"], f"waiting for data {step['wait_ms']:.2f} ms"),
            ("mark part-work", max(0.0, step["ms"] - step["wait_ms"]), f"the rest of {step['ms']:.2f} ms"),
        ]

    keys = [("mark part-loader", "waiting for data"), ("mark part-work", "everything else")]
    plain = [step["ms"] for step in steps if not step["warmup"] and not step["holds"]]
    return _bars(steps, stack, keys, "milliseconds of each step, and of them waiting for data", median(plain))


def css(part: str) -> str:
    return f"part-{part.replace('_', '-')}"


def _bars(
    steps: Sequence[dict[str, Any]],
    stack: Callable[[dict[str, Any]], list[tuple[str, float, str]]],
    keys: list[tuple[str, str]],
    label: str,
    middle: float | None = None,
) -> str:
    plain = [step["ms"] for step in steps if not step["warmup"] and not step["holds"]] or [s["ms"] for s in steps]
    top = min(max(step["ms"] for step in steps), CUT * max(plain))
    y = Scale(0.0, top * 1.02, TOP + HEIGHT, TOP)
    right = WIDTH - RIGHT
    slot = (right - LEFT) / len(steps)
    gap = min(4.0, slot * 0.2)
    marks = ticks(0.0, top, 4)
    parts = left_axis(y, marks, [f"{mark:g} ms" for mark in marks], right)
    told = 0.0
    for n, step in enumerate(steps):
        x, at = LEFT + n * slot + gap / 2, 0.0
        where = f"step {step['step']}{_said(step)}: "
        for kind, ms, title in stack(step):
            upper = y.inside(at + ms)
            height = y.inside(at) - upper
            if height > 0:
                parts.append(box(x, upper, slot - gap, height, kind if slot > 6 else f"{kind} thin", where + title))
            at += ms
        if step["ms"] > top:
            parts.append(box(x - 1, TOP + 5, slot - gap + 2, 4, "cut"))
            if x - told > 34:
                parts.append(text(x + (slot - gap) / 2, TOP - 3, f"{step['ms']:.0f}", "tick", "middle"))
                told = x
    parts += _numbers(steps, slot)
    parts += _warmup(steps, slot)
    if middle is not None and middle == middle and middle < top:
        parts.append(line(LEFT, y(middle), right, y(middle), "median"))
        parts.append(text(right, y(middle) - 4, f"median {middle:.2f} ms", "key halo", "end"))
    cut = [step for step in steps if step["ms"] > top]
    if cut:
        held = [name for why, name in HOLDS.items() if any(why in step["holds"] for step in cut)]
        keys = [*keys, ("cut", f"cut off: it is longer{' and holds ' + ', '.join(held) if held else ''}")]
    entries, height = legend(keys, LEFT, TOP + HEIGHT + 58, right - LEFT)
    return drawing(TOP + HEIGHT + 50 + height, label, [*parts, *entries])


def _numbers(steps: Sequence[dict[str, Any]], slot: float) -> list[str]:
    every = max(1, round(34 / slot)) if slot < 34 else 1
    return [
        text(LEFT + (n + 0.5) * slot, TOP + HEIGHT + 15, str(step["step"]), "tick", "middle")
        for n, step in enumerate(steps)
        if n % every == 0
    ]


def _warmup(steps: Sequence[dict[str, Any]], slot: float) -> list[str]:
    """A bracket under the steps that do not count."""
    count = sum(bool(step["warmup"]) for step in steps)
    if not count:
        return []
    y = TOP + HEIGHT + 21
    end = LEFT + count * slot - 2
    parts = [
        line(LEFT + 2, y, end, y, "axis"),
        line(LEFT + 2, y - 3, LEFT + 2, y, "axis"),
        line(end, y - 3, end, y, "axis"),
    ]
    return [*parts, text(LEFT + 4, y + 12, "warm-up, not counted", "tick")]


def _said(step: dict[str, Any]) -> str:
    said = (["warm-up"] if step["warmup"] else []) + [f"holds {HOLDS.get(why, why)}" for why in step["holds"]]
    return f" ({', '.join(said)})" if said else ""

"""Memory over time: the highest point of each stretch by category, and what is left at its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from runtime_check.measures import bytes_text
from runtime_check.report.plots.svg import LEFT, RIGHT, WIDTH, Scale, box, drawing, left_axis, legend, line, text, ticks

#: From the bottom: what stays through the step lies below what comes and goes.
CATEGORIES = (
    ("parameters", "mem-parameters"),
    ("optimizer state", "mem-optimizer-state"),
    ("made before the first step", "mem-before"),
    ("gradients", "mem-gradients"),
    ("batch", "mem-batch"),
    ("activations", "mem-activations"),
    ("backward temporaries", "mem-backward"),
    ("optimizer temporaries", "mem-optimizer"),
)
SAID = {"made before the first step": "made before the end of the first step"}
HEIGHT = 210.0
TOP = 24.0


def memory(stretches: Sequence[dict[str, Any]]) -> str:
    known = {name for name, _ in CATEGORIES}
    others = {name for stretch in stretches for name in stretch["peak_by_category"]} - known
    order = [*CATEGORIES, *((name, "mem-other") for name in sorted(others))]
    present = [(name, css) for name, css in order if any(s["peak_by_category"].get(name) for s in stretches)]
    y = _scale(max(stretch["peak"] for stretch in stretches))
    right = WIDTH - RIGHT
    slot = (right - LEFT) / len(stretches)
    gap = min(4.0, slot * 0.2)
    thin = "" if slot > 6 else " thin"
    parts = [*_evaluations(stretches, slot), *_axis(y, right)]
    for n, stretch in enumerate(stretches):
        x, at = LEFT + n * slot + gap / 2, 0.0
        where = f"{_phase(stretch)} step {stretch['step']}, peak {bytes_text(stretch['peak'])}: "
        for name, css in present:
            size = stretch["peak_by_category"].get(name, 0)
            if size:
                height = y(at) - y(at + size)
                parts.append(
                    box(x, y(at + size), slot - gap, height, f"mark {css}{thin}", where + f"{name} {bytes_text(size)}")
                )
                at += size
        parts.append(line(x - gap / 2, y(stretch["end"]), x + slot - gap / 2, y(stretch["end"]), "left-over"))
    parts += _numbers(stretches, slot)
    keys = [(f"mark {css}", SAID.get(name, name)) for name, css in reversed(present)]
    entries, height = legend([*keys, ("left-over-key", "left at the end")], LEFT, TOP + HEIGHT + 42, right - LEFT)
    return drawing(
        TOP + HEIGHT + 34 + height, "peak bytes of live tensors by category, step by step", [*parts, *entries]
    )


def allocator(steps: Sequence[dict[str, Any]]) -> str:
    """What CUDA's allocator held at most in each step: used, and taken from the device."""
    y = _scale(max(step["reserved"] for step in steps))
    right = WIDTH - RIGHT
    slot = (right - LEFT) / len(steps)
    gap = min(4.0, slot * 0.2)
    parts = _axis(y, right)
    for n, step in enumerate(steps):
        x = LEFT + n * slot + gap / 2
        for name, css in (("reserved", "mem-reserved"), ("allocated", "mem-activations")):
            size = step[name]
            hint = f"step {step['step']}: {name} {bytes_text(size)}"
            parts.append(box(x, y(size), slot - gap, y(0) - y(size), f"mark {css}", hint))
    parts += _numbers(steps, slot)
    keys = [("mark mem-activations", "allocated at most"), ("mark mem-reserved", "reserved from the device")]
    entries, height = legend(keys, LEFT, TOP + HEIGHT + 36, right - LEFT)
    return drawing(TOP + HEIGHT + 32 + height, "CUDA memory at most in each step", [*parts, *entries])


def _scale(top: float) -> Scale:
    return Scale(0.0, top * 1.04, TOP + HEIGHT, TOP)


def _axis(y: Scale, right: float) -> list[str]:
    marks = ticks(0.0, y.high, 4, base=2.0)
    return left_axis(y, marks, [_size(mark) for mark in marks], right)


def _size(size: float) -> str:
    return "0" if not size else bytes_text(size).replace(".0 ", " ")


def _numbers(stretches: Sequence[dict[str, Any]], slot: float) -> list[str]:
    parts, last, told = [], 0.0, None
    for n, stretch in enumerate(stretches):
        x = LEFT + (n + 0.5) * slot
        if stretch.get("phase") == "eval" or stretch["step"] == told or (last and x - last < 24):
            continue
        parts.append(text(x, TOP + HEIGHT + 15, str(stretch["step"]), "tick", "middle"))
        last, told = x, stretch["step"]
    return parts


def _evaluations(stretches: Sequence[dict[str, Any]], slot: float) -> list[str]:
    """A band behind the stretches of an evaluation, with its name above."""
    parts, last = [], 0.0
    for n, stretch in enumerate(stretches):
        if stretch["phase"] == "eval":
            x = LEFT + (n + 0.5) * slot
            parts.append(box(LEFT + n * slot, TOP - 16, slot, HEIGHT + 16, "band"))
            if x - last > 26:
                parts.append(text(x, TOP - 5, "eval", "tick", "middle"))
                last = x
    return parts


def _phase(stretch: dict[str, Any]) -> str:
    return "evaluation before the end of" if stretch["phase"] == "eval" else "training,"

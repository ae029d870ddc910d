"""Reports of real runs, kept as JSON: `slow_loader.json` is of fixtures/verify/slow_loader.py, `cifar.json` of
fixtures/scripts/train_cifar_like.py, both on two CPU cores.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

DATA = Path(__file__).with_name("data")
NAMES = ("slow_loader", "cifar")


def recorded(name: str) -> dict[str, Any]:
    return dict(json.loads((DATA / f"{name}.json").read_text(encoding="utf-8")))


def without(report: dict[str, Any], *names: str) -> dict[str, Any]:
    """A copy that lacks these parts."""
    return {key: copy.deepcopy(value) for key, value in report.items() if key not in names}


def varied() -> dict[str, Any]:
    """A report with every kind of verdict, intervals on both sides, wide and endless ones, long names, and CUDA."""
    report = recorded("slow_loader")
    report["cwd"] = "/project"
    shapes: list[tuple[str, float, list[float | None]]] = [
        ("confirmed", 0.21, [0.17, 0.25]),
        ("refuted", 0.004, [-0.01, 0.018]),
        ("refuted", -0.31, [-0.4, -0.22]),
        ("inconclusive", 0.05, [-0.2, 0.26]),
        ("inconclusive", 0.02, [None, None]),
    ]
    for n, (verdict, saving, interval) in enumerate(shapes):
        effect = {
            "change": {
                "kind": "flag",
                "title": f"a change with a rather long title that says what it does, number {n}",
            },
            "design": "toggle",
            "metric": "step_time",
            "a": 40.0,
            "b": 40.0 * (1 - saving),
            "unit": "ms",
            "saving": saving,
            "interval": interval,
            "confidence": 0.95,
            "replicates": 5,
            "rounds": 60,
            "clock": "on-CPU",
            "savings": [saving + 0.01 * k for k in range(-2, 3)],
            "a_each": [40.0 + 0.2 * k for k in range(-2, 3)],
            "b_each": [40.0 * (1 - saving) + 0.2 * k for k in range(-2, 3)],
        }
        report["comparisons"]["made"].append({"finding": None, "verdict": verdict, "why": "", "effect": effect})
    report["noise"].update({"null_half_width": 0.012, "null_saving": -0.002})
    report["over_time"]["allocator"] = [
        {"step": n, "allocated": 3 * 2**30 + n * 2**20, "reserved": 4 * 2**30} for n in range(1, 22)
    ]
    report["not_run"].append(
        {"id": None, "code": "TL304", "file": "/project/train.py", "line": 3, "message": "", "reason": "no CUDA device"}
    )
    return report


def candidate(title: str, **changes: Any) -> dict[str, Any]:
    """A row of `what_if`, as `what_if.rows.to_object` makes it."""
    made: dict[str, Any] = {
        "name": "amp",
        "title": title,
        "text": f"{title}: as the terminal says it",
        "measured": True,
        "reason": None,
        "speedup": {"value": 1.51, "interval": [1.47, 1.54]},
        "memory_change": None,
        "time": {"verdict": "confirmed", "why": "this costs 34 %", "effect": {"clock": "on-CPU"}},
        "memory": None,
        "remark": None,
        "edits": [{"file": "/project/train.py", "line": 26, "now": None, "instead": "with torch.autocast(<x>):"}],
    }
    return {**made, **changes}


MEMORY = {
    "memory_change": {"value": -0.23, "interval": [-0.23, -0.23]},
    "memory": {
        "verdict": "confirmed",
        "why": "",
        "effect": {"metric": "train_peak_bytes", "a": 4 * 2**20, "b": 3 * 2**20},
    },
}


def with_candidates(*candidates: dict[str, Any]) -> dict[str, Any]:
    return {**recorded("slow_loader"), "cwd": "/project", "what_if": {"asked": [], "candidates": list(candidates)}}

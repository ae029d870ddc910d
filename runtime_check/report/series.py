"""What changes from step to step, for plots: parts of each step, the wait for data, memory by category.

Steps count from 1, the first one that the clock saw end; its own length is not known, so times begin with step 2.
"""

from __future__ import annotations

from typing import Any

from runtime_check.evidence import Evidence
from runtime_check.measures import PHASES


def over_time(evidence: Evidence) -> dict[str, Any]:
    memory = evidence.first(evidence.memory) or {}
    cuda = memory.get("cuda_memory") or {}
    return {
        "phases": _phases(evidence.first(evidence.broken_down)),
        "timed": _timed(evidence.first(evidence.timed)),
        "memory": merged((memory.get("memory") or {}).get("over_time", [])),
        "allocator": [
            {"step": step["step"], "allocated": step["allocated"], "reserved": step["reserved"]}
            for step in cuda.get("steps", ())
        ],
    }


def merged(stretches: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """At most two stretches a step: the evaluation that comes within it, and the rest of it, in this order.

    The probe sees more: what lies before the first `train()`, and between an evaluation's end and the next batch, which
    is counted to the evaluation.
    """
    kept: dict[tuple[int, bool], dict[str, Any]] = {}
    evaluating = False
    for stretch in stretches:
        evaluating = stretch["phase"] == "eval" or (evaluating and stretch["phase"] == "other")
        key = (stretch["step"], not evaluating)
        other = kept.get(key)
        highest = stretch if other is None or stretch["peak"] >= other["peak"] else other
        kept[key] = {
            "step": stretch["step"],
            "phase": "train" if key[1] else "eval",
            "peak": highest["peak"],
            "peak_by_category": highest["peak_by_category"],
            "end": stretch["end"],
            "end_by_category": stretch["end_by_category"],
        }
    return [kept[key] for key in sorted(kept)]


def _phases(result: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Milliseconds of each part, from the breakdown pass."""
    steps = []
    for step, interval, ms in _intervals(result):
        sums = interval["sums"]
        parts = {name: sums.get(f"{name}_ns", 0) / 1e6 for name in PHASES}
        parts["other"] = max(0.0, ms - sum(parts.values()))
        steps.append({**step, "ms": round(ms, 4), **{name: round(value, 4) for name, value in parts.items()}})
    return steps


def _timed(result: dict[str, Any] | None) -> list[dict[str, Any]]:
    """The step as it is, and the wait for data in it, from the timing pass."""
    return [
        {**step, "ms": round(ms, 4), "wait_ms": round(interval["sums"].get("loader_ns", 0) / 1e6, 4)}
        for step, interval, ms in _intervals(result)
    ]


def _intervals(result: dict[str, Any] | None) -> list[tuple[dict[str, Any], dict[str, Any], float]]:
    if result is None:
        return []
    boundaries = result["boundaries_ns"]
    found = []
    for n in range(1, len(boundaries)):
        step = {
            "step": n + 1,
            "warmup": n <= result["warmup"],
            "holds": list(result["flags"].get(str(n), ())),  # what else it holds: eval, torch.save, ...
        }
        interval = {"sums": result["sums"].get(str(n), {})}
        found.append((step, interval, (boundaries[n] - boundaries[n - 1]) / 1e6))
    return found

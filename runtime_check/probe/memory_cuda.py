"""Peaks of CUDA's allocator, by step and by phase, and its history replayed to the moment of the peak."""

from __future__ import annotations

import os
from typing import Any

from _trainlint_probe.clock import CLOCK

HISTORY = 200_000  # allocator events that are kept


def install(torch: Any, config: dict[str, Any]) -> None:
    if not torch.cuda.is_available():
        return
    steps: list[dict[str, int]] = []
    phases: dict[str, int] = {}
    cuda = torch.cuda

    def at_boundary(step: int) -> None:
        if step == CLOCK.warmup:
            cuda.memory._record_memory_history(max_entries=HISTORY, stacks="python")
        steps.append(
            {
                "step": step,
                "allocated": cuda.max_memory_allocated(),
                "reserved": cuda.max_memory_reserved(),
                "now": cuda.memory_allocated(),
            }
        )
        cuda.reset_peak_memory_stats()

    def at_phase(old: str, new: str) -> None:
        if cuda.is_initialized():
            phases[old] = max(phases.get(old, 0), cuda.max_memory_allocated())
            cuda.reset_peak_memory_stats()

    def at_finish() -> dict[str, Any]:
        if not cuda.is_initialized():
            return {}
        statistics = cuda.memory_stats()
        free, total = cuda.mem_get_info()
        return {
            "cuda_memory": {
                "steps": steps,
                "phases": phases,
                "total": total,
                "free": free,
                "retries": statistics.get("num_alloc_retries", 0),
                "by_line": peak_by_line(cuda.memory._snapshot(), os.path.dirname(torch.__file__)),
            }
        }

    CLOCK.on_boundary.append(at_boundary)
    CLOCK.on_phase.append(at_phase)
    CLOCK.on_finish.append(at_finish)


def peak_by_line(snapshot: dict[str, Any], torch_folder: str, limit: int = 25) -> list[dict[str, Any]]:
    """Replay each device's trace (torch.cuda.memory._snapshot) to its highest point; what was alive there, by the
    innermost line outside torch."""
    sums: dict[tuple[str, int], int] = {}
    for trace in snapshot.get("device_traces", ()):
        for event in _alive_at_peak(trace):
            frames = event.get("frames") or ()
            outside = (frame for frame in frames if not frame["filename"].startswith(torch_folder))
            frame = next(outside, {"filename": "?", "line": 0})
            key = (frame["filename"], frame["line"])
            sums[key] = sums.get(key, 0) + event["size"]
    ordered = sorted(sums.items(), key=lambda item: -item[1])[:limit]
    return [{"file": file, "line": line, "bytes": size} for (file, line), size in ordered]


def _alive_at_peak(trace: list[dict[str, Any]]) -> list[dict[str, Any]]:
    current = peak = 0
    peak_at = -1
    for index, event in enumerate(trace):
        current += _change(event)
        if current > peak:
            peak, peak_at = current, index
    alive: dict[int, dict[str, Any]] = {}
    for event in trace[: peak_at + 1]:
        if event["action"] == "alloc":
            alive[event["addr"]] = event
        elif event["action"] == "free_completed":
            alive.pop(event["addr"], None)
    return list(alive.values())


def _change(event: dict[str, Any]) -> int:
    if event["action"] == "alloc":
        return int(event["size"])
    return -int(event["size"]) if event["action"] == "free_completed" else 0

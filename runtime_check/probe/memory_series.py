"""Live tensor bytes over time: for each stretch of a step in one phase, its highest point and its end, by category.

As with the peaks, categories are settled late, so the highest point is kept as records and summed when its stretch
ends: by then the optimizer has named the gradients.
"""

from __future__ import annotations

from typing import Any

from _trainlint_probe.clock import CLOCK

NEW_SNAPSHOT = 1.02  # a high point this much above the last one kept is worth a new one
MOST = 600  # stretches: a run of a few steps has far fewer


class _Stretch:
    high = 0
    kept_at = 0
    records: list[Any] = []  # noqa: RUF012  (replaced, never changed)


STRETCHES: list[dict[str, Any]] = []


def look(live: Any) -> None:
    """Something was made: is this the highest point of the stretch?"""
    if live.total > _Stretch.high:
        _Stretch.high = live.total
        if live.total > _Stretch.kept_at * NEW_SNAPSHOT:
            _Stretch.kept_at = live.total
            _Stretch.records = live.records()


def close(live: Any, step: int, phase: str) -> None:
    """A boundary, or another phase: the stretch ends. `step` counts from 1."""
    alive = live.records()
    if STRETCHES and step < STRETCHES[-1]["step"]:
        STRETCHES.clear()  # the clock chose another anchor and counts anew
    if len(STRETCHES) < MOST and _Stretch.high:
        STRETCHES.append(
            {
                "step": step,
                "phase": phase,
                "peak": _Stretch.high,
                "peak_by_category": by_category(_Stretch.records),
                "end": live.total,
                "end_by_category": by_category(alive),
            }
        )
    _Stretch.high = _Stretch.kept_at = 0  # what an earlier phase left alive is a peak of this one once it makes more
    _Stretch.records = []


def install(live: Any) -> None:
    CLOCK.on_boundary.append(lambda n: close(live, n, CLOCK.phase))
    CLOCK.on_phase.append(lambda old, new: close(live, CLOCK.step_count + 1, old))


def by_category(records: list[Any]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for record in records:
        sums[record.category] = sums.get(record.category, 0) + record.bytes
    return dict(sorted(sums.items(), key=lambda item: -item[1]))

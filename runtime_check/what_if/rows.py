"""Decisions of the comparisons -> the ranked table, and its words. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from runtime_check.compare.answers import effect_record
from runtime_check.compare.records import Decision, Proposal
from runtime_check.evidence import Verdict
from runtime_check.what_if.records import Candidate, Edit, Row, WhatIf

_NOT_MEASURED = " not measured: "


def ranked(asked: tuple[str, ...], candidates: Sequence[Candidate], decisions: Sequence[Decision]) -> WhatIf:
    """What was measured, by throughput gained and then by memory saved; what was not run comes last."""
    by_proposal = {decision.proposal.key: decision for decision in decisions if decision.proposal.finding is None}
    rows = [
        Row(candidate, _decision(candidate.time, by_proposal), _decision(candidate.memory, by_proposal))
        for candidate in candidates
    ]
    return WhatIf(tuple(sorted(rows, key=_order)), asked)


def _decision(proposal: Proposal | None, decisions: dict[str, Decision]) -> Decision | None:
    return None if proposal is None else decisions.get(proposal.key)


def _order(row: Row) -> tuple[int, float, float]:
    """A gain that cannot be told from none ranks as none: then memory decides."""
    if not row.measured:
        return (1 if _bounded(row) else 2), 0.0, 0.0
    speed, memory = row.speedup, row.memory_change
    gain = speed[0] if speed is not None and not speed[1] <= 1.0 <= speed[2] else 1.0
    return 0, -gain, memory[0] if memory is not None else 0.0


def _bounded(row: Row) -> bool:
    return row.time is not None and row.time.verdict is Verdict.REFUTED


def row_text(row: Row) -> str:
    """ "AMP (bfloat16): 1.41x faster [1.38, 1.44], peak memory +2 %"."""
    candidate = row.candidate
    if candidate.reason is not None:
        return f"{candidate.title}: not run here: {candidate.reason}"
    parts = [text for text in (_time_text(row), _memory_text(row)) if text]
    if not row.measured:
        why = [decision.why for decision in (row.time, row.memory) if decision is not None]
        told = why[0] if why else "the time was up before it was measured (--timeout)"
        return told if told.startswith(candidate.title) else f"{candidate.title}: {told}"
    missing = [text for text in parts if _NOT_MEASURED in text]
    told = ", ".join(text for text in parts if text not in missing)
    return f"{candidate.title}: {'; '.join((told, *missing))}"


def _time_text(row: Row) -> str | None:
    speed, decision = row.speedup, row.time
    if decision is None:
        return None
    if speed is None:
        return f"time{_NOT_MEASURED}{_without_title(decision)}"
    assert decision.effect is not None
    clock = " in on-CPU time" if decision.effect.clock == "on-CPU" else ""
    middle, low, high = speed
    if low > 1.0:
        text = f"{middle:.2f}x faster [{low:.2f}, {high:.2f}]{clock}"
    elif high < 1.0:
        text = f"{1 / middle:.2f}x slower [{1 / high:.2f}, {1 / low:.2f}]{clock}"
    else:
        text = f"no difference in speed seen: {middle:.2f}x [{low:.2f}, {high:.2f}]{clock}"
    if "does not stand" in decision.why and low > 1.0:
        text += " (which does not stand among all that were tried together)"
    if "a change of nothing" in decision.why:
        text += " (a change of nothing seemed to matter too: not to be trusted)"
    return text


def _memory_text(row: Row) -> str | None:
    change, decision = row.memory_change, row.memory
    if decision is None:
        return None
    phase = "peak memory" if decision.proposal.metric == "train_peak_bytes" else "peak memory in evaluation"
    if change is None:
        return f"{phase}{_NOT_MEASURED}{_without_title(decision)}"
    middle, low, high = (_signed(value) for value in change)
    span = f" [{low}, {high}]" if low != high else ""
    return f"{phase} {middle} %{span}"


def _without_title(decision: Decision) -> str:
    """The row begins with it already."""
    return without_title(decision.why, decision.proposal.change.title)


def without_title(why: str, title: str) -> str:
    """What is left to be said of a decision in a row that says whose it is, and that it was not measured."""
    return why.removeprefix(title).lstrip(" :").removeprefix("was ").removeprefix("not compared: ")


def _signed(share: float) -> str:
    text = f"{100 * share:+.0f}" if abs(share) >= 0.0995 else f"{100 * share:+.1f}"
    return "0" if float(text) == 0 else text


def edit_text(edit: Edit) -> str:
    """One line: what would stand there."""
    return f"{edit.line}: {edit.instead}"


def to_object(made: WhatIf) -> dict[str, Any]:
    """As the JSON report has it."""
    return {"asked": list(made.asked), "candidates": [_row_object(row) for row in made.rows]}


def _row_object(row: Row) -> dict[str, Any]:
    candidate = row.candidate
    speed, memory = row.speedup, row.memory_change
    return {
        "name": candidate.name,
        "title": candidate.title,
        "text": row_text(row),
        "measured": row.measured,
        "reason": candidate.reason,
        "speedup": _three(speed),
        "memory_change": _three(memory),
        "time": _decision_object(row.time),
        "memory": _decision_object(row.memory),
        "remark": candidate.remark,
        "edits": [
            {"file": edit.file, "line": edit.line, "now": edit.now, "instead": edit.instead} for edit in candidate.edits
        ],
    }


def _three(values: tuple[float, float, float] | None) -> dict[str, Any] | None:
    if values is None:
        return None
    middle, low, high = (None if value in (float("inf"), float("-inf")) else round(value, 4) for value in values)
    return {"value": middle, "interval": [low, high]}


def _decision_object(decision: Decision | None) -> dict[str, Any] | None:
    if decision is None:
        return None
    return {"verdict": decision.verdict.value, "why": decision.why, "effect": effect_record(decision)}

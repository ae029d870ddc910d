"""Claims that the script raises: the run itself answers, or one batch under the start method of other platforms."""

from __future__ import annotations

from typing import Any

from runtime_check.evidence import Answer, Evidence, Experiment, Verdict
from runtime_check.findings import Finding
from runtime_check.launch import Outcome


def crash(finding: Finding, evidence: Evidence) -> Answer:
    error = _error_at(finding, evidence.failed)
    if error is not None:
        return Answer(Verdict.CONFIRMED, f"the script ended on this line: {_first_line(error)}", "crash", error)
    if evidence.failed is not None:
        return Answer(Verdict.INCONCLUSIVE, "the script ended before this line could be judged", "crash")
    steps = evidence.observed_steps
    if not steps:
        return Answer(Verdict.INCONCLUSIVE, "the script made no step", "crash")
    return Answer(Verdict.REFUTED, f"{steps} steps ran without an error from this line", "crash", {"steps_seen": steps})


def spawn(finding: Finding, evidence: Evidence) -> Answer:
    """One batch with worker processes that are started anew, as on Windows and macOS."""
    outcome = evidence.spawned
    if outcome is None:
        return Answer(Verdict.NOT_RUN, "the script was not tried under the start method spawn")
    if outcome.stepped:
        return Answer(Verdict.REFUTED, "the script made its steps under the start method spawn", "crash")
    tail = _last_error(outcome)
    if tail:
        return Answer(
            Verdict.CONFIRMED,
            f"under the start method spawn it ended with: {tail}",
            "crash",
            {"log": outcome.log_tail[-1500:]},
        )
    return Answer(Verdict.INCONCLUSIVE, "under the start method spawn it made no step in time", "crash")


def _error_at(finding: Finding, outcome: Outcome | None) -> dict[str, Any] | None:
    for error in outcome.errors if outcome is not None else ():
        if finding.covers(error["site"][0], error["site"][1]):
            return error
    return None


def _first_line(error: dict[str, Any]) -> str:
    lines = str(error["message"]).splitlines() or [""]
    return f"{error['type']}: {lines[0][:160]}"


def _last_error(outcome: Outcome) -> str:
    """The last line of the log that names an error."""
    for line in reversed(outcome.log_tail.splitlines()):
        text = line.strip()
        head = text.split(":", 1)[0]
        if head.endswith(("Error", "Exception")) and " " not in head:
            return text[:200]
    return ""


EXPERIMENTS: dict[str, Experiment] = {"crash": crash, "spawn": spawn}

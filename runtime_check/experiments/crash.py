"""Claims that the script raises: the run itself answers, or one batch under the start method of other platforms."""

from __future__ import annotations

from typing import Any

from runtime_check.evidence import Answer, Evidence, Experiment, Verdict
from runtime_check.findings import Finding
from runtime_check.launch import Outcome

NEED_CUDA = frozenset({"TL313"})


def crash(finding: Finding, evidence: Evidence) -> Answer:
    error = _error_at(finding, evidence.failed)
    if error is not None:
        return Answer(Verdict.CONFIRMED, f"the script ended on this line: {_first_line(error)}", "crash", error)
    if finding.code in NEED_CUDA and not evidence.cuda:
        return Answer(Verdict.NOT_RUN, "needs a CUDA device: without one the call does nothing that could fail")
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
        missed = _workers_not_started(finding, outcome)
        if missed:
            why = f"under the start method spawn it made a step, without the workers of the loader at line {missed}"
            return Answer(Verdict.INCONCLUSIVE, why, "crash")
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


def _workers_not_started(finding: Finding, outcome: Outcome) -> int | None:
    """Line of a loader with workers that no batch was taken from: the finding's own, or else any."""
    loaders = [loader for result in outcome.results for loader in result.get("loaders", ()) if loader["workers"]]
    own = [loader for loader in loaders if finding.covers(loader["site"][0], loader["site"][1])]
    if own:
        return None if any(loader["batches"] for loader in own) else int(own[0]["site"][1])
    return next((int(loader["site"][1]) for loader in loaders if not loader["batches"]), None)


def _error_at(finding: Finding, outcome: Outcome | None) -> dict[str, Any] | None:
    for error in outcome.errors if outcome is not None else ():
        if finding.covers(error["site"][0], error["site"][1]):
            return error
    return None


def _first_line(error: dict[str, Any]) -> str:
    lines = str(error["message"]).splitlines() or [""]
    return f"{error['type']}: {lines[0][:160]}"


def _last_error(outcome: Outcome) -> str:
    """The last line of the log that names an error; a missing main guard is told by the workers' error, not by the
    one of the process that waited for them.
    """
    if "finished its bootstrapping phase" in " ".join(outcome.log_tail.split()):
        return (
            "RuntimeError: An attempt has been made to start a new process before the current process has finished "
            "its bootstrapping phase (each worker runs the script again: it has no main guard)"
        )
    for line in reversed(outcome.log_tail.splitlines()):
        text = line.strip()
        head = text.split(":", 1)[0]
        if head.endswith(("Error", "Exception")) and " " not in head:
            return text[:200]
    return ""


EXPERIMENTS: dict[str, Experiment] = {"crash": crash, "spawn": spawn}

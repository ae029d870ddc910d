"""What the run never came to is neither confirmed nor refuted."""

from __future__ import annotations

from typing import Any

import pytest
from verify_runs import SCRIPTS

from runtime_check.claims import EXPERIMENTS as CLAIMS
from runtime_check.evidence import Answer, Evidence, Verdict
from runtime_check.experiments import EXPERIMENTS as FUNCTIONS
from runtime_check.experiments.crash import crash, spawn
from runtime_check.findings import Finding
from runtime_check.launch import Outcome, Pass
from runtime_check.reach import judged_by_reach, reach, rows_to_watch

SCRIPT = SCRIPTS / "unreached.py"


def finding(code: str, text: str) -> Finding:
    row = next(n for n, line in enumerate(SCRIPT.read_text().splitlines(), 1) if text in line)
    return Finding(code, "", str(SCRIPT), SCRIPT.name, row, row, "-")


UNREACHED = finding("TL101", "total += model(row).item()")  # in a loop that the run never comes to
GUARDED = finding("TL101", "print(loss.item())")  # in the training loop, under a condition that is never true
EVERY_STEP = finding("TL101", "optimizer.step()")
AFTERWARDS = finding("TL901", "torch.no_such_function")
AT_FIRST = finding("TL901", "model = nn.Linear")
ALL = (UNREACHED, GUARDED, EVERY_STEP, AFTERWARDS, AT_FIRST)


@pytest.fixture(scope="module")
def evidence(launch: Any) -> Evidence:
    outcome = launch("unreached.py", "syncs", "lines", lines=rows_to_watch(ALL))
    assert outcome.probe_errors == []
    return Evidence(min_effect=0.03, cuda=False, observed=outcome)


def answer(found: Finding, evidence: Evidence) -> Answer:
    name = CLAIMS[found.code]
    return judged_by_reach(found, FUNCTIONS[name](found, evidence), name, evidence)


@pytest.mark.torch
def test_a_line_in_a_loop_that_was_not_reached_is_not_refuted(evidence: Evidence) -> None:
    given = answer(UNREACHED, evidence)
    assert given.verdict is Verdict.INCONCLUSIVE
    assert given.why == f"line {UNREACHED.row} was not reached in the steps that ran"


@pytest.mark.torch
def test_a_line_that_its_loop_passes_by_is_refuted(evidence: Evidence) -> None:
    given = answer(GUARDED, evidence)
    assert given.verdict is Verdict.REFUTED
    assert "0 of 8 steps (claim: every step)" in given.why


@pytest.mark.torch
def test_an_error_is_only_refuted_by_a_line_that_ran(evidence: Evidence) -> None:
    assert answer(AFTERWARDS, evidence).verdict is Verdict.INCONCLUSIVE
    assert answer(AT_FIRST, evidence).verdict is Verdict.REFUTED


@pytest.mark.torch
def test_lines_are_counted_by_step(evidence: Evidence) -> None:
    (result,) = evidence.ranks(evidence.observed)
    by_row = {row: (runs, steps) for _, row, runs, steps in result["lines"]}
    assert by_row[EVERY_STEP.row][1] == 8
    assert by_row[AT_FIRST.row][1] == 0
    found = reach(EVERY_STEP, evidence)
    assert found is not None
    assert found.runs >= 11
    assert (found.steps_around, found.in_loop) == (8, True)


@pytest.mark.torch
def test_an_evaluation_of_a_single_batch_counts(launch: Any) -> None:
    script = SCRIPTS / "one_eval_batch.py"
    rows = [n for n, line in enumerate(script.read_text().splitlines(), 1) if ".item()" in line]
    found = [Finding("TL101", "", str(script), script.name, row, row, "sync") for row in rows]
    outcome = launch("one_eval_batch.py", "syncs", "lines", until_eval=True, lines=rows_to_watch(found))
    evidence = Evidence(min_effect=0.03, cuda=False, observed=outcome)
    with_mode, without_mode = (answer(one, evidence) for one in found)
    assert with_mode.verdict is Verdict.CONFIRMED
    assert "on 1 of 2 evaluation batches" in with_mode.why
    assert without_mode.verdict is not Verdict.REFUTED  # nothing told it from training while it ran


def observed(rows: dict[int, tuple[int, int]]) -> Evidence:
    lines = [[str(SCRIPT), row, runs, steps] for row, (runs, steps) in rows.items()]
    result = {"lines": lines, "boundaries_ns": list(range(12)), "warmup": 1}
    return Evidence(min_effect=0.03, cuda=False, observed=Outcome(Pass("observe"), [result], 0, "script", 1.0, ""))


def test_a_loop_that_is_not_the_one_over_steps_refutes_nothing() -> None:
    """An evaluation that was not known for one: its line ran on one step of ten, with each turn of its own loop."""
    refuted = Answer(Verdict.REFUTED, "on 1 of 10 steps", evidence={"eval_batches_seen": 0})
    rare = observed({UNREACHED.row: (3, 1)})
    given = judged_by_reach(UNREACHED, refuted, "syncs", rare)
    assert given.verdict is Verdict.INCONCLUSIVE
    assert "ran on 1 of 10 steps: it is not the one over steps" in given.why
    each_step = observed({GUARDED.row: (1, 1), EVERY_STEP.row: (12, 10)})
    assert judged_by_reach(GUARDED, refuted, "syncs", each_step) is refuted


def test_nothing_is_taken_back_where_lines_are_not_known() -> None:
    unknown = Evidence(min_effect=0.03, cuda=False, observed=Outcome(Pass("observe"), [{}], 0, "script", 1.0, ""))
    refuted = Answer(Verdict.REFUTED, "0 of 9 steps")
    assert judged_by_reach(UNREACHED, refuted, "syncs", unknown) is refuted


def test_without_a_gpu_nothing_is_said_of_cuda_in_workers() -> None:
    nothing = Evidence(min_effect=0.03, cuda=False)
    assert crash(finding("TL313", "model = nn.Linear"), nothing).verdict is Verdict.NOT_RUN


@pytest.mark.parametrize(
    ("batches", "expected"), [(0, Verdict.INCONCLUSIVE), (1, Verdict.REFUTED)], ids=["not started", "started"]
)
def test_spawn_is_refuted_only_where_the_workers_were_started(batches: int, expected: Verdict) -> None:
    row = AT_FIRST.row
    used = {"site": [str(SCRIPT), 3, "f"], "workers": 2, "batches": 4}
    own = {"site": [str(SCRIPT), row, "f"], "workers": 2, "batches": batches}
    outcome = Outcome(Pass("spawn"), [{"boundaries_ns": [1], "loaders": [used, own]}], 0, "script", 1.0, "")
    spawned = Evidence(min_effect=0.03, cuda=False, spawned=outcome)
    for code in ("TL301", "TL302"):
        assert spawn(finding(code, "model = nn.Linear"), spawned).verdict is expected

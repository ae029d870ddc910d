"""Experiments with several ranks: whole launches in turn, no_sync, DataParallel against DistributedDataParallel."""

from __future__ import annotations

import math
from typing import Any

import pytest
from verify_runs import SCRIPTS, Launcher

from runtime_check.claims import EXPERIMENTS as CLAIMS
from runtime_check.compare.proposals import propose
from runtime_check.compare.records import Change, Design, Proposal
from runtime_check.compare.sequential import Sequential, cost_ms, failure_of, pair_of
from runtime_check.evidence import Evidence
from runtime_check.findings import Finding
from runtime_check.launch import Outcome, Pass, Session
from runtime_check.options import Options
from runtime_check.report import content
from runtime_check.verify import Report, verify
from runtime_check.what_if.candidates import candidates, ddp_proposal
from runtime_check.what_if.parts import parts_of
from runtime_check.what_if.records import Row
from runtime_check.what_if.rows import row_text

TORCHRUN = "torchrun --standalone --nproc_per_node=2"


def rank(number: int, step_ms: float, samples: int = 16, world: int = 2, **more: Any) -> dict[str, Any]:
    """What a rank recorded: twelve steps, all alike."""
    times = [int(n * step_ms * 1e6) for n in range(12)]
    sums = {str(n): {"samples": samples, "to_backward_ns": 1e6} for n in range(12)}
    return {
        "rank": number,
        "world": world,
        "warmup": 2,
        "boundaries_ns": times,
        "cpu_ns": times,
        "flags": {},
        "sums": sums,
        **more,
    }


def test_the_slowest_rank_is_the_step() -> None:
    assert cost_ms([rank(0, 10.0), rank(1, 12.0)], "step_time") == pytest.approx(12.0)
    assert cost_ms([rank(0, 10.0), rank(1, 12.0)], "sample_time") == pytest.approx(12.0 / 32)
    assert cost_ms([], "step_time") is None
    unfinished = rank(1, 12.0, boundaries_ns=[0, 1], cpu_ns=[0, 1])
    assert cost_ms([rank(0, 10.0), unfinished], "step_time") is None


def test_data_parallel_against_ddp_on_recorded_results() -> None:
    """Recorded: one process with batches of 32 in 20 ms; two ranks with 16 each in 12 ms."""
    one = pair_of([rank(0, 20.0, 32, world=1)], [rank(0, 11.0, 16), rank(1, 12.0, 16)], "sample_time")
    assert one is not None
    assert one.log_ratio == pytest.approx(math.log(12.0 / 20.0))
    assert (one.a_ms, one.b_ms) == (pytest.approx(20.0 / 32), pytest.approx(12.0 / 32))


def test_an_arm_that_fails_or_changes_nothing_is_said() -> None:
    proposal = Proposal(Change("distributed", "DDP"), Design.SEQUENTIAL, "sample_time")
    failed = Outcome(Pass("sequential B"), [], 1, "script", 1.0, "Traceback\nValueError: no\n")
    assert "ValueError: no" in str(failure_of(proposal, failed))
    idle = rank(0, 1.0, changes=[{"kind": "distributed", "used": 0, "failure": None}])
    assert failure_of(proposal, Outcome(Pass("sequential B"), [idle], 0, "script", 1.0, "")) is not None


def observed(devices: int, wrapper: str | None) -> Evidence:
    model = {"site": ["t.py", 9, ""], "training": True, "grad": True, "calls": 9, "wrapper": wrapper}
    parts = {
        "models": [model],
        "optimizers": [],
        "backwards": [],
        "cuda": devices > 0,
        "devices": devices,
        "bfloat16": True,
        "scaler": False,
    }
    result = rank(0, 10.0, world=1, anchor=None, optimizers=[], backwards=10, parts=parts)
    return Evidence(0.03, devices > 0, observed=Outcome(Pass("observe"), [result], 0, "script", 1.0, ""))


def test_ddp_is_tried_for_data_parallel_on_two_devices() -> None:
    for devices, wrapper, said in (
        (2, None, "uses no DataParallel"),
        (0, "DataParallel", "needs two CUDA devices, and there is none here"),
        (1, "DataParallel", "needs two CUDA devices, and there is one here"),
    ):
        (candidate,) = candidates(("ddp",), observed(devices, wrapper))
        assert said in row_text(Row(candidate))
    (candidate,) = candidates(("ddp",), observed(4, "DataParallel"))
    assert candidate.time is not None
    assert candidate.time.design is Design.SEQUENTIAL
    assert candidate.time.change.parameters["launcher"] == "torchrun --standalone --nproc_per_node=4"


@pytest.mark.parametrize(
    ("launcher", "several"),
    [
        ("torchrun --nnodes=2 --node-rank=0 --nproc-per-node=8", True),
        ("torchrun --nnodes 4 --rdzv-backend=c10d", True),
        ("torchrun --nnodes=1 --nproc-per-node=8", False),
        (TORCHRUN, False),
        (None, False),
    ],
)
def test_several_nodes_are_noticed(launcher: str | None, several: bool) -> None:
    assert Options(script="train.py", launcher=launcher).several_nodes is several


def finding(row: int) -> Finding:
    return Finding(
        code="TL503",
        path=str(SCRIPTS / "accumulating_ranks.py"),
        shown_path="accumulating_ranks.py",
        row=row,
        end_row=row,
        message="",
        claim=CLAIMS["TL503"],
    )


def test_reductions_on_each_micro_batch_are_compared_with_no_sync() -> None:
    result = rank(0, 10.0, anchor=0, optimizers=[{"type": "SGD", "steps": 10}], backwards=40)
    evidence = Evidence(0.03, False, observed=Outcome(Pass("observe"), [result], 0, "script", 1.0, ""))
    proposal = propose(finding(23), evidence)
    assert proposal is not None
    assert proposal.change.for_probe()["micro_batches"] == 4
    result["backwards"] = 10
    assert propose(finding(23), evidence) is None


@pytest.mark.torch
def test_a_script_for_data_parallel_runs_on_two_ranks(launch: Launcher) -> None:
    session = Session(launch.options("data_parallel.py"))
    try:
        sequential = Sequential(session, ddp_proposal(2))
        sequential.replicate()
    finally:
        session.close()
    a, b = sequential.outcomes
    assert [result["rank"] for result in a.results] == [0]
    assert [result["rank"] for result in b.results] == [0, 1]
    assert b.probe_errors == []
    assert [result["loaders"][0]["batch_size"] for result in (*a.results, *b.results)] == [32, 16, 16]
    assert all(result["changes"] == [{"kind": "distributed", "used": 1, "failure": None}] for result in b.results)
    (samples,) = sequential.samples()
    assert samples.failure is None
    assert len(samples.log_ratios) == 1


@pytest.mark.torch
@pytest.mark.parametrize("until_eval", [False, True])
def test_ranks_are_observed_with_their_collectives(launch: Launcher, until_eval: bool) -> None:
    """On the way to an evaluation epochs end after a step and a batch: what was not asked for is not counted."""
    run = launch("accumulating_ranks.py", "behaviours", "parts", launcher=TORCHRUN, until_eval=until_eval)
    timed = launch("accumulating_ranks.py", launcher=TORCHRUN)
    evidence = Evidence(0.03, False, observed=run, timed=timed)
    parts = parts_of(evidence)
    assert parts.world == 2
    assert 3.5 < parts.backwards_per_step < 4.5
    (candidate,) = candidates(("no-sync",), evidence)
    assert candidate.time is not None
    assert candidate.time.change.for_probe()["micro_batches"] == 4
    report = Report(launch.options("accumulating_ranks.py"), 0, {}, evidence)
    (line,) = content.collectives(report)
    assert "gradient reduction (DDP) 4.0 (" in line
    assert "accumulating_ranks.py:22" in line


@pytest.mark.torch
@pytest.mark.slow
def test_what_if_under_torchrun(launch: Launcher) -> None:
    options = launch.options(
        "accumulating_ranks.py",
        launcher=TORCHRUN,
        candidates=("batch-size", "no-sync"),
        budget_s=300.0,
        timeout_s=900.0,
    )
    report = verify(options)
    assert report.what_if is not None
    rows = {row.candidate.title: row for row in report.what_if.rows}
    speed = rows["no_sync on all micro-batches but the last"].speedup
    assert speed is not None
    assert speed[1] > 1.0
    time = rows["batch_size=16"].time
    assert time is not None
    assert time.proposal.design is Design.SEQUENTIAL

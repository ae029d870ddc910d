"""`--try` on real scripts: the passes, the comparisons, the table. Slow, but for what is only observed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from verify_runs import Launcher

from runtime_check.commandline import main
from runtime_check.evidence import Evidence
from runtime_check.launch import Pass, Session
from runtime_check.report import terminal
from runtime_check.report.as_json import to_json
from runtime_check.report.markdown import to_markdown
from runtime_check.verify import Report, verify
from runtime_check.what_if.candidates import candidates, names_of
from runtime_check.what_if.parts import parts_of

pytestmark = pytest.mark.torch


def lines(report: Report) -> str:
    return "\n".join(line for line, _ in terminal.lines(report))


def test_the_parts_of_a_script_are_seen(launch: Launcher) -> None:
    run = launch("pictures.py", "behaviours", "parts")
    assert run.probe_errors == []
    parts = parts_of(Evidence(0.03, False, observed=run))
    model, loader = parts.trained, parts.training_loader
    assert model is not None
    assert loader is not None
    assert (model["class"], model["dimensions"], model["convolutions"], model["autocast"]) == (
        "Network",
        4,
        True,
        False,
    )
    assert (model["blocks"]["name"], model["blocks"]["count"]) == ("layers", 4)
    assert model["blocks"]["file"].endswith("pictures.py")
    assert [(one["type"], one["fused"], one["knows_fused"]) for one in parts.optimizers] == [("AdamW", False, True)]
    assert (loader["batch_size"], parts.world, parts.backwards_per_step) == (12, 1, 1.0)
    tried = candidates(names_of("all"), Evidence(0.03, False, observed=run))
    edits = {candidate.name: candidate.edits[0].instead for candidate in tried if candidate.edits}
    assert edits["fused"] == "torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)"
    assert edits["batch-size"].endswith("batch_size=24, shuffle=True, num_workers=arguments.workers)")
    assert edits["compile"].startswith("model.compile()")
    not_run = {candidate.name for candidate in tried if candidate.reason is not None}
    without_workers = {"persistent-workers", "prefetch-factor"}
    assert not_run == {"tf32", "cudnn-benchmark", "pin-memory", "no-grad", "no-sync", "ddp"} | without_workers


@pytest.mark.parametrize("kind", ["scaled_float16", "channels_last", "checkpoint", "autocast"])
def test_a_change_of_the_whole_launch_takes_effect(launch: Launcher, kind: str) -> None:
    session = Session(launch.options("pictures.py"))
    try:
        run = session.launch(Pass("arm", extra={"changes": [{"kind": kind, "file": None, "rows": None}]}))
    finally:
        session.close()
    assert run.probe_errors == []
    (change,) = run.results[0]["changes"]
    assert change["used"] > 0
    assert change["failure"] is None


def test_a_name_that_there_is_not_is_said_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--try", "amps", __file__]) == 2
    assert "--try takes some of amp, workers" in capsys.readouterr().err


@pytest.mark.slow
def test_workers_are_measured_on_a_script_that_waits_for_data(launch: Launcher) -> None:
    options = launch.options(
        "pictures.py",
        arguments=("--decoding", "0.002"),
        candidates=("workers", "tf32"),
        budget_s=240.0,
        timeout_s=900.0,
    )
    report = verify(options)
    assert report.what_if is not None
    first, *_, last = report.what_if.rows
    assert first.candidate.name == "workers"
    assert first.speedup is not None
    assert first.speedup[1] > 1.2
    assert last.candidate.name == "tf32"
    text = lines(report)
    assert "x faster [" in text
    assert "TF32: not run here: needs CUDA" in text
    assert "num_workers=2)" in text
    assert "| what if |" in to_markdown(report)
    said: Any = json.loads(to_json(report))["what_if"]
    assert said["candidates"][0]["speedup"]["value"] > 1.2


@pytest.mark.slow
def test_the_model_is_compiled_in_one_arm(launch: Launcher) -> None:
    session = Session(launch.options("pictures.py"))
    try:
        run = session.launch(Pass("arm", extra={"changes": [{"kind": "compile", "file": None, "rows": None}]}))
    finally:
        session.close()
    result = run.results[0]
    assert run.probe_errors == []
    assert result["changes"] == [{"kind": "compile", "used": 1, "failure": None}]
    assert result["compile"]["graphs"] >= 1
    assert result["compile"]["graph_breaks"] == 0


@pytest.mark.gpu
@pytest.mark.slow
def test_what_needs_cuda_is_measured_there(launch: Launcher) -> None:
    """amp, pinned memory, TF32, cudnn.benchmark and the search for a batch size under the allocator's own limit."""
    options = launch.options(
        "hard_coded_cuda.py",
        candidates=("amp", "pin-memory", "tf32", "cudnn-benchmark"),
        find_batch_size=True,
        memory_limit=2**30,
        budget_s=600.0,
        timeout_s=1500.0,
    )
    report = verify(options)
    assert report.evidence.cuda
    assert report.what_if is not None
    assert all("needs CUDA" not in str(row.candidate.reason) for row in report.what_if.rows)
    assert report.batch_search is not None
    assert report.batch_search.cuda

"""`--predict`: what is said of an estimate, and that the step on fake tensors counts what the real one does."""

from __future__ import annotations

import json
from typing import Any

import pytest
from verify_runs import Launcher

from runtime_check.commandline import main
from runtime_check.launch import Outcome, Pass, Session
from runtime_check.report.as_json import to_json
from runtime_check.verify import EXIT_NOTHING_MEASURED, EXIT_RAN, verify
from runtime_check.what_if.predict import (
    CONTEXT_BYTES,
    Estimate,
    Prediction,
    estimate_of,
    fits,
    text_of,
    why_none,
)

GIB = 2**30


def estimate(exact: float, rest: float, title: str = "as it is") -> Estimate:
    parts = {
        "parameters": int(exact * GIB / 2),
        "optimizer state": int(exact * GIB / 2),
        "activations": int(rest * GIB),
    }
    return Estimate(title, sum(parts.values()), parts)


def test_will_not_fit_only_where_the_exact_part_and_the_least_of_the_rest_exceed_the_card() -> None:
    assert fits(estimate(10, 10), 17 * GIB) == "open"
    assert fits(estimate(10, 10), int(16.4 * GIB)) == "no"  # 10 + 6.5
    assert fits(estimate(10, 10), int(16.6 * GIB)) == "open"
    most = 23.5 * GIB + CONTEXT_BYTES
    assert fits(estimate(10, 10), int(most / 0.9) + 100) == "yes"
    assert fits(estimate(10, 10), int(most / 0.9) - GIB // 10) == "open"


def test_ratios_come_first_and_absolutes_are_labelled() -> None:
    made = Prediction(
        as_it_is=estimate(2, 2),
        variants=(estimate(2, 1, "AMP (bfloat16)"),),
        left_out=("checkpointing: no blocks",),
        gpu="t4",
        gpu_bytes=16 * GIB,
    )
    lines = text_of(made)
    assert lines[1] == "  AMP (bfloat16): peak memory x0.75"
    assert lines[2] == "  not predicted: checkpointing: no blocks"
    assert "estimated peak allocated, as it is: 4.0 GiB [3.3 GiB, 4.7 GiB]" in lines[3]
    assert "±35%" in lines[3]
    assert "without the CUDA context" in lines[3]
    assert "should fit t4 (16.0 GiB)" in lines[4]
    small = text_of(Prediction(as_it_is=estimate(20, 1), gpu="t4", gpu_bytes=16 * GIB))
    assert "will not fit" in small[-1]


def test_what_fake_tensors_cannot_do_is_said_with_its_line() -> None:
    error = {"type": "DynamicOutputShapeException", "message": "aten.nonzero", "site": ["model.py", 9, "forward"]}
    outcome = Outcome(Pass("predict"), [], 1, "script", 1.0, "", errors=[error])
    assert estimate_of("as it is", outcome) is None
    assert why_none(outcome) == "the shapes of the step depend on its data at model.py:9: fake tensors have none"


def test_predicting_is_asked_for_alone(capsys: pytest.CaptureFixture[str]) -> None:
    script = str(Launcher.__init__.__code__.co_filename)
    assert main(["--predict", "--try", "amp", script]) == 2
    assert main(["--gpu", "t4", script]) == 2
    assert main(["--predict", "--gpu", "abacus", script]) == 2
    said = capsys.readouterr().err
    assert "--predict runs nothing for real" in said
    assert "--gpu belongs to --predict" in said
    assert "--gpu takes one of" in said


@pytest.mark.torch
@pytest.mark.parametrize("script", ["pictures.py", "tokens.py"])
def test_fake_tensors_count_what_real_ones_do(launch: Launcher, script: str) -> None:
    """But for the data set, which stays with the host."""
    session = Session(launch.options(script))
    try:
        fake, real = (
            session.launch(Pass(name, instruments, extra={"steps": 2, "warmup": 1}))
            for name, instruments in (("predict", ("memory", "parts", "predict")), ("memory", ("memory",)))
        )
    finally:
        session.close()
    assert fake.errors == []
    assert fake.probe_errors == []
    predicted = estimate_of("fake", fake)
    phases: dict[str, Any] = real.results[0]["memory"]["phases"]
    data = 640 * 12 * 8 if script == "tokens.py" else 0
    counted = max(phases[name]["peak"] for name in ("start", "train") if name in phases) - data
    assert predicted is not None
    assert predicted.peak == pytest.approx(counted, rel=0.1)
    parameters = fake.results[0]["parts"]["optimizers"][0]["bytes"]
    assert predicted.by_category["parameters"] >= parameters
    assert predicted.by_category["optimizer state"] >= 2 * parameters  # two moments of each


@pytest.mark.torch
def test_the_report_of_a_prediction(launch: Launcher) -> None:
    report = verify(launch.options("blocks.py", predict=True, gpu="2M"))
    assert report.exit_code == EXIT_RAN
    made = report.prediction
    assert made is not None
    assert made.as_it_is is not None
    ratios = {variant.title: variant.peak / made.as_it_is.peak for variant in made.variants}
    assert 1.2 < ratios["batch_size=512"] < 2.0
    assert ratios["checkpointing the 6 elements of Sequential.1"] < 0.85
    assert "will not fit 2M" in text_of(made)[-1]
    said = json.loads(to_json(report))["prediction"]
    assert said["kind"] == "estimate"
    assert said["as_it_is"]["fits"] == "no"


@pytest.mark.torch
def test_a_script_whose_step_depends_on_its_data_gets_no_prediction(launch: Launcher) -> None:
    report = verify(launch.options("data_dependent.py", predict=True))
    assert report.exit_code == EXIT_NOTHING_MEASURED
    assert report.prediction is not None
    assert "depend on its data" in str(report.prediction.failure)
    assert "data_dependent.py:11" in str(report.prediction.failure)

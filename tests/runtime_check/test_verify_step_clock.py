"""What counts as a step, on scripts that each do it in their own way."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from runtime_check.measures import forward_batch, steps_done, timing

pytestmark = pytest.mark.torch

ASKED = 3 + 8  # warm-up and steps of the launches in verify_runs


def only_result(outcome: Any) -> dict[str, Any]:
    assert outcome.probe_errors == []
    (result,) = outcome.results
    return result


def steps_by_optimizer(result: dict[str, Any]) -> dict[str, int]:
    return {optimizer["type"]: optimizer["steps"] for optimizer in result["optimizers"]}


@pytest.mark.parametrize("script", ["two_optimizers.py", "late_optimizer.py"])
def test_a_step_is_a_turn_of_the_optimizer_that_steps_least_often(launch: Any, script: str) -> None:
    result = only_result(launch(script))
    assert result["why"] == "steps"
    counts = steps_by_optimizer(result)
    assert result["optimizers"][result["anchor"]]["type"] == "Adam"
    fast = max(counts.values())
    assert fast >= 4 * counts["Adam"]
    assert len(result["boundaries_ns"]) == ASKED + 1


def test_micro_batches_are_no_steps(launch: Any) -> None:
    result = only_result(launch("accumulation.py"))
    assert result["unit"] == "optimizer"
    assert result["backwards"] == 4 * steps_by_optimizer(result)["SGD"]
    measured = timing(result)
    assert measured is not None
    assert measured.batch_size == 40  # four micro-batches of ten


def test_without_an_optimizer_a_backward_is_a_step(launch: Any) -> None:
    result = only_result(launch("without_optimizer.py"))
    assert (result["unit"], result["anchor"], result["why"]) == ("backward", None, "steps")


def test_without_a_backward_a_batch_is_a_step(launch: Any) -> None:
    result = only_result(launch("inference_only.py"))
    assert (result["unit"], result["why"]) == ("batch", "steps")


def test_the_unit_can_be_chosen(launch: Any) -> None:
    result = only_result(launch("accumulation.py", unit="backward"))
    assert result["unit"] == "backward"
    assert steps_by_optimizer(result)["SGD"] < ASKED


def test_steps_that_the_scaler_leaves_out_are_counted_and_said(launch: Any) -> None:
    from runtime_check.messages import every_step_skipped

    result = only_result(launch("skipping_scaler.py"))
    assert result["why"] == "steps"
    assert result["skipped_by_scaler"] == steps_by_optimizer(result)["SGD"] >= ASKED
    assert "GradScaler skipped all" in (every_step_skipped(result) or "")


def test_a_closure_is_one_step_however_often_it_runs(launch: Any) -> None:
    result = only_result(launch("closure.py"))
    assert result["why"] == "steps"
    assert result["backwards"] > steps_by_optimizer(result)["LBFGS"]
    assert len(result["boundaries_ns"]) == ASKED + 1
    samples, _ = forward_batch(only_result(launch("closure.py", "breakdown")))
    assert samples == 64  # not once for each call of the closure


def test_a_compiled_step_is_seen_each_time(launch: Any) -> None:
    result = only_result(launch("compiled_step.py"))
    assert result["why"] == "steps"
    assert len(result["boundaries_ns"]) == ASKED + 1


def test_an_engine_step_counts_once_whatever_it_does_inside(launch: Any) -> None:
    from verify_runs import SCRIPTS

    path = (("PYTHONPATH", f"{SCRIPTS.parents[1]}/runtime_check/inject:{SCRIPTS}/standin"),)
    outcome = launch("with_deepspeed.py", environment=path)
    result = only_result(outcome)
    assert result["why"] == "steps"
    assert len(result["boundaries_ns"]) == ASKED + 1
    # Two micro-batches a step: with the inner optimizer's own steps counted there would be four boundaries to each two.
    assert result["backwards"] >= 2 * ASKED


def test_a_script_that_ends_early_gives_what_it_had(launch: Any) -> None:
    outcome = launch("few_steps.py")
    result = only_result(outcome)
    assert result["why"] == "script_ended"
    assert steps_done(result) == 7
    from runtime_check.messages import fewer_steps

    options = launch.options("few_steps.py")
    assert fewer_steps(options, outcome) == (
        "the script ended after 7 of 11 steps; what was counted rests on few steps."
    )


def test_throughput_counts_tokens_only_of_integer_batches(launch: Any) -> None:
    tokens = timing(only_result(launch("tokens.py")))
    assert tokens is not None
    assert tokens.samples_per_s is not None
    assert tokens.tokens_per_s == pytest.approx(12 * tokens.samples_per_s)
    pictures = timing(only_result(launch("accumulation.py")))
    assert pictures is not None
    assert pictures.samples_per_s is not None
    assert pictures.tokens_per_s is None


@pytest.mark.parametrize(
    ("package", "script", "line"),
    [
        ("accelerate", "with_accelerate.py", "seen = loss.item()"),
        ("lightning", "with_lightning.py", "self.seen = loss.item()"),
        ("transformers", "with_transformers.py", '"read": loss.item()'),
    ],
)
@pytest.mark.slow
def test_frameworks_are_seen_through(launch: Any, package: str, script: str, line: str) -> None:
    from verify_runs import SCRIPTS

    pytest.importorskip(package)
    result = only_result(launch(script, "syncs", until_eval=True))
    assert result["why"] == "steps"
    lines = (SCRIPTS / script).read_text().splitlines()
    read = {lines[site["line"] - 1].strip() for site in result["syncs"] if site["file"].endswith(script)}
    assert any(line in text for text in read)


@pytest.mark.slow
def test_an_inductor_script_is_timed_compiled(launch: Any) -> None:
    import shutil

    if not (shutil.which("g++") or shutil.which("clang++")):
        pytest.skip("no C++ compiler")
    result = only_result(launch("with_inductor.py"))
    assert result["why"] == "steps"
    assert result["compile"]["graphs"] >= 1


def test_the_anchor_is_the_last_of_the_rarest(probe_module: Any) -> None:
    choose = probe_module("clock").choose_anchor
    assert choose([3], [0, 0, 0]) == 0
    assert choose([5, 1], [0, 1, 0, 0, 0, 0]) == 1
    assert choose([2, 2], [0, 1, 0, 1]) == 1
    assert choose([40, 1], [0] * 39 + [1, 0]) == 0  # rarer than every 16th: an outer loop's, not the step's


def test_the_interpreter_can_be_another_ones(launch: Any) -> None:
    outcome = launch("few_steps.py")  # with python=sys.executable, as for any other environment
    assert outcome.hellos[0]["executable"] == sys.executable


def test_micro_batches_on_the_way_to_an_evaluation(launch: Any) -> None:
    """Epochs that are cut short hold one whole step, and a pass ends also where one holds none."""
    outcome = launch("accumulation.py", "behaviours", until_eval=True)
    assert only_result(outcome)["why"] == "steps"
    (loader,) = only_result(outcome)["loaders"]
    assert loader["iterators"] == 2
    assert loader["ended_early"] == 2

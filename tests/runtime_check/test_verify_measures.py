"""From a rank's raw result to numbers, on results made by hand."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from runtime_check.measures import breakdown, bytes_text, forward_batch, plain_intervals, steps_seen, timing, with_batch
from runtime_check.statistics import median, quantile, slope


def result(step_ms: list[float], warmup: int = 2, **changes: Any) -> dict[str, Any]:
    boundaries = [0]
    for ms in step_ms:
        boundaries.append(boundaries[-1] + int(ms * 1e6))
    return {
        "warmup": warmup, "boundaries_ns": boundaries, "cpu_ns": boundaries, "flags": {}, "sums": {}, "cuda_ms": None,
        "optimizers": [], "anchor": None, "rank": 0, "world": 1, **changes,
    }  # fmt: skip


def test_the_warm_up_is_left_out() -> None:
    measured = timing(result([900, 500, 10, 10, 10, 12]))
    assert measured is not None
    assert measured.steps_ms == (10, 10, 10, 12)
    assert steps_seen(result([900, 500, 10, 10])) == 2


def test_steps_with_an_evaluation_or_a_checkpoint_are_left_out_and_counted() -> None:
    flags = {"4": ["eval"], "5": ["torch.save"], "3": ["loader_started"]}
    measured = timing(result([9, 9, 10, 400, 300, 10, 10, 10, 10, 10], flags=flags))
    assert measured is not None
    assert set(measured.steps_ms) == {10.0}
    assert measured.excluded == {"eval": 1, "torch.save": 1, "loader_started": 1}


def test_what_flags_every_step_is_no_reason_to_leave_it_out() -> None:
    flags = {str(n): ["eval_mode"] for n in range(20)}
    plain, excluded = plain_intervals(result([10] * 10, flags=flags))
    assert len(plain) == 8
    assert excluded == {}


def test_wait_throughput_and_batch_size() -> None:
    sums = {str(n): {"loader_ns": 4e6, "samples": 32, "tokens": 3200} for n in range(20)}
    measured = timing(result([10] * 8, sums=sums))
    assert measured is not None
    assert measured.wait_share == pytest.approx(0.4)
    assert measured.samples_per_s == pytest.approx(3200)
    assert measured.tokens_per_s == pytest.approx(320_000)
    assert measured.batch_size == 32


def test_without_a_loader_the_forward_s_input_gives_the_batch() -> None:
    plain = timing(result([10] * 8))
    assert plain is not None
    assert plain.samples_per_s is None
    sums = {str(n): {"forward_samples": 8, "forward_tokens": 0} for n in range(20)}
    measured = with_batch(plain, forward_batch(result([70] * 8, sums=sums)))
    assert measured.samples_per_s == pytest.approx(800)
    assert measured.tokens_per_s is None


def test_shares_of_the_step_add_up() -> None:
    sums = {str(n): {"loader_ns": 1e6, "forward_ns": 3e6, "backward_ns": 4e6, "optimizer_ns": 1e6} for n in range(20)}
    shares = breakdown(result([10] * 8, sums=sums))
    assert shares is not None
    assert shares["backward"] == pytest.approx(0.4)
    assert shares["other"] == pytest.approx(0.1)
    assert sum(shares.values()) == pytest.approx(1.0)


def test_no_step_after_the_warm_up_is_no_timing() -> None:
    assert timing(result([10, 10])) is None


def test_quantiles_and_slope() -> None:
    assert quantile([1, 2, 3, 4], 0.5) == median([1, 2, 3, 4]) == 2.5
    assert math.isnan(quantile([], 0.5))
    exact = slope([10, 13, 16, 19, 22])
    assert exact is not None
    assert (exact.value, exact.low, exact.high) == pytest.approx((3, 3, 3))
    flat = slope([5, 7, 5, 7, 5, 7])
    assert flat is not None
    assert flat.low < 0 < flat.high
    assert slope([1, 2, 3]) is None


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (512, "512 B"), (1536, "1.5 KiB"), (3 * 2**20, "3.0 MiB"), (2**30, "1.0 GiB")]
)
def test_bytes_are_said_for_people(size: int, text: str) -> None:
    assert bytes_text(size) == text


def test_the_clock_keeps_what_was_counted_in_each_interval(probe_module: Any, monkeypatch: Any) -> None:
    """Counters run on; an interval is the difference between two marks, and the open one reaches up to now."""
    import sys

    probe_module("clock")
    monkeypatch.setattr(sys.modules["_trainlint_probe"].STATE, "active", True)
    clock = probe_module("clock").Clock()
    optimizer = object()
    clock.torch = SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: False))
    clock.warmup = 3
    clock.add("warm", 1)
    for step in range(1, 6):
        clock.waited_ns += 10 * step
        clock.samples += step
        clock.batches += 1
        clock.optimizer_stepped(optimizer)
    assert clock.anchored is optimizer
    # The anchor is chosen at the third turn: what lies before is no step, and its counts are in the first interval.
    assert len(clock.boundaries) == 3
    assert clock.counted_in(0) == {"loader_ns": 60, "batches": 3, "samples": 6, "warm": 1}
    assert clock.counted_in(2) == {"loader_ns": 50, "batches": 1, "samples": 5}
    clock.tokens += 7
    assert clock.counted_in(3) == {"tokens": 7}
    assert clock.optimizer_stepped(object()) is None  # a rarer optimizer within the warm-up: chosen anew
    assert clock.anchored is None
    assert clock.boundaries == []
    assert clock.counted_in(0) == {}


@pytest.mark.torch
def test_without_evaluations_one_that_comes_within_the_steps_ends_after_a_batch(launch: Any) -> None:
    def evaluation(**options: Any) -> dict[str, Any]:
        (result,) = launch("careful.py", until_eval=True, limit_train_batches=4, **options).results
        (loader,) = (loader for loader in result["loaders"] if loader["role"] == "eval")
        return loader

    usual, cut = evaluation(), evaluation(evaluate=False, limit_eval_batches=1)
    assert usual["batches"] > usual["iterators"]
    assert cut["batches"] == cut["iterators"] >= 1


@pytest.mark.torch
def test_one_function_makes_two_loaders_and_their_roles_are_told_apart(launch: Any) -> None:
    (result,) = launch("one_maker.py", "parts", until_eval=True, limit_eval_batches=4, warmup=10).results
    by_role = {loader["role"]: loader for loader in result["loaders"]}
    assert set(by_role) == {"train", "eval"}
    assert by_role["eval"]["batches"] == 4 * by_role["eval"]["iterators"]
    assert by_role["train"]["largest_batch"] == 8  # the last of an epoch holds four
    assert result["scaler_steps"] > 0
    assert result["parts"]["scaler"] is False  # nothing is scaled: autocast is still to be tried

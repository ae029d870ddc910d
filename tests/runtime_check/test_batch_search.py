"""`--find-batch-size`: the search on made-up machines, what a launch's answer is read from, and one real search."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from verify_runs import Launcher

from runtime_check import machine
from runtime_check.launch import Outcome, Pass, Session
from runtime_check.report import what_if_rows
from runtime_check.report.as_json import to_json
from runtime_check.report.content import searched
from runtime_check.verify import verify
from runtime_check.what_if.batch_size import (
    BatchSearch,
    Trial,
    _refused,
    find,
    search,
    text_of,
    to_object,
    trial_of,
    trial_pass,
)
from runtime_check.what_if.gpus import memory_of, size_bytes

MIB = 2**20


def machine_of(bytes_: Callable[[int], float], limit: float) -> Callable[[int], Trial]:
    return lambda size: Trial(size, bytes_(size) <= limit, int(bytes_(size)), "" if bytes_(size) <= limit else "over")


@pytest.mark.parametrize(
    ("bytes_", "start"),
    [
        (lambda n: 1000 + 10 * n, 12),
        (lambda n: 1000 + 10 * n, 5000),
        (lambda n: 5 + 0.1 * n * n, 16),
        (lambda n: 100 * n, 1),
        (lambda n: 20_000 + n, 64),
        (lambda n: 3000 * n, 8),
    ],
)
def test_the_search_ends_beside_the_largest_that_fits(bytes_: Callable[[int], float], start: int) -> None:
    limit = 30_000.0
    trials, ended = search(start, limit, machine_of(bytes_, limit))
    assert ended is None
    best = max(trial.size for trial in trials if trial.fits)
    grain = 8 if best >= 64 else 1
    assert bytes_(best) <= limit < bytes_(best + grain)
    assert len({trial.size for trial in trials}) == len(trials)


def test_no_trial_asks_for_more_than_four_times_what_fits() -> None:
    asked: list[int] = []

    def run(size: int) -> Trial:
        fitting = max(asked, default=size)
        assert size <= 4 * fitting
        asked.append(size)
        return Trial(size, size <= 5000, size)

    search(2, 1e12, run)
    assert max(asked) > 5000


def test_nothing_fits() -> None:
    trials, ended = search(6, 10.0, lambda size: Trial(size, False, 99, "over"))
    assert [trial.size for trial in trials] == [6, 3, 1]
    assert ended is None
    made = BatchSearch(start=6, trials=tuple(trials), limit=10)
    assert "no batch size fits" in text_of(made)[0]


def test_a_small_data_set_ends_the_search() -> None:
    trials, ended = search(4, 1e9, lambda size: Trial(min(size, 100), True, min(size, 100), "", size > 100))
    assert ended == "the data gives no batch of more than 100"
    assert max(trial.size for trial in trials if trial.fits) == 100


def result(**more: Any) -> dict[str, Any]:
    loaders = [{"role": "train", "samples": 52, "batches": 4, "largest_batch": 16}]
    return {"boundaries_ns": [1, 2, 3], "loaders": loaders, "limit": {"bytes": 900, "peak": 700}, **more}


def outcome(*results: dict[str, Any], errors: list[dict[str, Any]] | None = None) -> Outcome:
    return Outcome(Pass("x"), list(results), 0, "script", 1.0, "last words\n", errors=errors or [])


def test_what_a_launch_says() -> None:
    assert trial_of(16, outcome(result())) == Trial(16, True, 700)
    over = trial_of(16, outcome(result(limit={"bytes": 900, "peak": 950, "over": 950})))
    assert (over.fits, over.peak, over.short) == (False, 950, False)
    error = {"out_of_memory": True, "site": ["train.py", 7, "main"]}
    assert "train.py:7" in trial_of(16, outcome(result(), errors=[error])).why
    failed = replace(outcome(), exit_code=1)
    assert "last words" in trial_of(16, failed).why
    assert not trial_of(16, failed).memory
    small = trial_of(32, outcome(result()))
    assert (small.size, small.fits, small.short) == (16, True, True)


def test_what_ends_a_search_is_memory_only_where_it_was_memory() -> None:
    """`drop_last` leaves no batch, or the script has the size written out: no word of "does not fit" then."""
    few = {**result(), "boundaries_ns": [1], "anchor": 0, "optimizers": [{"steps": 1}]}
    ends = trial_of(328, outcome(few))
    assert (ends.fits, ends.memory) == (False, False)
    assert ends.why == "the script ends after 1 of 3 steps: its data gives too few such batches"
    error = {"out_of_memory": False, "type": "RuntimeError", "message": "size (9)\nmore", "site": ["train.py", 7, ""]}
    assert trial_of(9, outcome(errors=[error])).why == "the script fails: RuntimeError: size (9)"
    trials = (Trial(16, True, 700), Trial(320, True, 900), ends)
    made = BatchSearch(largest=320, smallest=328, start=16, limit=MIB, trials=trials)
    first, second, third = text_of(made)
    assert first.startswith("largest batch that ran: 320 (it is 16 now)")
    assert second == f"with 328 it is not memory that ends it: {ends.why}"
    assert third == "tried 16: 700 B, 320: 900 B, 328 (not run)"
    assert search_rows({"batch_size": to_object(made)})["answer"] == "The largest batch that ran: 320 (it is 16 now)"
    memory = replace(made, trials=(*trials[:2], Trial(328, False, 950, "over")))
    assert search_rows({"batch_size": to_object(memory)})["answer"].startswith("The largest batch that fits: 320")
    assert text_of(BatchSearch(start=9, trials=(ends,)))[0].startswith("no batch size could be run (tried 328; ")


def search_rows(report: dict[str, Any]) -> dict[str, Any]:
    made = what_if_rows.search(report)
    assert made is not None
    return made


def test_on_a_cpu_a_limit_is_needed_and_the_machine_is_not_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "available_bytes", lambda: 1000 * MIB)
    assert "--memory-limit" in str(_refused(None, cuda=False))
    assert "more than half" in str(_refused(600 * MIB, cuda=False))
    assert _refused(400 * MIB, cuda=False) is None
    assert _refused(None, cuda=True) is None


def test_on_cuda_the_allocator_is_limited_and_nothing_is_counted() -> None:
    run = trial_pass(["train.py", 3, ""], 64, None, 0.1, cuda=True)
    assert run.instruments == ("limit",)
    assert run.extra["memory_limit"] == {"bytes": None, "headroom": 0.1}
    assert run.extra["changes"][0]["options"] == {"batch_size": 64}


def test_without_a_loader_there_is_nothing_to_search(launch: Launcher) -> None:
    session = Session(launch.options("planted.py"))
    try:
        made = find(session, None, False, lambda *_: None, [])
    finally:
        session.close()
    (said,) = text_of(made)
    assert said.startswith("batch size not searched: the script trains from no DataLoader with a batch size; give ")


def test_sizes_and_cards() -> None:
    assert size_bytes("4GiB") == size_bytes("4g") == 4 * 2**30
    assert size_bytes("1.5M") == int(1.5 * MIB)
    assert memory_of("A100-40g") == 40 * 2**30
    for wrong in ("much", "", "-3G", "0"):
        with pytest.raises(ValueError, match="such as"):
            size_bytes(wrong)
    with pytest.raises(ValueError, match="--gpu takes one of t4"):
        memory_of("abacus")


@pytest.mark.torch
def test_the_largest_batch_is_found_by_running(launch: Launcher) -> None:
    options = launch.options("pictures.py", steps=3, warmup=1, find_batch_size=True, memory_limit=4 * MIB)
    report = verify(options)
    made = report.batch_search
    assert made is not None
    assert made.start == 12
    assert made.largest is not None
    assert made.smallest is not None
    assert 12 < made.largest < made.smallest <= made.largest + 8
    assert made.peak is not None
    assert made.peak <= 0.9 * 4 * MIB
    failed = next(trial for trial in made.trials if trial.size == made.smallest)
    assert failed.peak > 0.9 * 4 * MIB
    assert f"batch_size={made.largest}" in searched(report)[-1]
    assert json.loads(to_json(report))["batch_size"]["largest"] == made.largest
    refused = replace(made, reason="no limit")
    assert text_of(refused) == ["batch size not searched: no limit"]


@pytest.mark.torch
def test_a_search_that_could_not_be_made_is_no_success(launch: Any) -> None:
    """A program that asked for a batch size and got none has to see it."""
    report = verify(launch.options("pictures.py", steps=3, warmup=1, device="cpu", find_batch_size=True))
    assert report.exit_code == 3
    assert report.batch_search is not None
    assert "--memory-limit" in (report.batch_search.reason or "")

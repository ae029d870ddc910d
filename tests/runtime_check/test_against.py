"""A report against an earlier one: what counts as a regression, and what tells nothing."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from reports import DATA, recorded

from runtime_check.against import Against, Change, against, read_report, verdict_of, welch
from runtime_check.commandline import main
from runtime_check.machine import _CpuTime, others_cpus


def timed(*step_ms: float, **host: Any) -> dict[str, Any]:
    """A report of `--repeat`, on a quiet machine."""
    report = recorded("slow_loader")
    report["host"].update({"load": [0.1, 0.1, 0.1], **host})
    report["baseline"]["processes"] = [{"step_ms": ms, "steps": 20, "batch_size": 16.0} for ms in step_ms]
    return report


def metric(found: Against, name: str) -> Any:
    return next(metric for metric in found.metrics if metric.name == name)


QUIET = (40.0, 40.3, 39.8, 40.1, 39.9)


def test_the_same_report_has_no_regression() -> None:
    found = against(timed(*QUIET), timed(*QUIET), "main.json")
    assert not found.regressed
    assert {m.verdict for m in found.metrics} == {Change.NONE}
    assert found.newly_confirmed == ()


@pytest.mark.parametrize(
    ("factor", "verdict"),
    [(1.10, Change.REGRESSION), (1.03, Change.OPEN), (1.005, Change.NONE), (0.90, Change.IMPROVEMENT)],
)
def test_step_time_by_the_interval(factor: float, verdict: Change) -> None:
    found = against(timed(*QUIET), timed(*(ms * factor for ms in QUIET)), "main.json")
    time = metric(found, "step time")
    assert time.verdict is verdict
    assert time.low < factor - 1 < time.high
    assert found.regressed == (verdict is Change.REGRESSION)


def test_processes_that_spread_tell_nothing() -> None:
    spread = (30.0, 52.0, 41.0, 60.0, 35.0)
    assert metric(against(timed(*QUIET), timed(*spread), "x"), "step time").verdict is Change.OPEN


def test_null_runs_seldom_regress() -> None:
    """Both reports of the same code, processes with a standard deviation of 3 %: no more than the interval allows."""
    chance = random.Random(5)
    regressions = 0
    for _ in range(400):
        one, other = ([40 * (1 + chance.gauss(0, 0.03)) for _ in range(5)] for _ in "ab")
        low, high = welch([*map(_log, one)], [*map(_log, other)])
        regressions += verdict_of(low, high, 0.03) is Change.REGRESSION
    assert regressions <= 10


def test_welch_is_the_known_interval() -> None:
    """Against scipy's ttest_ind(equal_var=False).confidence_interval(): freedom 7.26 there, 7 here, so a little wider."""
    low, high = welch([1.0, 2.0, 3.0, 4.0, 5.0], [3.0, 4.5, 6.0, 7.0, 9.0])
    middle = 2.9
    assert (low + high) / 2 == pytest.approx(middle)
    assert high - middle == pytest.approx(2.365 * ((2.5 + 5.3) / 5) ** 0.5, rel=1e-3)


@pytest.mark.parametrize("name", ["cpu", "cpus", "torch", "gpu", "threads"])
def test_another_machine_is_not_compared(name: str) -> None:
    found = against(timed(*QUIET), timed(*(90 + ms for ms in QUIET), **{name: 64}), "main.json")
    time = metric(found, "step time")
    assert time.verdict is Change.NOT_COMPARED
    assert name in time.why
    assert not found.regressed


def test_a_busy_machine_settles_nothing() -> None:
    found = against(timed(*QUIET, load=[9.0, 9, 9]), timed(*(2 * ms for ms in QUIET)), "main.json")
    assert metric(found, "step time").verdict is Change.OPEN
    assert "busy for the earlier report" in metric(found, "step time").why


@pytest.mark.parametrize(
    ("then", "now", "settles"), [(0.0, 0.9, False), (0.9, 0.0, False), (0.9, 0.95, True), (None, 0.9, True)]
)
def test_others_that_take_more_than_before_settle_nothing(then: float | None, now: float, settles: bool) -> None:
    """Below a load of one per processor too: threads that spin while they wait multiply it."""
    before, after = timed(*QUIET, cpus=2), timed(*(2 * ms for ms in QUIET), cpus=2)
    before["utilisation"], after["utilisation"] = {"others_cpus": then}, {"others_cpus": now}
    time = metric(against(before, after, "main.json"), "step time")
    assert time.verdict is (Change.REGRESSION if settles else Change.OPEN)
    assert settles or "other programs took" in time.why


def test_too_few_processes_say_what_is_missing() -> None:
    time = metric(against(timed(40.0), timed(*QUIET), "main.json"), "step time")
    assert time.verdict is Change.OPEN
    assert "--repeat 5" in time.why


def test_another_batch_size_is_compared_by_the_sample() -> None:
    after = timed(*(2 * ms for ms in QUIET))
    for process in after["baseline"]["processes"]:
        process["batch_size"] = 32.0
    assert metric(against(timed(*QUIET), after, "x"), "time per sample").verdict is Change.NONE


@pytest.mark.parametrize(
    ("factor", "verdict"), [(1.05, Change.REGRESSION), (1.02, Change.NONE), (0.5, Change.IMPROVEMENT)]
)
def test_bytes_are_counted(factor: float, verdict: Change) -> None:
    after = timed(*QUIET)
    after["baseline"]["peak_bytes"]["eval"] *= factor
    found = against(timed(*QUIET), after, "main.json")
    assert metric(found, "peak memory in evaluation").verdict is verdict
    assert metric(found, "peak memory in training").verdict is Change.NONE


def test_a_call_on_every_step_is_a_regression_and_a_rare_one_is_none() -> None:
    before, rare, often = timed(*QUIET), timed(*QUIET), timed(*QUIET)
    rare["baseline"]["syncs_per_step"] += 0.1
    often["baseline"]["syncs_per_step"] += 1.0
    assert not against(before, rare, "x").regressed
    assert against(before, often, "x").regressed


def test_growth_is_a_regression() -> None:
    after = timed(*QUIET)
    after["baseline"]["growth_bytes_per_step"] = 4096.0
    assert metric(against(timed(*QUIET), after, "x"), "memory growth").verdict is Change.REGRESSION
    assert metric(against(after, timed(*QUIET), "x"), "memory growth").verdict is Change.IMPROVEMENT


@pytest.mark.parametrize(("then", "regression"), [("refuted", True), ("inconclusive", False), (None, True)])
def test_what_is_newly_confirmed(then: str | None, regression: bool) -> None:
    before = timed(*QUIET)
    confirmed = next(f for f in before["findings"] if f["verdict"] == "confirmed")
    if then is None:
        before["findings"].remove(confirmed)
    else:
        confirmed["verdict"] = then
    found = against(before, timed(*QUIET), "main.json")
    assert [listed.code for listed in found.newly_confirmed] == [confirmed["code"]]
    assert found.newly_confirmed[0].was == (then or "absent")
    assert found.regressed == regression


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"schema": "trainlint-verify/9"}', '"x"'])
def test_what_is_no_report_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no JSON|schema"):
        read_report(text)


# -- the command line, on kept reports: runs nothing


def stored(folder: Path, name: str, report: dict[str, Any]) -> str:
    path = folder / name
    path.write_text(json.dumps(report), encoding="utf-8")
    return str(path)


def test_a_regression_exits_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = stored(tmp_path, "before.json", timed(*QUIET))
    worse = stored(tmp_path, "worse.json", timed(*(1.2 * ms for ms in QUIET)))
    assert main(["--from", worse, "--baseline", before]) == 1
    assert "step time: regression: 40.00 -> 48.00 ms" in capsys.readouterr().out
    assert main(["--from", before, "--baseline", before]) == 0
    assert main(["--from", worse, "--baseline", before, "--fail-on", "confirmed"]) == 1


def test_confirmed_exits_with_1_only_when_asked(tmp_path: Path) -> None:
    clean = timed(*QUIET)
    clean["findings"] = []
    assert main(["--from", stored(tmp_path, "clean.json", clean), "--fail-on", "confirmed"]) == 0
    assert main(["--from", str(DATA / "slow_loader.json"), "--fail-on", "confirmed"]) == 1
    assert main(["--from", str(DATA / "slow_loader.json")]) == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ["--from", "no-such.json"],
        ["train.py", "--baseline", "no-such.json"],
        ["--from", str(DATA / "slow_loader.json"), "train.py"],
        ["--from", str(DATA / "slow_loader.json"), "--fail-on", "regression"],
        ["--from", str(DATA / "slow_loader.json"), "--output-format", "markdown"],
        ["--from", __file__],
    ],
)
def test_asked_wrongly_exits_with_2_before_anything_runs(
    arguments: list[str], tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("raise SystemExit('must not run')\n", encoding="utf-8")
    assert main(arguments) == 2


def test_a_page_of_a_kept_report(tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    page = tmp_path / "report.html"
    assert main(["--from", str(DATA / "cifar.json"), "--html", str(page)]) == 0
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_without_jinja2_an_html_report_is_refused_before_the_run(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    import sys

    script = tmp_path / "train.py"
    script.write_text("raise SystemExit('must not run')\n", encoding="utf-8")
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert main([str(script), "--html", str(tmp_path / "x.html")]) == 2
    assert "trainlint[report]" in capsys.readouterr().err


def _log(value: float) -> float:
    import math

    return math.log(value)


def test_what_others_take_is_what_is_busy_beside_the_script() -> None:
    begun, ended = _CpuTime(100.0, 50.0, 1.0), _CpuTime(110.0, 65.0, 7.0)
    assert others_cpus(begun, ended) == pytest.approx(0.9)
    assert others_cpus(begun, _CpuTime(110.0, 55.0, 7.0)) == 0.0  # clocks of two kinds
    assert others_cpus(None, ended) is None

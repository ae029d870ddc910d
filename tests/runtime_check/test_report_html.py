"""The HTML report: complete, self-contained, readable without colour. What a browser makes of it: test_report_browser."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from reports import MEMORY, NAMES, candidate, recorded, varied, with_candidates, without

pytest.importorskip("jinja2")

from runtime_check.commandline import main
from runtime_check.report.html import PAGE, plots, to_html
from runtime_check.report.plots.svg import Scale, ticks

EMPTY = {"schema": "trainlint-verify/1", "script": "train.py", "failure": "the script made no whole step."}


class Seen(HTMLParser):
    """Elements, addresses and ids; complains about tags that are not closed in turn."""

    VOID = ("meta", "link", "br")

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.ids: set[str] = set()
        self.text: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href", "action")]
        self.ids |= {value for name, value in attrs if name == "id" and value}
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_candidates_stand_in_a_ranked_table_with_intervals_and_lines() -> None:
    slower = candidate("checkpointing", speedup={"value": 0.8, "interval": [0.78, 0.83]}, time=None, **MEMORY)
    same = candidate("fused", speedup={"value": 1.01, "interval": [0.97, 1.04]}, remark="per sample")
    absent = candidate("TF32", measured=False, speedup=None, text="TF32: not run here: needs CUDA")
    said = " ".join(Seen(to_html(with_candidates(candidate("AMP"), slower, same, absent))).text)
    said = " ".join(said.split())
    assert "1 AMP 1.51\N{MULTIPLICATION SIGN} \N{BLACK UP-POINTING TRIANGLE} faster [1.47, 1.54], on-CPU time" in said
    assert "2 checkpointing 1.25\N{MULTIPLICATION SIGN} \N{BLACK DOWN-POINTING TRIANGLE} slower [1.20, 1.28]" in said
    assert "-23.0 % in training, 4.0 MiB \N{RIGHTWARDS ARROW} 3.0 MiB" in said
    assert "3 fused per sample 1.01\N{MULTIPLICATION SIGN} = no difference seen" in said
    assert "train.py:26: with torch.autocast(<x>):" in said
    assert "1 not measured TF32: not run here: needs CUDA" in said


def test_what_a_number_leaves_out_is_said_beside_it() -> None:
    why = "saves 9 %, which does not stand among 4 findings tested together"
    doubted = candidate("AMP", time={"verdict": "inconclusive", "why": why, "effect": {}})
    in_turn = candidate(
        "workers", time={"verdict": "confirmed", "why": "...: they ran one after the other", "effect": {}}
    )
    why = "checkpointing was not compared: it would take about 4m"
    untimed = candidate("checkpointing", speedup=None, time={"why": why, "effect": {}}, **MEMORY)
    page = to_html(with_candidates(doubted, in_turn, untimed))
    assert "does not stand among all that were tried together" in page
    assert "the runs went one after the other" in page
    assert "time not measured: it would take about 4m" in page


def test_the_search_of_a_batch_size_is_shown_trial_by_trial() -> None:
    trials = [
        {"size": 12, "fits": True, "peak": 2**20, "why": "", "short": False},
        {"size": 600, "fits": False, "peak": 58 * 2**20, "why": "counted bytes passed the limit", "short": False},
    ]
    found = {
        "largest": 592, "smallest_that_does_not_fit": 600, "now": 12, "limit_bytes": 64 * 2**20, "headroom": 0.1,
        "kind": "live_tensor_bytes", "trials": trials, "ended": None, "reason": None,
        "edits": [{"file": "/project/train.py", "line": 3, "now": None, "instead": "batch_size=592"}],
    }  # fmt: skip
    said = " ".join(" ".join(Seen(to_html({**EMPTY, "failure": None, "batch_size": found})).text).split())
    assert "The largest batch that fits: 592 (it is 12 now) ; 10% of the limit of 64.0 MiB kept free" in said
    assert "600 58.0 MiB no: counted bytes passed the limit" in said
    assert "No finding was answered" not in said
    refused = {**found, "largest": None, "reason": "on a CPU it takes a --memory-limit", "trials": []}
    assert "Not searched: on a CPU it takes a --memory-limit" in to_html({**EMPTY, "batch_size": refused})


def test_a_prediction_is_a_table_of_ratios_and_estimates() -> None:
    estimate = {
        "title": "as it is", "ratio": 1.0, "peak_bytes": 15 * 2**20, "low_bytes": 11 * 2**20, "high_bytes": 19 * 2**20,
        "exact_bytes": 4 * 2**20, "by_category": {}, "fits": "open",
    }  # fmt: skip
    made = {
        "kind": "estimate", "error_of_activations": 0.35, "failure": None, "gpu": "12MiB", "gpu_bytes": 12 * 2**20,
        "as_it_is": estimate, "variants": [{**estimate, "title": "batch_size=16", "ratio": 1.73, "fits": "no"}],
        "left_out": ["checkpointing: the step does not run"], "excluded": "without the CUDA context",
    }  # fmt: skip
    said = " ".join(" ".join(Seen(to_html({**EMPTY, "failure": None, "prediction": made})).text).split())
    assert "batch_size=16 \N{MULTIPLICATION SIGN}1.73 15.0 MiB [11.0 MiB, 19.0 MiB] 4.0 MiB will not fit" in said
    assert "as it is \N{MULTIPLICATION SIGN}1.00 15.0 MiB [11.0 MiB, 19.0 MiB] 4.0 MiB too near to tell" in said
    assert "Not predicted: checkpointing: the step does not run" in said
    failed = {**made, "as_it_is": None, "failure": "no call of a model was seen"}
    assert "No prediction: no call of a model was seen" in to_html({**EMPTY, "prediction": failed})


@pytest.mark.parametrize("report", [*map(recorded, NAMES), varied(), EMPTY])
def test_the_page_fetches_nothing_and_runs_nothing(report: dict[str, Any]) -> None:
    page = to_html(report)
    seen = Seen(page)
    assert set(seen.addresses) <= {"data:,"}
    assert "script" not in seen.tags
    assert set(re.findall(r"url\(([^)]*)\)", page)) <= {f"#{name}" for name in seen.ids}
    assert "@import" not in page
    assert "default-src 'none'" in page
    assert not re.findall(r"\son\w+=", page)
    assert len(page) < 300_000


@pytest.mark.parametrize("name", NAMES)
def test_all_of_a_report_is_there(name: str) -> None:
    report = recorded(name)
    page = to_html(report)
    sections = {"verdicts", "comparisons", "steps", "loader", "memory", "syncs", "remarks"}
    assert sections <= Seen(page).ids
    assert page.count("<figure>") == 5
    text = "".join(Seen(page).text)
    for finding in report["findings"]:
        assert finding["code"] in text
        assert finding["why"].replace(report["cwd"] + "/", "") in text
    assert f"{report['baseline']['step_ms']['median']:.2f} ms" in text


@pytest.mark.parametrize(
    "missing",
    [
        ("comparisons",),
        ("over_time",),
        ("baseline", "clock"),
        ("diagnosis",),
        ("loaders", "runs", "noise", "side_effects"),
        ("findings", "not_run", "comparisons"),
        ("host", "made_at", "version", "min_effect", "cwd", "command"),
    ],
)
def test_a_part_may_be_missing(missing: tuple[str, ...]) -> None:
    page = to_html(without(recorded("cifar"), *missing))
    assert "</html>" in page
    Seen(page)


@pytest.mark.parametrize("series", ["phases", "timed", "memory"])
def test_a_series_may_be_empty(series: str) -> None:
    report = recorded("cifar")
    report["over_time"][series] = []
    assert to_html(report).count("<figure>") == 4


def test_a_failure_is_said() -> None:
    page = to_html(EMPTY)
    assert "the script made no whole step." in page
    assert "<figure>" not in page


def test_out_of_memory_is_said_once() -> None:
    lines = ["the script runs out of memory as it is, at train.py:9", "   3.1 GiB  train.py:7  activations"]
    page = to_html({**EMPTY, "failure": lines[0], "out_of_memory": lines})
    assert page.count(lines[0]) == 1
    assert lines[1] in page


@pytest.mark.parametrize(
    "host", [{"torch": "2.13.0", "threads": None}, {"torch": "2.13.0", "gpu": "H100", "threads": 8}, {}]
)
def test_nothing_is_called_none(host: dict[str, Any]) -> None:
    report = without(recorded("cifar"), "host")
    empty = {"cpu": "", "cpus": None, "gpu": None, "torch": None, "threads": None, "shim": False}
    report["host"] = {**empty, **host}
    report["baseline"].update({"batch_size": None, "tokens_per_s": None, "loader_wait_share": None})
    assert "None" not in "".join(Seen(to_html(report)).text)


def test_what_a_script_is_called_does_no_harm() -> None:
    report = recorded("cifar")
    evil = "<script>alert(1)</script>\"'&"
    report["script"] = report["findings"][0]["message"] = report["diagnosis"]["because"] = evil
    report["comparisons"]["made"][0]["effect"]["change"]["title"] = evil
    report["over_time"]["phases"][0]["holds"] = [evil]
    report["over_time"]["memory"][0]["peak_by_category"][evil] = 10_000_000
    page = to_html(report)
    assert "<script" not in page
    Seen(page)


def test_the_earlier_report_is_compared_on_the_page() -> None:
    from runtime_check.against import against

    report = recorded("slow_loader")
    report["baseline"]["peak_bytes"]["train"] *= 2
    report["against"] = against(recorded("slow_loader"), report, "main.json").as_object()
    page = to_html(report)
    assert "Worse than main.json." in page
    assert "▲ regression" in page


# -- plots


def test_heights_of_the_bars_are_the_numbers() -> None:
    step = {"step": 2, "warmup": False, "holds": [], "ms": 10.0, "wait_ms": 4.0}
    report = {"over_time": {"timed": [step, {**step, "step": 3, "wait_ms": 8.0}]}}
    heights = re.findall(r'height="([\d.]+)" class="mark part-(\w+)"', plots(report)["waits"])
    waits = [float(height) for height, part in heights if part == "loader"]
    rest = [float(height) for height, part in heights if part == "work"]
    assert waits[1] == pytest.approx(2 * waits[0], abs=0.11)
    assert rest[0] / waits[0] == pytest.approx(6 / 4, abs=0.01)


def test_a_step_with_an_evaluation_does_not_flatten_the_others() -> None:
    step = {"step": 2, "warmup": False, "holds": [], "ms": 10.0, "wait_ms": 4.0}
    long = {**step, "step": 3, "ms": 5000.0, "holds": ["eval"]}
    svg = plots({"over_time": {"timed": [step, step, long]}})["waits"]
    heights = [float(height) for height in re.findall(r'height="([\d.]+)" class="mark part-work"', svg)]
    assert heights[0] > 50
    assert ">5000<" in svg
    assert "cut off: it is longer and holds an evaluation" in svg


def test_the_interval_is_drawn_where_it_lies() -> None:
    report = varied()
    svg = plots(report)["effects"]
    assert svg.count('class="estimate') == len(report["comparisons"]["made"])
    assert "+21.0% [+17.0%, +25.0%] confirmed" in svg
    assert "+2.0% [-\N{INFINITY}, +\N{INFINITY}] inconclusive" in svg
    assert "nan" not in svg
    assert "inf" not in svg


@pytest.mark.parametrize("high", [1e-9, 0.3, 1.0, 7.7, 1234.5, 9e12])
@pytest.mark.parametrize("base", [2.0, 10.0])
def test_ticks_are_few_and_inside(high: float, base: float) -> None:
    marks = ticks(0.0, high, 4, base)
    assert 2 <= len(marks) <= 6
    assert all(-1e-9 <= mark <= high * (1 + 1e-9) for mark in marks)


def test_a_scale_of_one_value_is_no_division_by_zero() -> None:
    assert Scale(5.0, 5.0, 0.0, 100.0)(5.0) == 0.0


# -- in black and white


def _themes() -> list[dict[str, str]]:
    style = (Path(PAGE) / "page.css").read_text(encoding="utf-8")
    blocks = re.findall(r":root \{([^}]*)\}", style)
    light = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", blocks[0]))
    dark = {**light, **dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", blocks[1]))}
    return [light, dark]


def _luminance(color: str) -> float:
    parts = [int(color[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def _contrast(one: str, other: str) -> float:
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", _themes())
def test_fills_differ_in_lightness_or_pattern(theme: dict[str, str]) -> None:
    """Solid fills that stand in one plot differ as greys do; all others are patterns of their own."""
    solid = [theme[name] for name in ("lightest", "middle", "darkest")]
    pairs = [(a, b) for n, a in enumerate(solid) for b in solid[n + 1 :]]
    assert all(_contrast(a, b) >= 1.9 for a, b in pairs)
    for name in ("warm", "cool", "green", "plain"):
        assert _contrast(theme[f"{name}-under"], theme[f"{name}-over"]) >= 2.5
    style = (Path(PAGE) / "page.css").read_text(encoding="utf-8")
    for prefix in ("part-", "mem-"):
        fills = re.findall(rf"\.{prefix}([\w-]+)[^{{}}]*\{{ fill: ([^;]+);", style)
        used = [fill for _, fill in fills]
        assert len(used) == len(set(used)), "two parts of one plot look the same"


@pytest.mark.parametrize("theme", _themes())
def test_text_can_be_read(theme: dict[str, str]) -> None:
    for name in ("ink", "faint", "bad", "good", "open"):
        assert _contrast(theme[name], theme["page"]) >= 4.5


def test_a_stored_report_tells_its_candidates_in_short(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored = tmp_path / "report.json"
    absent = candidate("TF32", measured=False, text="TF32: not run here: needs CUDA")
    stored.write_text(json.dumps(with_candidates(candidate("AMP"), absent)), encoding="utf-8")
    assert main(["--from", str(stored)]) == 0
    lines = capsys.readouterr().out.splitlines()
    at = lines.index("what if, most gain first:")
    assert lines[at + 1 : at + 4] == [
        "  AMP: as the terminal says it",
        "      train.py:26: with torch.autocast(<x>):",
        "  TF32: not run here: needs CUDA",
    ]


def test_ranks_and_what_they_wait_for_are_shown_where_there_are_several() -> None:
    report = recorded("slow_loader")
    assert 'id="ranks"' not in to_html(report)
    baseline = report["baseline"]
    ranks = [{**baseline, "rank": n, "to_backward_ms": waits} for n, waits in enumerate((1.5, 12.25))]
    call = {"file": "/project/train.py", "line": 26, "function": "main", "what": "all_reduce", "calls": 80}
    collectives = [{**call, "per_step": 4.0}, {**call, "what": "of an earlier version"}]
    page = to_html({**report, "cwd": "/project", "ranks": ranks, "collectives": collectives})
    assert "12.25 ms" in page
    assert "<code>train.py:26</code></td><td>all_reduce" in page
    assert "of an earlier version" not in page


@pytest.mark.parametrize(("value", "said"), [(-0.0001, "0 %"), (0.0, "0 %"), (-0.198, "-19.8 %"), (0.0301, "+3.0 %")])
def test_a_change_of_nothing_has_no_sign(value: float, said: str) -> None:
    from runtime_check.report.what_if_rows import tried

    made = {"title": "t", "measured": True, "remark": "", "edits": [], "speedup": None, "time": None}
    made.update(memory={"effect": {"metric": "train_peak_bytes", "a": 1024, "b": 1024}}, memory_change={"value": value})
    (row,) = tried({"what_if": {"candidates": [made]}})
    assert row["memory"][0] == said

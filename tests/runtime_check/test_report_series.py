"""What the report says of each step, and the JSON report against its documentation."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from reports import NAMES, recorded
from verify_runs import ROOT, Launcher

from runtime_check.evidence import Evidence
from runtime_check.report.as_json import to_object
from runtime_check.report.series import merged, over_time
from runtime_check.verify import Report, verify


def stretch(step: int, phase: str, peak: int, end: int = 1) -> dict[str, Any]:
    return {
        "step": step, "phase": phase, "peak": peak, "peak_by_category": {"activations": peak}, "end": end,
        "end_by_category": {"activations": end},
    }  # fmt: skip


def seen(stretches: list[dict[str, Any]]) -> list[tuple[int, str, int, int]]:
    return [(one["step"], one["phase"], one["peak"], one["end"]) for one in merged(stretches)]


def test_a_step_is_one_stretch_and_its_evaluation_another() -> None:
    parts = [stretch(1, "start", 5), stretch(2, "start", 6, 2), stretch(2, "train", 9, 3), stretch(3, "train", 4)]
    assert seen(parts) == [(1, "train", 5, 1), (2, "train", 9, 3), (3, "train", 4, 1)]


def test_what_an_evaluation_leaves_alive_is_no_peak_of_training() -> None:
    parts = [stretch(3, "other", 4), stretch(3, "eval", 90, 80), stretch(3, "other", 85, 2), stretch(3, "train", 9)]
    assert seen(parts) == [(3, "eval", 90, 2), (3, "train", 9, 1)]


def test_nothing_measured_is_nothing_over_time() -> None:
    empty = {"phases": [], "timed": [], "memory": [], "allocator": []}
    assert over_time(Evidence(min_effect=0.03, cuda=False)) == empty


@pytest.mark.torch
def test_memory_over_time_has_the_peaks_that_the_pass_reports(launch: Launcher) -> None:
    memory = launch("slow_loader.py", "memory", until_eval=True).results[0]["memory"]
    stretches = memory["over_time"]
    assert max(one["peak"] for one in stretches) == memory["peak"]
    assert max(one["peak"] for one in stretches if one["phase"] == "eval") == memory["phases"]["eval"]["peak"]
    for one in stretches:
        assert one["peak"] * 0.97 <= sum(one["peak_by_category"].values()) <= one["peak"]
        assert sum(one["end_by_category"].values()) == one["end"]
    boundaries = [one["end"] for one in stretches if one["phase"] in ("start", "train")]
    assert set(memory["boundary_bytes"]) <= set(boundaries)


@pytest.mark.torch
@pytest.mark.parametrize("script", ["two_optimizers.py", "late_optimizer.py"])
def test_steps_ascend_also_where_the_clock_chose_anew(launch: Launcher, script: str) -> None:
    result = launch(script, "memory", until_eval=True).results[0]
    steps = [one["step"] for one in result["memory"]["over_time"]]
    assert steps == sorted(steps)
    assert steps[-1] <= len(result["boundaries_ns"]) + 1


@pytest.fixture(scope="module")
def repeated(launch: Launcher) -> Report:
    """Three processes of the timing pass, no finding."""
    return verify(replace(launch.options("tokens.py"), steps=4, warmup=2, repeat=3))


@pytest.mark.torch
def test_each_process_of_the_timing_pass_is_a_replicate(repeated: Report) -> None:
    content = to_object(repeated)
    processes = content["baseline"]["processes"]
    assert len(processes) == 3
    assert all(process["step_ms"] > 0 for process in processes)
    assert processes[0]["step_ms"] == content["baseline"]["step_ms"]["median"]
    assert [run["kind"] for run in content["runs"]].count("timing") == 3


@pytest.mark.torch
def test_the_text_that_was_measured_is_named(repeated: Report) -> None:
    import hashlib
    from pathlib import Path

    path = str(repeated.options.script_path())
    assert repeated.files == {path: hashlib.sha256(Path(path).read_bytes()).hexdigest()}
    assert repeated.made_at.endswith("+00:00")


@pytest.mark.torch
def test_a_report_goes_through_json(repeated: Report) -> None:
    content = to_object(repeated)
    assert json.loads(json.dumps(content)) == json.loads(json.dumps(content, allow_nan=False))
    assert set(content) == set(documented()[""])


@pytest.mark.torch
def test_markdown_and_terminal_say_what_became_worse(repeated: Report) -> None:
    from runtime_check.against import against
    from runtime_check.report import terminal
    from runtime_check.report.markdown import to_markdown

    before = to_object(repeated)
    before["baseline"]["peak_bytes"]["train"] /= 2
    worse = replace(repeated, against=against(before, to_object(repeated), "main.json"))
    text = "\n".join(line for line, _ in terminal.lines(worse))
    markdown = to_markdown(worse)
    assert "worse than main.json" in text
    assert "peak memory in training: regression:" in text
    assert "| peak memory in training | regression |" in markdown
    assert "baseline" not in to_markdown(repeated)


@pytest.mark.parametrize(
    ("verdicts", "said"),
    [
        (("no regression", "improvement"), "no regression against"),
        (("no regression", "inconclusive"), "no regression seen, metric 1 not settled, against"),
        (("regression", "inconclusive"), "worse than"),
    ],
)
def test_what_is_not_settled_is_not_called_no_regression(verdicts: tuple[str, ...], said: str) -> None:
    from runtime_check.against import Against, Change, Metric

    metrics = tuple(Metric(f"metric {n}", Change(verdict), "") for n, verdict in enumerate(verdicts))
    assert Against("main.json", "", metrics, ()).said == said


# -- the documentation


def documented() -> dict[str, list[str]]:
    """Section -> keys that docs/verify-schema.md names in its tables."""
    text = (ROOT / "docs" / "verify-schema.md").read_text(encoding="utf-8")
    sections: dict[str, list[str]] = {"": []}
    section = ""
    for line in text.splitlines():
        if line.startswith("## "):
            section = line[3:].strip("`")
            section = "" if section == "The report" else section
            sections.setdefault(section, [])
        elif line.startswith("| `"):
            sections[section] += re.findall(r"`([\w]+)`", line.split("|")[1])
    return sections


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("section", "find"),
    [
        ("", lambda report: [report]),
        ("host", lambda report: [report["host"]]),
        ("baseline", lambda report: [report["baseline"]]),
        ("findings", lambda report: report["findings"]),
        ("effect", lambda report: [m["effect"] for m in report["comparisons"]["made"]]),
        ("over_time", lambda report: [report["over_time"]]),
        ("noise", lambda report: [report["noise"]]),
    ],
)
def test_every_key_is_documented(name: str, section: str, find: Any) -> None:
    known = set(documented()[section])
    for part in find(recorded(name)):
        assert set(part) <= known

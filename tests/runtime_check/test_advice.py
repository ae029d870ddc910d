"""The page of advice: what stands in it, and the experiments that need a GPU, which run where one is."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from verify_runs import ROOT

from benchmarks.advice.cases import CASES, FIXTURES, GPU_CASES, Case, accumulation, sequential, two_workers
from benchmarks.advice.page import ADVICE, ON_A_GPU, page
from benchmarks.advice.running import keep, read, run


def row(name: str, **changes: Any) -> dict[str, Any]:
    effect = {"metric": "step_time", "clock": "on-CPU", "a": 10.0, "b": 8.0}
    made: dict[str, Any] = {
        "name": name,
        "title": "AMP (bfloat16)",
        "reason": None,
        "measured": True,
        "speedup": {"value": 1.25, "interval": [1.2, 1.3]},
        "memory_change": None,
        "time": {"verdict": "confirmed", "why": "", "effect": effect},
        "memory": None,
    }
    return {**made, **changes}


def record(case: str, *rows: dict[str, Any]) -> dict[str, Any]:
    return {
        "case": case, "script": "gpt.py", "note": "2 ranks", "date": "2026-01-02", "machine": "a machine", "cpus": 1,
        "torch": "2.13.0", "load": [1.2, 4.0], "seconds": 61, "rows": list(rows),
    }  # fmt: skip


def test_the_table_holds_the_effect_its_interval_the_verdict_and_the_machine() -> None:
    memory = {
        "memory_change": {"value": -0.2, "interval": [-0.2, -0.2]},
        "memory": {"verdict": "confirmed", "why": "", "effect": {"metric": "train_peak_bytes", "a": 2**20, "b": 2**19}},
    }
    text = page([record("gpt", row("amp", **memory), row("sequential", title="in a Sequential"))])
    assert (
        "| AMP (bfloat16) | 1.25x [1.20, 1.30], 10.00 to 8.00 ms a step, on-CPU | -20 %, 1.0 MiB to 512.0 KiB | "
        "time: confirmed, memory: confirmed | 61 |" in text
    )
    assert "Machine: a machine, torch 2.13.0; 1 core used, one thread, load 1 to 4 while it ran. 2026-01-02." in text
    assert text.index("| AMP (bfloat16) |") < text.index("| in a Sequential |")


def test_wall_times_of_a_busy_machine_are_marked() -> None:
    wall = {"metric": "sample_time", "clock": "wall", "a": 10.0, "b": 8.0}
    made = row("workers", time={"verdict": "confirmed", "why": "", "effect": wall})
    assert "10.00 to 8.00 ms a sample, at load 4 |" in page([record("workers-reading", made)])
    quiet = {**record("workers-reading", made), "load": [0.5, 1.0], "cpus": 2}
    text = page([quiet])
    assert "10.00 to 8.00 ms a sample |" in text
    assert "All ran on **one core**" not in text


def test_what_needs_a_gpu_stands_there_as_not_measured_until_it_is() -> None:
    text = page([record("gpt", row("amp"))])
    listed = text.partition("## Not measured: needs a GPU")[2]
    for name, case in ON_A_GPU.items():
        assert f"- {ADVICE[name]}" in listed
        assert case in {one.name for one in GPU_CASES}
    later = page([record("gpt", row("amp")), record("gpu-detector", row("tf32", title="TF32"))])
    assert f"- {ADVICE['tf32']}:" not in later
    assert f"- {ADVICE['ddp']}:" in later


def test_what_was_not_measured_is_listed_with_the_command_for_it() -> None:
    late = {"verdict": "not_run", "why": "it would take about 4m", "effect": {}}
    memory = {
        "memory_change": {"value": -0.2, "interval": [-0.2, -0.2]},
        "memory": {"verdict": "confirmed", "why": "", "effect": {"metric": "train_peak_bytes", "a": 2**20, "b": 2**19}},
    }
    half, none = (
        row("amp", speedup=None, time=late, **memory),
        row("checkpoint", speedup=None, time=late, measured=False),
    )
    bound = row(
        "prefetch-factor", speedup=None, measured=False, time={**late, "verdict": "refuted", "why": "at most 1 %"}
    )
    text = page([record("gpt", half, none), record("prefetch", bound)])
    table, _, listed = text.partition("## Not measured yet")
    assert "| not measured: it would take about 4m |" in table
    assert "not measured: at most 1 %" in table
    assert ADVICE["checkpoint"] not in table
    (line,) = [line for line in listed.splitlines() if "--cases gpt`" in line]
    assert line.startswith("- `python -m benchmarks.advice --cases gpt`, on `gpt.py`: ")
    assert ADVICE["checkpoint"] in line
    assert ADVICE["amp"] not in line
    (line,) = [line for line in listed.splitlines() if "--cases resnet`" in line]
    assert ADVICE["amp"] in line
    assert "--cases prefetch`" not in listed


def test_every_piece_of_advice_has_a_script_that_is_there() -> None:
    names = [case.name for case in (*CASES, *GPU_CASES)]
    assert len(set(names)) == len(names)
    for case in (*CASES, *GPU_CASES):
        assert (FIXTURES / case.script).is_file()
        for make in case.more:
            assert make().name in ADVICE
        assert all(name in ADVICE for name in case.tried)


def test_changes_are_made_at_the_marked_lines() -> None:
    for made in (accumulation(), sequential()):
        (path, text), *_ = made.proposals[0].change.overlay.items()
        now = Path(path).read_text(encoding="utf-8").splitlines()
        changed = [n for n, (a, b) in enumerate(zip(now, text.splitlines(), strict=True), 1) if a != b]
        assert changed == [made.proposals[0].change.rows[0]]  # type: ignore[index]
        compile(text, path, "exec")
    for script in ("resnet.py", "detector.py"):
        change = two_workers(script)().proposals[0].change
        assert "DataLoader(" in (FIXTURES / script).read_text(encoding="utf-8").splitlines()[change.rows[0] - 1]  # type: ignore[index]


def test_a_case_that_is_run_again_takes_the_place_of_what_was_there(tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    for seconds in (1, 2):
        keep({**record("gpt"), "seconds": seconds}, results)
    keep(record("resnet"), results)
    assert [(one["case"], one["seconds"]) for one in read(results)] == [("gpt", 2), ("resnet", 61)]


@pytest.mark.gpu
@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize("case", GPU_CASES, ids=lambda case: case.name)
def test_advice_that_needs_a_gpu_is_measured_on_one(case: Case) -> None:
    """Each candidate gets a number and an interval; which, is for the page to say."""
    torch = pytest.importorskip("torch")
    if torch.cuda.device_count() < case.devices:
        pytest.skip(f"needs {case.devices} CUDA devices")
    made = run(case, sys.executable)
    assert made["failure"] is None
    assert len(made["rows"]) >= len(case.tried) + len(case.more)
    for one in made["rows"]:
        assert one["reason"] is None, one["text"]
        for what in (one["time"], one["memory"]):
            assert what is None or what["effect"].get("interval") is not None, one["text"]


def test_the_page_is_that_of_the_results_that_are_kept() -> None:
    results = read(ROOT / "benchmarks" / "advice" / "results.jsonl")
    written = (ROOT / "docs" / "verify-advice.md").read_text(encoding="utf-8")
    assert written == page(results), "run: python -m benchmarks.advice --page"
    assert not any("/" in edit["file"] for one in results for made in one["rows"] for edit in made["edits"])

"""Findings and what the run says of them, on scripts whose truth is known."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from verify_runs import BASE, ROOT, SCRIPTS

from runtime_check.claims import EXPERIMENTS as CLAIMS
from runtime_check.diagnosis import diagnose
from runtime_check.evidence import Evidence, Verdict
from runtime_check.experiments import EXPERIMENTS as FUNCTIONS
from runtime_check.findings import Finding
from runtime_check.launch import Outcome, Pass
from runtime_check.verify import Report, verify

pytestmark = pytest.mark.torch


def finding(code: str, script: str, text: str, claim: str = "-") -> Finding:
    """A finding at the line of the fixture that holds `text`."""
    path = SCRIPTS / script
    row = next(n for n, line in enumerate(path.read_text().splitlines(), 1) if text in line)
    return Finding(code, "", str(path), script, row, row, claim, fingerprint=f"{code}-{row}")


def answers(report: Report) -> dict[str, tuple[str, str]]:
    return {found.fingerprint.split("-")[0]: (answer.verdict.value, answer.why) for found, answer in report.answers}


SLOW = "slow_loader.py"


@pytest.fixture(scope="module")
def slow_loader(tmp_path_factory: pytest.TempPathFactory) -> Report:
    findings = [
        finding("TL101", SLOW, "total += loss.item()", "sync"),
        replace(finding("TL102", SLOW, "print(epoch, step, loss.item())", "sync"), code="TL101"),
        finding("TL201", SLOW, "for inputs, labels in loader:", "memory"),
        finding("TL303", SLOW, "train_loader = DataLoader", "loader"),
        finding("TL304", SLOW, "train_loader = DataLoader", "time"),
        finding("TL601", SLOW, "loss.backward()", "behaviour"),
        finding("TL605", SLOW, "model.eval()", "behaviour"),
        finding("TL202", SLOW, "losses.append", "memory"),
    ]
    options = replace(BASE, script=str(SCRIPTS / SLOW), cwd=tmp_path_factory.mktemp("slow"), steps=20, warmup=5)
    return verify(options, findings)


def test_a_line_that_waits_on_each_step_is_confirmed_with_its_count(slow_loader: Report) -> None:
    verdict, why = answers(slow_loader)["TL101"]
    assert verdict == "confirmed"
    assert "21 of 21 steps, 1.0 times a step" in why
    assert "shows on a GPU only" in why


def test_a_line_that_waits_rarely_is_refuted_with_its_count(slow_loader: Report) -> None:
    verdict, why = answers(slow_loader)["TL102"]  # TL101 again, at the guarded line
    assert verdict == "refuted"
    assert "of 21 steps (claim: every step)" in why


def test_a_graph_kept_in_evaluation_is_confirmed_with_its_bytes(slow_loader: Report) -> None:
    verdict, why = answers(slow_loader)["TL201"]
    assert verdict == "confirmed"
    assert "evaluation held" in why
    assert "KiB of graph per batch" in why


def test_waiting_for_a_loader_without_workers_is_confirmed(slow_loader: Report) -> None:
    verdict, why = answers(slow_loader)["TL303"]
    assert verdict == "confirmed"
    assert "num_workers=0" in why


def test_what_a_cpu_cannot_tell_is_not_run_and_says_why(slow_loader: Report) -> None:
    verdict, why = answers(slow_loader)["TL304"]
    assert verdict == "not_run"
    assert "CUDA" in why


def test_what_the_script_does_right_is_refuted(slow_loader: Report) -> None:
    found = answers(slow_loader)
    assert found["TL601"][0] == "refuted"
    assert found["TL605"][0] == "refuted"
    assert found["TL202"][0] == "refuted"


def test_the_bottleneck_is_named_with_the_line_to_change(slow_loader: Report) -> None:
    diagnosis = slow_loader.diagnosis
    assert diagnosis is not None
    assert diagnosis.bound == "input-bound"
    row = finding("TL303", SLOW, "train_loader = DataLoader").row
    assert f"slow_loader.py:{row}" in diagnosis.next_step
    assert diagnosis.breakdown["loader"] == max(diagnosis.breakdown.values())
    assert sum(diagnosis.breakdown.values()) == pytest.approx(1.0)


def test_memory_is_counted_by_category_exactly(slow_loader: Report) -> None:
    """Parameters of Linear(128, 256) and Linear(256, 10), their gradients, and Adam's two moments of each."""
    diagnosis = slow_loader.diagnosis
    assert diagnosis is not None
    parameters = sum(-(-4 * size // 512) * 512 for size in (128 * 256, 256, 256 * 10, 10))
    assert diagnosis.peak_by_category["parameters"] == parameters
    assert diagnosis.peak_by_category["gradients"] == parameters
    assert 2 * parameters <= diagnosis.peak_by_category["optimizer state"] <= 2 * parameters + 4 * 512
    assert diagnosis.peak["eval"] > 0


def test_instrumented_time_is_not_step_time(slow_loader: Report) -> None:
    timed = slow_loader.evidence.timed
    assert timed is not None
    assert timed.run.instruments == ()


def test_the_report_has_its_schema_and_fingerprints(slow_loader: Report) -> None:
    from runtime_check.report.as_json import to_json

    content = json.loads(to_json(slow_loader))
    assert content["schema"] == "trainlint-verify/1"
    assert content["clock"]["anchor"] == "Adam"
    assert content["baseline"]["samples_per_s"] > 0
    assert content["baseline"]["batch_size"] == 16
    by_id = {found["id"]: found for found in content["findings"]}
    row = finding("TL101", SLOW, "total += loss.item()").row
    assert by_id[f"TL101-{row}"]["verdict"] == "confirmed"
    assert by_id[f"TL101-{row}"]["evidence"]["count_per_step"] == 1.0
    assert [entry["code"] for entry in content["not_run"]] == ["TL304"]
    assert content["side_effects"]["redirected_saves"][0]["path"].endswith("last.pt")


def test_markdown_and_terminal_say_the_same(slow_loader: Report) -> None:
    from runtime_check.report import terminal
    from runtime_check.report.markdown import to_markdown

    text = "\n".join(line for line, _ in terminal.lines(slow_loader))
    markdown = to_markdown(slow_loader)
    for said in ("input-bound", "samples/s", "would synchronise a GPU on 21 of 21 steps", "waiting for data"):
        assert said in text
        assert said in markdown
    assert "CONFIRMED" in text
    assert "| TL101 |" in markdown


MISTAKES = [
    ("TL309", "for epoch in range(50)", "epochs went through the data in the same order"),
    ("TL601", "loss.backward()", "first backwards"),
    ("TL605", "model.eval()", "training forwards ran in eval mode"),
    ("TL201", "in test_loader", "of graph per batch"),
]


@pytest.fixture(scope="module", params=["mistakes.py", "careful.py"])
def behaviours(request: pytest.FixtureRequest, launch: Any) -> tuple[str, Evidence]:
    script = request.param
    observed = launch(script, "syncs", "behaviours", until_eval=True, steps=15)
    memory = launch(script, "memory", until_eval=True, steps=15)
    return script, Evidence(min_effect=0.03, cuda=False, observed=observed, memory=memory)


@pytest.mark.parametrize(("code", "text", "said"), MISTAKES)
def test_mistakes_in_learning_are_seen(behaviours: tuple[str, Evidence], code: str, text: str, said: str) -> None:
    script, evidence = behaviours
    answer = FUNCTIONS[CLAIMS[code]](finding(code, script, text), evidence)
    if script == "mistakes.py":
        assert answer.verdict is Verdict.CONFIRMED, answer
        assert said in answer.why
    else:
        assert answer.verdict is Verdict.REFUTED, answer


def test_a_wait_in_each_evaluation_batch_counts(behaviours: tuple[str, Evidence]) -> None:
    script, evidence = behaviours
    answer = FUNCTIONS["syncs"](finding("TL101", script, ".item()", "sync"), evidence)
    if script == "mistakes.py":
        assert answer.verdict is Verdict.CONFIRMED
        assert "evaluation batches" in answer.why
    else:
        assert answer.verdict is Verdict.REFUTED


def test_memory_that_grows_is_confirmed_by_its_slope(launch: Any) -> None:
    from runtime_check.experiments.memory import growth

    outcome = launch("keeps_losses.py", "memory", steps=15)
    evidence = Evidence(min_effect=0.03, cuda=False, memory=outcome)
    answer = growth(finding("TL202", "keeps_losses.py", "history.append(hidden)"), evidence)
    assert answer.verdict is Verdict.CONFIRMED
    assert answer.evidence["bytes_per_step"] == pytest.approx(32 * 256 * 4)
    assert "32.0 KiB a step" in answer.why
    grown = outcome.results[0]["memory"]["grown_by_line"][0]
    assert grown["line"] == finding("TL202", "keeps_losses.py", "hidden = model[1]").row


@pytest.mark.parametrize(
    ("code", "each", "verdict", "said"),
    [
        ("TL202", 512, Verdict.INCONCLUSIVE, "as much as kept numbers take without their graph"),
        ("TL202", 32768, Verdict.CONFIRMED, "32.0 KiB a step"),
        ("TL202", 0, Verdict.REFUTED, "a graph's nodes, which hold no tensors after a backward, are not counted"),
        ("TL316", 512, Verdict.CONFIRMED, "512 B a step"),
        ("TL316", 0, Verdict.REFUTED, "do not rise"),
    ],
)
def test_numbers_that_are_kept_are_no_kept_graph(code: str, each: int, verdict: Verdict, said: str) -> None:
    """`history.append(loss)` after a backward: the number stays with `.detach()` too."""
    from runtime_check.experiments.memory import growth

    memory = {"boundary_bytes": [4096 + each * n for n in range(16)], "grown_by_line": []}
    made = {"warmup": 2, "flags": {}, "memory": memory, "rank": 0, "pid": 1}
    seen = Evidence(min_effect=0.03, cuda=False, memory=Outcome(Pass("memory"), [made], 0, "script", 1.0, ""))
    answer = growth(Finding(code, "", "train.py", "train.py", 7, 7, "memory"), seen)
    assert answer.verdict is verdict
    assert said in answer.why


@pytest.mark.slow
def test_collecting_garbage_on_each_step_is_confirmed_by_its_share(launch: Any) -> None:
    from runtime_check.experiments.behaviours import housekeeping

    evidence = Evidence(
        min_effect=0.03, cuda=False, broken_down=launch("keeps_house.py", "breakdown"), timed=launch("keeps_house.py")
    )
    answer = housekeeping(finding("TL105", "keeps_house.py", "gc.collect()"), evidence)
    assert answer.verdict is Verdict.CONFIRMED
    assert answer.evidence["calls_per_step"] == pytest.approx(1.0)


def test_ranks_are_reported_one_by_one(launch: Any) -> None:
    from runtime_check.experiments.distributed import reductions
    from runtime_check.experiments.syncs import syncs

    launcher = f"{sys.executable} -m torch.distributed.run --standalone --nproc_per_node=2"
    script = "ranks_by_torchrun.py"
    outcome = launch(script, "syncs", "behaviours", launcher=launcher, arguments=("--accumulate",))
    assert [result["rank"] for result in outcome.results] == [0, 1]
    assert outcome.probe_errors == []
    evidence = Evidence(min_effect=0.03, cuda=False, observed=outcome, timed=outcome)
    assert syncs(finding("TL101", script, "loss.item()"), evidence).verdict is Verdict.CONFIRMED
    answer = reductions(finding("TL503", script, "loss.backward()"), evidence)
    assert answer.verdict is Verdict.CONFIRMED
    assert "reduced 3.0 times per optimizer step" in answer.why
    diagnosis = diagnose(evidence, None)
    assert any("rank 1 is a straggler" in note for note in diagnosis.notes)
    assert "what rank 1 does before its first backward" in diagnosis.next_step


def test_ranks_that_the_script_spawns_itself_report_too(launch: Any) -> None:
    outcome = launch("ranks_by_spawn.py")
    assert [result["rank"] for result in outcome.results] == [0, 1]
    assert {result["why"] for result in outcome.results} == {"steps"}
    assert outcome.probe_errors == []


@pytest.mark.slow
def test_workers_under_spawn_are_tried(tmp_path: Path) -> None:
    """No main guard: what works under fork ends under spawn."""
    found = [finding("TL301", "hard_to_leave.py", "loader = DataLoader")]
    guarded = [finding("TL301", "slow_loader.py", "train_loader = DataLoader")]
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    options = replace(BASE, script=str(SCRIPTS / "hard_to_leave.py"), cwd=tmp_path / "a")
    assert answers(verify(options, found))["TL301"][0] == "confirmed"
    options = replace(BASE, script=str(SCRIPTS / "slow_loader.py"), arguments=("--workers", "1"), cwd=tmp_path / "b")
    assert answers(verify(options, guarded))["TL301"][0] == "refuted"


def test_the_command_line_reads_findings_and_fails_on_confirmed(tmp_path: Path) -> None:
    script = SCRIPTS / "accumulation.py"
    row = finding("TL601", "accumulation.py", "loss.backward()").row
    entry = {"code": "TL602", "filename": str(script), "location": {"row": row, "column": 9}, "fingerprint": "abc"}
    (tmp_path / "found.json").write_text(json.dumps([{**entry, "code": "TL601"}, entry]))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    arguments = [
        "--steps",
        "8",
        "--warmup",
        "3",
        "--threads",
        "1",
        "--findings",
        "found.json",
        "--fail-on",
        "confirmed",
    ]
    # The process that starts the run has no torch: only the script's does.
    without_torch = "import sys; sys.modules['torch'] = None; from runtime_check.commandline import main; "
    full = [sys.executable, "-c", without_torch + "sys.exit(main(sys.argv[1:]))"]
    full += ["--cmd", f"{sys.executable} {script}", *arguments]
    done = subprocess.run(
        [*full, "--output-format", "json"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    content = json.loads(done.stdout)
    verdicts = {found["code"]: found["verdict"] for found in content["findings"]}
    assert verdicts == {"TL601": "refuted", "TL602": "refuted"}
    assert done.returncode == 0

"""The report at a terminal: what is left out, in which order, and how long lines are folded."""

from __future__ import annotations

from pathlib import Path

from runtime_check.diagnosis import Diagnosis, Hotspot
from runtime_check.evidence import Answer, Evidence, Verdict
from runtime_check.experiments.crash import spawn
from runtime_check.findings import Finding
from runtime_check.launch import Outcome, Pass
from runtime_check.messages import busy_machine
from runtime_check.options import Options
from runtime_check.report import content, terminal
from runtime_check.verify import Report


def finding(code: str, row: int) -> Finding:
    return Finding(code, "", "/project/train.py", "train.py", row, row, "-")


def report(**more: object) -> Report:
    options = Options(script="/project/train.py", cwd=Path("/project"))
    return Report(options, 0, {"cpus": 1}, Evidence(0.03, False), **more)  # type: ignore[arg-type]


def test_long_lines_are_folded_at_words_and_indented() -> None:
    line = "TL101  train.py:81  CONFIRMED  line 81 would synchronise a GPU on 6 of 6 steps, 1.0 times a step"
    parts = terminal.folded(line, 60)
    assert all(len(part) <= 60 for part in parts)
    assert [part.startswith("    ") for part in parts] == [False, True]
    assert " ".join(part.strip() for part in parts) == line
    assert terminal.folded(line, None) == [line]
    assert terminal.folded("    the script's\n    last words", 60) == ["    the script's", "    last words"]
    path = "/a/path/that/is/longer/than/the/line/" + "x" * 60
    assert path in [part.strip() for part in terminal.folded(f"{path} is there", 60)]


def test_answers_come_with_their_count_and_the_confirmed_ones_first() -> None:
    answers = (
        (finding("TL304", 3), Answer(Verdict.NOT_RUN, "needs a CUDA device")),
        (finding("TL101", 5), Answer(Verdict.REFUTED, "1 of 21 steps")),
        (finding("TL201", 9), Answer(Verdict.CONFIRMED, "held 13 MiB")),
    )
    told = [line for line, _ in terminal.lines(report(answers=answers))]
    at = told.index("what the static check says of it: 1 confirmed, 1 refuted, 1 not run")
    assert [line.split()[0] for line in told[at + 1 : at + 4]] == ["TL201", "TL101", "TL304"]


def test_lines_that_hold_next_to_nothing_are_left_to_the_json() -> None:
    hot = (Hotspot("/project/train.py", 4, 900, "activations"), Hotspot("/project/train.py", 5, 9, "batch"))
    parts = {"activations": 900, "batch": 91, "parameters": 9}
    diagnosis = Diagnosis("compute-bound", "", "", peak={"train": 1000}, peak_by_category=parts, memory_lines=hot)
    told = "\n".join(line for line, _ in terminal.lines(report(diagnosis=diagnosis)))
    assert "train.py:4" in told
    assert "train.py:5" not in told
    assert "at the peak: activations 900 B, batch 91 B" in told
    assert "parameters" not in told


def test_a_missing_main_guard_is_named_by_the_error_of_the_workers() -> None:
    log = (
        "RuntimeError: \n        An attempt has been made to start a new process before the\n"
        "        current process has finished its bootstrapping phase.\n"
        "RuntimeError: DataLoader worker (pid(s) 14162) exited unexpectedly\n"
    )
    outcome = Outcome(Pass("spawn"), [], 1, "script", 1.0, log)
    answer = spawn(finding("TL301", 3), Evidence(0.03, False, spawned=outcome))
    assert answer.verdict is Verdict.CONFIRMED
    assert "before the current process has finished its bootstrapping phase" in answer.why
    assert "no main guard" in answer.why
    assert "14162" not in answer.why


def test_one_core_and_one_thread_are_said_as_such() -> None:
    assert busy_machine(8.4, 1, 1) == "load 8.4 on 1 core: step times spread; use a quiet machine."
    assert content.counted(2, "core") == "2 cores"

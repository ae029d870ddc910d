"""Each way in which a run gives no measurement, or not all of it, and what is said then."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from verify_runs import BASE, ROOT, SCRIPTS

from runtime_check import messages
from runtime_check.launch import Outcome, Pass, Session
from runtime_check.measures import steps_done
from runtime_check.verify import Report, verify


def run(script: str | None, folder: Path, **changes: Any) -> Report:
    path = str(SCRIPTS / script) if script is not None else None
    return verify(replace(BASE, script=path, cwd=folder, **changes))


def run_until_it_says(script: str, said: str, folder: Path) -> Report:
    """Under a short deadline; under longer ones where a busy machine had not brought the script that far."""
    for deadline in (6.0, 25.0, 100.0):
        report = run(script, folder, deadline_s=deadline)
        if any(said in outcome.log_tail for outcome in report.outcomes):
            return report
    raise AssertionError(f"{script} did not come to {said!r} in {deadline:.0f} s")


@pytest.mark.torch
def test_missing_arguments_show_the_usage_and_where_they_go(tmp_path: Path) -> None:
    report = run("needs_arguments.py", tmp_path)
    assert report.exit_code == 2
    assert report.failure is not None
    assert report.failure.startswith("needs_arguments.py ended with code 2 before its first training step.")
    assert "the following arguments are required: --data" in report.failure
    assert "put them after `--`" in report.failure


@pytest.mark.torch
def test_an_exception_shows_its_last_lines(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch\nraise FileNotFoundError('data/train.bin')\n")
    report = verify(replace(BASE, script=str(script), cwd=tmp_path))
    assert report.exit_code == 2
    assert "FileNotFoundError: data/train.bin" in (report.failure or "")


def test_a_python_without_torch_is_named_with_what_to_do(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import sys\nsys.modules['torch'] = None\nraise ModuleNotFoundError(\"No module named 'torch'\")\n"
    )
    report = verify(replace(BASE, script=str(script), cwd=tmp_path))
    assert report.exit_code == 2
    assert f"{sys.executable} has no torch: name the Python that has it with --python." in (report.failure or "")
    whole = replace(BASE, command=f"{sys.executable} {script}", script=None, cwd=tmp_path)
    assert "The Python of --cmd has no torch: begin it with the path of the one that has." in str(verify(whole).failure)


@pytest.mark.torch
def test_no_step_in_time_names_the_last_line_and_what_to_try(tmp_path: Path) -> None:
    report = run_until_it_says("never_steps.py", "building the index", tmp_path)
    assert report.exit_code == 3
    assert report.failure is not None
    assert "no optimizer step, GradScaler step or backward within" in report.failure
    assert "building the index" in report.failure
    assert "--deadline" in report.failure


@pytest.mark.torch
def test_a_script_that_waits_for_a_person_is_named(tmp_path: Path) -> None:
    report = run_until_it_says("asks.py", "Overwrite the old run?", tmp_path)
    assert report.exit_code == 3
    assert "waiting for input on stdin ('Overwrite the old run? [y/n]')" in (report.failure or "")
    assert "asks.py:5" in (report.failure or "")


@pytest.mark.torch
def test_a_script_that_does_not_train_is_said_to(tmp_path: Path) -> None:
    report = run("not_training.py", tmp_path)
    assert report.exit_code == 2
    assert "ended normally and no training step was seen" in (report.failure or "")


@pytest.mark.torch
@pytest.mark.parametrize("flag", ["-I", "-S"])
def test_an_interpreter_that_keeps_the_hooks_out_is_found_out(tmp_path: Path, flag: str) -> None:
    report = run(None, tmp_path, command=f"{sys.executable} {flag} {SCRIPTS / 'few_steps.py'}")
    assert report.exit_code == 3
    assert "no process of the command loaded trainlint's hooks" in (report.failure or "")
    assert f"`python {flag}`" in (report.failure or "")
    assert "add `--bootstrap`" in (report.failure or "")
    assert ("No module named 'torch'" in (report.failure or "")) == (flag == "-S")  # there it has no site-packages


@pytest.mark.parametrize(
    ("command", "flag"),
    [
        ("python -E train.py", "-E"),
        ("/usr/bin/python3.11 -uI train.py -S", "-I"),
        ("env A=1 python -S -m train", "-S"),
        ("python -m train -I", None),
        ("python -X importtime train.py -E", None),
        ("torchrun train.py -I", None),
        ("python train.py", None),
    ],
)
def test_options_that_keep_the_hooks_out_are_the_interpreters_own(command: str, flag: str | None) -> None:
    from runtime_check.options import ignoring_flag

    assert ignoring_flag(command.split()) == flag


def test_without_such_an_option_the_other_causes_are_named() -> None:
    outcome = Outcome(Pass("observe"), [], 0, "script", 1.0, "")
    text = messages.hooks_not_seen(replace(BASE, command="./train"), outcome)
    assert "(python -I/-E/-S, a frozen app, or a container/ssh launcher?)" in text
    assert "`--bootstrap`" in text
    assert "bootstrap" not in messages.hooks_not_seen(replace(BASE, command="./train", bootstrap=True), outcome)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python -I train.py --x 1", "python -I RUNNER train.py --x 1"),
        ("python train.py", "python RUNNER train.py"),
        ("python -X dev -W error -um pkg.train a", "python -X dev -W error -u RUNNER -m pkg.train a"),
        ("env A=1 python3.12 -c pass", "env A=1 python3.12 RUNNER -c pass"),
        ("./train --x", "./train --x"),
    ],
)
def test_bootstrap_puts_the_runner_between_interpreter_and_script(command: str, expected: str) -> None:
    from runtime_check.options import RUNNER

    words = replace(BASE, command=command, bootstrap=True).command_line()
    assert " ".join(words).replace(RUNNER, "RUNNER") == expected


@pytest.mark.torch
@pytest.mark.parametrize("words", [["-I", str(SCRIPTS / "few_steps.py")], ["-E", "-m", "few_steps"]])
def test_bootstrap_reaches_it(tmp_path: Path, words: list[str]) -> None:
    """Where there is no PYTHONPATH, and with -I no folder of the script's either."""
    cwd = SCRIPTS if "-m" in words else tmp_path
    session = Session(replace(BASE, command=shlex.join([sys.executable, *words]), bootstrap=True, cwd=cwd))
    try:
        outcome = session.launch(Pass("timing"))
    finally:
        session.close()
    assert outcome.probe_errors == []
    assert steps_done(outcome.results[0]) == 7


def test_a_script_without_torch_is_not_taken_for_a_failure_of_the_hooks(tmp_path: Path) -> None:
    script = tmp_path / "hello.py"
    script.write_text("print('hello')\n")
    report = verify(replace(BASE, script=str(script), cwd=tmp_path))
    assert report.exit_code == 3
    assert "never imported torch" in (report.failure or "")


def test_a_command_that_is_not_there(tmp_path: Path) -> None:
    report = run(None, tmp_path, command="no-such-program train.py")
    assert report.exit_code == 2
    assert "could not be started" in (report.failure or "")


@pytest.mark.torch
@pytest.mark.slow
def test_few_steps_are_measured_and_said(tmp_path: Path) -> None:
    report = run("few_steps.py", tmp_path)
    assert report.exit_code == 0
    assert any("the script ended after 7 of 11 steps" in warning for warning in report.warnings)
    assert report.evidence.timing is not None


@pytest.mark.torch
def test_out_of_memory_is_an_answer(tmp_path: Path) -> None:
    report = run("out_of_memory_at_once.py", tmp_path)
    text = "\n".join(report.out_of_memory)
    assert report.diagnosis is not None
    assert report.diagnosis.bound == "memory-bound"
    assert "out_of_memory_at_once.py:9" in text  # where
    assert "out_of_memory_at_once.py:8  activations" in text or "alive at that moment" in text  # what held it
    assert "remedy:" in text


@pytest.mark.torch
def test_out_of_memory_after_some_steps_is_an_answer_too(launch: Any) -> None:
    from runtime_check.messages import out_of_memory

    (error,) = launch("out_of_memory.py", "memory").errors
    assert error["out_of_memory"]
    text = "\n".join(out_of_memory(error, cuda=False))
    assert "out_of_memory.py:12" in text
    assert "optimizer state" in text
    assert "out_of_memory.py:10  activations" in text


@pytest.mark.torch
def test_without_a_gpu_a_script_that_says_cuda_runs_on_the_cpu(launch: Any) -> None:
    from runtime_check.messages import needs_cuda

    assert needs_cuda(launch("hard_coded_cuda.py", device="cpu"))
    outcome = launch("hard_coded_cuda.py", "syncs", device="cpu", shim="on")
    assert outcome.probe_errors == []
    lines = (SCRIPTS / "hard_coded_cuda.py").read_text().splitlines()
    read = {(lines[site["line"] - 1].strip().split("(")[0], site["what"]) for site in outcome.results[0]["syncs"]}
    assert ("print", "item") in read
    assert ("torch.cuda.synchronize", "torch.cuda.synchronize") in read


@pytest.mark.torch
@pytest.mark.slow
def test_the_report_says_that_cuda_was_stood_in_for(tmp_path: Path) -> None:
    from runtime_check.report import content

    report = run("hard_coded_cuda.py", tmp_path, device="cpu")
    assert report.failure is None
    assert any("stand-in for torch.cuda" in line for line in content.head(report))
    assert not any("made no step" in warning for warning in report.warnings)


@pytest.mark.torch
def test_no_shim_leaves_the_error(tmp_path: Path) -> None:
    report = run("hard_coded_cuda.py", tmp_path, device="cpu", shim=False)
    assert report.exit_code == 2
    assert "before its first training step" in (report.failure or "")


@pytest.mark.torch
@pytest.mark.slow
def test_the_run_as_a_whole_has_a_timeout(tmp_path: Path) -> None:
    report = run("slow_loader.py", tmp_path, timeout_s=50.0, deadline_s=25.0, steps=100000)
    assert len(report.outcomes) < 4
    assert any("--timeout" in warning for warning in report.warnings)


def command(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    full = [sys.executable, "-m", "runtime_check", *arguments]
    return subprocess.run(full, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "give a script, or a whole command with --cmd"),
        (["missing.py"], "there is no script missing.py"),
        (["a.py", "--cmd", "python a.py"], "give a script, or a whole command"),
        (["a.py", "--env", "NOVALUE"], "--env takes NAME=VALUE"),
        (["a.py", "--seed", "x"], "--seed is a number or none"),
        (["a.py", "--memory-limit", "1GiB"], "--memory-limit belongs to --find-batch-size"),
        (["a.py", "--steps", "0"], "--steps and --warmup are 1 or more"),
        (["a.py", "--findings", "f.json"], "finding 1 has no code"),
        (["a.py", "--data", "/data"], "unrecognized arguments: --data /data; arguments of the script go after `--`"),
        (["a.py", "--step", "9"], "arguments of the script go after `--`"),
        (["n.ipynb"], "n.ipynb is a notebook, which Python does not run: export it first"),
        (["a.py", "--html", "no/x.html"], "--html no/x.html: there is no folder no"),
        (["a.py", "--output-file", "no/x.txt"], "--output-file no/x.txt: there is no folder no"),
        (["a.py", "--html", "."], "--html .: this is a folder, name a file in it"),
        (["a.py", "--output-file", "a.py"], "--output-file a.py: this is a program and would be written over"),
        (["a.py", "--html", "x", "--output-file", "./x"], "name the same file"),
        (["a.py", "--baseline", "none.json"], "--baseline none.json: cannot be read: No such file or directory"),
    ],
)
def test_what_is_asked_wrongly_is_said_and_exits_2(tmp_path: Path, arguments: list[str], said: str) -> None:
    (tmp_path / "a.py").write_text("")
    (tmp_path / "n.ipynb").write_text("{}")
    (tmp_path / "f.json").write_text('[{"filename": "a.py"}]')
    done = command(*arguments, folder=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr


def test_what_only_names_and_is_no_finding_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("print('ran')\n")
    (tmp_path / "f.json").write_text('[{"filename": "a.py", "code": "TL101", "location": {"row": 1, "column": 1}}]')
    done = command("a.py", "--findings", "f.json", "--only", "TL101,TL9", folder=tmp_path)
    assert "verify: --only TL9 is no finding of this script; there are: TL101." in done.stderr
    assert "--only TL101 is" not in done.stderr


def test_an_interrupt_during_the_static_check_has_the_exit_code_of_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """1 would say that a finding is confirmed."""
    from runtime_check.commandline import main

    def check(options: Any) -> str:
        raise KeyboardInterrupt

    (tmp_path / "a.py").write_text("raise SystemExit('was run')\n")
    assert main([str(tmp_path / "a.py")], check=check) == 130
    assert capsys.readouterr().err == "verify: interrupted; nothing was run.\n"


def test_the_static_check_leaves_no_cache_in_the_project(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import torch\nx = torch.zeros(1)\nprint('ran')\n")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    full = [sys.executable, "-m", "trainlint", "verify", "a.py", "--only", "TL1"]
    done = subprocess.run(full, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "--only TL1 is no finding of this script" in done.stderr  # the check was made
    assert [path.name for path in tmp_path.iterdir()] == ["a.py"]


def test_it_says_that_it_executes_the_script(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("print('ran')\n")
    done = command("a.py", folder=tmp_path)
    assert "verify executes a.py" in done.stderr


RAISED = {"type": "RuntimeError", "message": "boom\nmore of it", "site": ["/p/train.py", 7, "main"], "out_of_memory": 0}


@pytest.mark.parametrize(
    ("code", "errors", "said"),
    [
        (0, [], "the script ended after 6 of 11 steps; what was counted"),
        (3, [], "the script ended with code 3 after 6 of 11 steps; what was counted"),
        (-11, [], "the script was ended by signal 11 after 6 of 11 steps; what was counted"),
        (1, [RAISED], "the script failed after 6 of 11 steps: RuntimeError: boom (train.py:7); what was counted"),
        (1, [{**RAISED, "type": "ChildFailedError"}], "the script ended with code 1 after 6 of 11 steps; what was"),
    ],
)
def test_a_script_that_fails_after_some_steps_is_said_with_its_error(code: int, errors: Any, said: str) -> None:
    made = {"why": "script_ended", "anchor": 0, "optimizers": [{"steps": 6}], "boundaries_ns": [1, 2, 3]}
    outcome = Outcome(Pass("timing"), [made], code, "script", 1.0, "", errors=errors)
    options = replace(BASE, cwd=Path("/p"))
    assert (messages.fewer_steps(options, outcome) or "").startswith(said)
    few = messages.too_few_steps(options, outcome)
    assert few.startswith(said.split(";")[0])
    assert "a measurement takes at least 5: give it more data, a smaller batch or more epochs" in few


@pytest.mark.torch
def test_a_script_of_two_steps_is_said_once_with_what_to_do(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\nw = torch.zeros(1, requires_grad=True)\no = torch.optim.SGD([w], 0.1)\n"
        "for _ in range(2):\n    (w * 2).sum().backward()\n    o.step()\n"
    )
    report = verify(replace(BASE, script=str(script), cwd=tmp_path))
    assert report.exit_code == 3
    assert "the script ended after 2 of 11 steps; a measurement takes at least 5" in (report.failure or "")
    assert report.warnings == ()  # neither the same again, nor of a load under which nothing was timed


@pytest.mark.torch
def test_an_error_inside_torch_shows_the_line_of_the_script_and_none_of_the_instruments(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch\n\nlayer = torch.nn.Linear(8, 1)\nlayer(torch.zeros(4, 9))\n")
    report = verify(replace(BASE, script=str(script), cwd=tmp_path))
    said = report.failure or ""
    assert "mat1 and mat2 shapes cannot be multiplied" in said
    assert "train.py:4" in said or 'train.py", line 4' in said
    assert "runtime_check" not in said


def test_frames_of_the_instruments_are_left_out_of_a_traceback() -> None:
    own = f'  File "{ROOT}/runtime_check/probe/taint.py", line 66, in __torch_dispatch__'
    log = "\n".join(
        [
            "Traceback (most recent call last):",
            '  File "train.py", line 4, in <module>',
            "    layer(batch)",
            own,
            "    out = func(*args)",
            "          ^^^^^^^^^^^",
            '  File "torch/_ops.py", line 875, in __call__',
            "    return self._op(*args)",
            own,
            "    out = func(*args)",
            "RuntimeError: shapes",
        ]
    )
    kept = [line.strip() for line in messages.last_lines(log).splitlines()]
    assert kept == [
        "Traceback (most recent call last):",
        'File "train.py", line 4, in <module>',
        "layer(batch)",
        'File "torch/_ops.py", line 875, in __call__',
        "return self._op(*args)",
        "RuntimeError: shapes",
    ]


@pytest.mark.parametrize(("since", "still"), [(9.0, True), (4.0, False), (None, False)])
def test_a_script_that_hangs_is_told_from_a_slow_one(since: float | None, still: bool) -> None:
    made = {"why": "deadline", "anchor": None, "optimizers": [{"steps": 4}], "boundaries_ns": [0, 10**8, 5 * 10**8]}
    outcome = Outcome(Pass("timing"), [{**made, "since_boundary_s": since}], None, "deadline", 9.0, "")
    said = messages.fewer_steps(BASE, outcome) or ""
    assert said.startswith("the deadline came after 4 of 11 steps")
    assert ("the script had stood still for 9 s" in said) is still


@pytest.mark.torch
def test_of_several_processes_the_first_error_is_the_cause(tmp_path: Path) -> None:
    """Not the one of the lowest process number, nor the one whose peer has gone."""
    script = tmp_path / "train.py"
    script.write_text(
        "import subprocess, sys\nimport torch\n"
        "if sys.argv[1:]:\n    raise ValueError('broke first')\n"
        "subprocess.run([sys.executable, __file__, 'child'])\nraise RuntimeError('connection closed by peer')\n"
    )
    session = Session(replace(BASE, script=str(script), cwd=tmp_path))
    try:
        outcome = session.launch(Pass("timing"))
    finally:
        session.close()
    assert [error["message"] for error in outcome.errors] == ["broke first", "connection closed by peer"]

"""`trainlint check FILE ...` goes past click, which costs more than the check: it must do what click would have it do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trainlint.cli import plain_check
from trainlint.cli.check import DEFAULTS
from trainlint.cli.check_command import command as by_click

ROOT = Path(__file__).resolve().parents[2]


def test_the_options_that_are_not_given_are_those_of_click() -> None:
    context = by_click.make_context("check", [])
    assert context.params == {**DEFAULTS, "paths": ()}


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["train.py"],
        ["a b.py", "models/", "x=1.py"],
        ["-q", "train.py", "--no-cache", "--isolated"],
        ["train.py", "--force-exclude", "--pedantic", "--exit-zero", "--quiet"],
        ["train.py", "train.py"],
        ["", "check"],
    ],
)
def test_plain_arguments_mean_what_they_mean_to_click(arguments: list[str]) -> None:
    plain = plain_check(["check", *arguments])
    assert plain is not None
    paths, flags = plain
    assert {**DEFAULTS, **flags, "paths": paths} == by_click.make_context("check", list(arguments)).params


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "--select", "TL101", "train.py"],
        ["check", "--fix"],
        ["check", "-"],
        ["check", "--", "-odd.py"],
        ["check", "-qv"],
        ["check", "--help"],
        ["check", "--no-such-option"],
        ["rule", "TL101"],
        ["--version"],
        [],
    ],
)
def test_all_else_is_left_to_click(arguments: list[str]) -> None:
    assert plain_check(arguments) is None


def test_completion_is_left_to_click(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_TRAINLINT_COMPLETE", "bash_complete")
    assert plain_check(["check", "train.py"]) is None


def test_patterns_are_left_to_click_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    assert plain_check(["check", "*.py"]) is not None
    monkeypatch.setattr("trainlint.cli.os.name", "nt")
    assert plain_check(["check", "*.py"]) is None
    assert plain_check(["check", "train.py"]) is not None


def test_both_ways_say_the_same(command: Any, tmp_path: Path) -> None:
    script = (ROOT / "fixtures" / "scripts" / "train_cifar_like.py").read_text(encoding="utf-8")
    (tmp_path / "train.py").write_text(script, encoding="utf-8")
    (tmp_path / "trainlint.toml").write_text("", encoding="utf-8")
    (tmp_path / "clean.py").write_text("print('nothing')\n", encoding="utf-8")
    for arguments, code in ((["train.py"], 1), (["clean.py"], 0), (["nowhere.py"], 2), (["-q", "."], 1)):
        short = command("check", *arguments, cwd=tmp_path)
        long = command("check", "--output-format", "text", *arguments, cwd=tmp_path)
        assert short.returncode == long.returncode == code
        assert (short.stdout, short.stderr) == (long.stdout, long.stderr)
    (tmp_path / "trainlint.toml").write_text("no-such = 1\n", encoding="utf-8")
    wrong = command("check", "train.py", cwd=tmp_path)
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("error: ")
    assert "no-such" in wrong.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="pipes close otherwise there")
@pytest.mark.parametrize("more", [[], ["--output-format", "text"]])
def test_a_reader_that_goes_away_is_no_fault(tmp_path: Path, more: list[str]) -> None:
    script = (ROOT / "fixtures" / "scripts" / "train_cifar_like.py").read_text(encoding="utf-8")
    (tmp_path / "train.py").write_text(script, encoding="utf-8")
    (tmp_path / "trainlint.toml").write_text("", encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, "-m", "trainlint", "check", "train.py", *more],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
    assert process.returncode == 1
    assert "Traceback" not in said

"""What is shipped around the code: hooks, documentation, dependencies."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from trainlint.cli.check_command import command as check
from trainlint.configuration import Reader

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_readme_opens_with_the_two_commands_that_ci_runs() -> None:
    commands = [line for line in README.splitlines() if line.startswith("python3 -m venv ")]
    assert len(commands) == 2
    assert "trainlint check fixtures/scripts/train_cifar_like.py" in commands[0]
    assert "pytest" in commands[1]
    assert README.index(commands[1]) < README.index("\n## ")
    assert commands[1] not in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_the_readme_names_every_option_and_every_setting() -> None:
    options = [option for parameter in check.params if isinstance(parameter, click.Option) for option in parameter.opts]
    assert [option for option in options if option.startswith("--") and f"`{option}" not in README] == []
    settings = Reader("trainlint.toml", "", "").keys
    assert [key for key in settings if not re.search(rf"^(\[tool\.trainlint\.)?{key}\b", README, re.MULTILINE)] == []


def test_the_script_of_the_readme_shows_real_mistakes() -> None:
    text = (ROOT / "fixtures" / "scripts" / "train_cifar_like.py").read_text(encoding="utf-8")
    compile(text, "train_cifar_like.py", "exec")
    for mistake in (
        "loss.item()",
        "nn.DataParallel(",
        "num_workers=2",
        "torch.autocast(device.type, dtype=torch.float16)",
    ):
        assert mistake in text
    for cure in ("GradScaler", "no_grad", "__main__"):
        assert cure not in text


@pytest.mark.parametrize("hook", ["trainlint", "trainlint-fix"])
def test_pre_commit_hooks(hook: str) -> None:
    text = (ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8")
    (block,) = [block for block in text.split("- id: ")[1:] if block.splitlines()[0] == hook]
    entry = "trainlint check --fix" if hook == "trainlint-fix" else "trainlint check"
    for line in (
        f"entry: {entry}",
        "language: python",
        "types_or: [python, jupyter]",
        "args: [--force-exclude]",
        "require_serial: true",
    ):
        assert f"\n  {line}\n" in block
    assert "additional_dependencies" not in block


def test_dependencies_have_no_upper_pins() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    requirements = re.findall(
        r'"([a-z-]+[<>=~!][^"]*)"', text[text.index("[project]") : text.index("[project.scripts]")]
    )
    assert len(requirements) > 10
    assert [r for r in requirements if "<" in r.partition(";")[0] or ("==" in r and not r.startswith("torch=="))] == []


def test_the_readme_shows_what_its_first_command_prints() -> None:
    example = README[README.index("```text\n") + len("```text\n") :].partition("```")[0]
    run = subprocess.run(
        [sys.executable, "-m", "trainlint", "check", "fixtures/scripts/train_cifar_like.py", "--isolated"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1
    assert example.strip() in run.stdout
    for code in ("TL101", "TL201", "TL301", "TL401", "TL501"):
        assert f"[{code}]" in run.stdout

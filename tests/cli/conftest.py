"""The command line on a small project in a temporary folder."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from fake.install import installed

from trainlint.cli.group import cli

ROOT = Path(__file__).resolve().parents[2]

Lint = Callable[..., Result]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project, and the working directory."""
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    monkeypatch.chdir(folder)
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture
def lint(project: Path, tmp_path: Path) -> Iterator[Lint]:
    """Runs `trainlint ARGUMENTS` in this process, with the stand-in for the analysis (tests/fake)."""

    def run(*arguments: str, stdin: str | bytes | None = None) -> Result:
        result = CliRunner().invoke(cli, list(arguments), input=stdin, prog_name="trainlint")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    with installed():
        yield run


@pytest.fixture
def command() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs `python -m trainlint ARGUMENTS` as a process of its own, with nothing replaced."""

    def run(
        *arguments: str, cwd: Path, stdin: str | None = None, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        own: dict[str, Any] = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8", **environment}
        return subprocess.run(
            [sys.executable, "-m", "trainlint", *arguments],
            cwd=cwd,
            env=own,
            input=stdin,
            capture_output=True,
            encoding=own["PYTHONIOENCODING"],
            check=False,
        )

    return run

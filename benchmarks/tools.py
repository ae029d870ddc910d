"""The linters that are timed: which version, how they are called, and where they are."""

from __future__ import annotations

import os
import shutil
import subprocess
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]


class Tool(NamedTuple):
    """One linter. `arguments` come between the command and the path: one process, nothing kept from run to run."""

    name: str
    package: str
    version: str
    command: str
    arguments: tuple[str, ...]
    accepted: tuple[int, ...] = (0, 1)  # exit codes of a run that did its work
    without: str = ""  # a command that must not be installed beside it, since it plugs itself in


TOOLS = (
    Tool("torch-preflight", "torch-preflight", "0.5.0", "torch-preflight", ("check", "--jobs", "1")),
    Tool("hotpath-ai", "hotpath-ai", "0.1.0", "hotpath", ("analyze",)),
    Tool("TorchFix", "torchfix", "0.7.0", "torchfix", ("--select=ALL", "--jobs", "1")),
    Tool("flake8", "flake8", "7.5.0", "flake8", ("--isolated", "--jobs", "1"), without="torchfix"),
    Tool(
        "pylint -E",
        "pylint",
        "4.1.4",
        "pylint",
        ("--errors-only", "--jobs=1", "--recursive=y"),
        accepted=tuple(code for code in range(32) if not code & 1),  # 1: it broke down
    ),
    Tool(
        "Ruff F",
        "ruff",
        "0.17.6",
        "ruff",
        ("check", "--isolated", "--select=F", "--no-cache", "--output-format=concise"),
    ),
    Tool(
        "Ruff ALL",
        "ruff",
        "0.17.6",
        "ruff",
        ("check", "--isolated", "--select=ALL", "--no-cache", "--output-format=concise"),
    ),
)

# trainlint itself is installed from this checkout. Exit code 2 would be a fault.
TRAINLINT = Tool("trainlint", "trainlint", "", "trainlint", ("check", "--isolated", "--no-cache"))


class Installed(NamedTuple):
    """A linter that is here."""

    tool: Tool
    executable: Path
    version: str

    @property
    def python(self) -> Path:
        """The interpreter that the linter runs on."""
        return self.executable.parent / "python"

    def command(self, *paths: str, arguments: Sequence[str] | None = None) -> list[str]:
        given = self.tool.arguments if arguments is None else arguments
        return [str(self.executable), *given, *paths]


def find(tool: Tool, folders: Sequence[Path]) -> Installed | None:
    """The linter in one of these folders of executables, None where it is not."""
    fitting = [folder.absolute() for folder in folders if not tool.without or not (folder / tool.without).exists()]
    found = shutil.which(tool.command, path=os.pathsep.join(map(str, fitting))) if fitting else None
    if found is None:
        return None
    executable = Path(found)
    ask = f"from importlib.metadata import version; print(version({tool.package!r}))"
    done = subprocess.run(
        [str(executable.parent / "python"), "-c", ask],
        capture_output=True,
        text=True,
        check=False,
        cwd=executable.parent,
    )
    return Installed(tool, executable, done.stdout.strip() or "unknown")


def install(tool: Tool, cache: Path) -> Installed:
    """The linter in an environment of its own, made if it is not there."""
    folder = cache / "tools" / f"{tool.package}-{tool.version}"
    if not (folder / "done").exists():
        _environment(folder, f"{tool.package}=={tool.version}")
        (folder / "done").touch()
    found = find(tool, [folder / "bin"])
    assert found is not None, f"{tool.package} has no command {tool.command}"
    return found


def install_trainlint(cache: Path) -> Installed:
    """trainlint as it is in this checkout, installed anew each time, with what it needs."""
    folder = cache / "tools" / "trainlint"
    if not (folder / "done").exists():
        _environment(folder, str(ROOT))
        (folder / "done").touch()
    else:
        _pip(folder, "--force-reinstall", "--no-deps", str(ROOT))
    found = find(TRAINLINT, [folder / "bin"])
    assert found is not None
    return found


def _environment(folder: Path, requirement: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True, symlinks=True)
    _pip(folder, requirement)


def _pip(folder: Path, *arguments: str) -> None:
    python = str(folder / "bin" / "python")
    quiet = ("--quiet", "--disable-pip-version-check")
    # Without bytecode a linter would pay at each start for what others paid at their installation.
    subprocess.run([python, "-m", "pip", "install", *quiet, "--compile", *arguments], check=True)

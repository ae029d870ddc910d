"""`trainlint verify`: hands its arguments to `runtime_check`, and finds the findings that it answers."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import click

from trainlint.cli.imported import with_imports


class _Asked(Protocol):
    """What of `runtime_check`'s options the static check needs."""

    @property
    def cwd(self) -> Path: ...

    def script_path(self) -> Path | None: ...

    def project_roots(self) -> tuple[str, ...]: ...


class _AsGiven(click.Command):
    """Takes all arguments as they are: those after `--` are the script's, and none of them may be lost."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.args = list(args)
        return []


@click.command("verify", cls=_AsGiven)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Execute a training script for a few steps and say which findings hold, and what holds it back."""
    # By name: no module of the linter may depend on the measuring half, and `check` must not pay for it.
    commandline: Any = import_module("runtime_check.commandline")
    ctx.exit(commandline.main(ctx.args, "trainlint verify", check))


def check(options: _Asked) -> str:
    """The JSON of `trainlint check` on the script and what it imports of its project, all levels."""
    path = options.script_path()
    if path is None:
        return "[]"
    paths = [str(file) for file in with_imports(path, Path(options.project_roots()[0]))]
    # Without a cache: whoever asked for a run has not asked for a folder in the project.
    asked = ("--output-format", "json", "--pedantic", "--no-cache")
    arguments = [sys.executable, "-m", "trainlint", "check", *asked, *paths]
    done = subprocess.run(arguments, cwd=options.cwd, capture_output=True, text=True, check=False)
    if not done.stdout.strip():
        raise ValueError(f"the static check of {path.name} failed:\n{done.stderr.strip()}")
    return done.stdout

"""What a command says on stderr."""

from __future__ import annotations

import sys
from typing import IO, Any

import click

from trainlint.findings import Level
from trainlint.report.style import Style, printable, wants_color


class Failure(click.ClickException):
    """A usage error or a setting that cannot be used: one message, exit code 2."""

    exit_code = 2

    def show(self, file: IO[Any] | None = None) -> None:
        _say(Level.ERROR, "error:", self.message, file)


def fault(message: str) -> None:
    """An internal fault; the command goes on and ends with exit code 2."""
    _say(Level.ERROR, "internal fault:", message)


def problem(message: str) -> None:
    """Something could not be done as asked; the command goes on and ends with exit code 2."""
    _say(Level.ERROR, "error:", message)


def warn(message: str) -> None:
    _say(Level.WARNING, "warning:", message)


def note(message: str) -> None:
    """No complaint: what `--verbose` tells."""
    click.echo(printable(message, sys.stderr), err=True)


def _say(level: Level, label: str, message: str, file: IO[Any] | None = None) -> None:
    stream = file or sys.stderr
    style = Style(wants_color(stream))
    click.echo(printable(f"{style.level(level, label)} {message}", stream), file=stream, color=style.colored)

"""What a command says on stderr."""

from __future__ import annotations

import sys

from trainlint.cli.output import write
from trainlint.findings import Level
from trainlint.report.style import Style, printable, wants_color


class Failure(Exception):
    """A usage error or a setting that cannot be used: one message, exit code 2."""


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
    write(printable(message, sys.stderr), sys.stderr, False)


def _say(level: Level, label: str, message: str) -> None:
    stream = sys.stderr
    style = Style(wants_color(stream))
    write(printable(f"{style.level(level, label)} {message}", stream), stream, style.colored)

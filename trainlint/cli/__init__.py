"""The command line: the console script, and the short way for `trainlint check FILE ...`, which is what hooks call."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

# The options that the short way knows, and what they set.
_FLAGS = {
    "--pedantic": "pedantic",
    "--preview": "preview",
    "--exit-zero": "exit_zero",
    "--isolated": "isolated",
    "--force-exclude": "force_exclude",
    "--no-cache": "no_cache",
    "-q": "quiet",
    "--quiet": "quiet",
}


def main() -> None:
    """The console script."""
    import gc

    if sys.argv[1:2] == ["check"]:
        gc.disable()  # facts are made by the hundred thousand and live long; `analysis` collects when it lets go of them
    try:
        run()
    except SystemExit as end:
        if sys.argv[1:2] == ["check"]:
            _leave(end)
        raise


def run() -> None:
    """As `main`, in a process that has more to do afterwards. Raises SystemExit."""
    plain = plain_check(sys.argv[1:])
    if plain is None:
        from trainlint.cli.group import cli

        cli(prog_name="trainlint")
    else:
        _check(*plain)


def _check(paths: tuple[str, ...], flags: dict[str, bool]) -> None:
    from trainlint.cli.check import DEFAULTS, check
    from trainlint.cli.failure import Failure, problem

    try:
        code = check(paths, {**DEFAULTS, **flags})
    except Failure as failure:
        problem(str(failure))
        code = 2
    except (OSError, KeyboardInterrupt, EOFError) as error:
        _as_click_does(error)
    sys.exit(code)


def plain_check(arguments: Sequence[str]) -> tuple[tuple[str, ...], dict[str, bool]] | None:
    """(paths, flags) of a `check` with nothing but paths and well-known flags; None for all else: click reads that.

    To import click and to build the commands takes as long as a check of a small file.
    """
    if arguments[:1] != ["check"] or "_TRAINLINT_COMPLETE" in os.environ:
        return None
    paths: list[str] = []
    flags: dict[str, bool] = {}
    for argument in arguments[1:]:
        if argument in _FLAGS:
            flags[_FLAGS[argument]] = True
        elif argument.startswith("-") or (os.name == "nt" and any(sign in argument for sign in "*?[~$%")):
            return None  # on Windows click expands patterns
        else:
            paths.append(argument)
    return tuple(paths), flags


def _as_click_does(error: BaseException) -> NoReturn:
    """A closed pipe, Ctrl+C: what click makes of them."""
    import click

    def again() -> None:
        raise error

    click.Command("trainlint", callback=again).main([], prog_name="trainlint")


def _leave(end: SystemExit) -> None:
    """Ends the process without taking everything apart first, which would be a fifth of the time of a short run."""
    if end.code is None or isinstance(end.code, int):
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except (OSError, ValueError):  # closed; Python says what is to be said
            return
        os._exit((end.code or 0) & 0xFF)

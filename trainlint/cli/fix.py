"""`trainlint check --fix`, `--fix-only` and `--diff`"""

from __future__ import annotations

import sys
from typing import Any

import click

from trainlint.cli.check import checked, exit_code, report, say_fault
from trainlint.cli.failure import fault, note, problem, warn
from trainlint.cli.progress import with_progress
from trainlint.discovery import Target
from trainlint.fixing import Fixed, fix
from trainlint.report.diff import diff
from trainlint.report.paths import shown_path
from trainlint.report.style import Style, printable, wants_color
from trainlint.report.summary import count_of


def fix_and_report(targets: list[Target], options: dict[str, Any]) -> int:
    """The exit code."""
    fixed = fix(
        targets,
        unsafe=options["unsafe_fixes"],
        write=not options["diff"],
        progress=lambda r, n: with_progress(r, n),
        check=lambda current: checked(current, options),
    )
    for result in fixed.results:
        say_fault(result)
    _complain(fixed)
    if options["verbose"]:
        from trainlint.cli.show import run_as_text

        note(run_as_text(fixed.results))
    count = sum(len(change.patches) for change in fixed.changes)
    from_stdin = len(targets) == 1 and targets[0].data is not None
    if options["diff"]:
        _diffs(fixed)
        if not options["quiet"]:
            note(_would(count, len(fixed.changes)))
    elif from_stdin:
        _hand_back(fixed, targets[0])
        if not options["fix_only"]:
            report(fixed.results, options, fixed=count, err=True)
    elif not options["fix_only"]:
        report(fixed.results, options, fixed=count)
    elif count and not options["quiet"]:
        note(f"Fixed {count_of(count, 'finding')} in {count_of(len(fixed.changes), 'file')}.")
    return _exit_code(fixed, options)


def _exit_code(fixed: Fixed, options: dict[str, Any]) -> int:
    code = exit_code(fixed.results, options)
    if code == 2 or fixed.dropped or fixed.problems:
        return 2
    if options["fix_only"]:
        return 0
    if options["diff"] and fixed.changes and not options["exit_zero"]:
        return 1
    return code


def _complain(fixed: Fixed) -> None:
    for path, patch in fixed.dropped:
        fault(
            f"the fix of {patch.code} at {shown_path(path)}:{patch.row} would have changed more than it may, and was "
            "dropped. This is a mistake in trainlint: please report it, if you can with the file."
        )
    for path, why in fixed.problems:
        problem(f"{shown_path(path)} was not fixed: {why}")
    for path in fixed.unsettled:
        warn(f"{shown_path(path)} still has fixes after many rounds; run again, and please report it")


def _diffs(fixed: Fixed) -> None:
    style = Style(wants_color(sys.stdout))
    for change in fixed.changes:
        click.echo(printable(diff(*change.sources(), style), sys.stdout), color=style.colored)


def _would(findings: int, files: int) -> str:
    if not files:
        return "Nothing to fix."
    return f"Would fix {count_of(findings, 'finding')} in {count_of(files, 'file')}."


def _hand_back(fixed: Fixed, target: Target) -> None:
    """What came from standard input goes to standard output, fixed or not."""
    data = fixed.changes[0].after if fixed.changes else target.data or b""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.flush()

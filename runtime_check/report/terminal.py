"""The report for a person at a terminal, with rich where it is installed and as plain text where not."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from runtime_check.evidence import Verdict
from runtime_check.measures import bytes_text
from runtime_check.report import content
from runtime_check.verify import Report

_STYLE = {
    Verdict.CONFIRMED: "bold red",
    Verdict.REFUTED: "green",
    Verdict.INCONCLUSIVE: "yellow",
    Verdict.NOT_RUN: "dim",
}
_BAR = 30  # characters for a whole step


def print_report(report: Report, file: TextIO | None = None) -> None:
    write = _writer(file or sys.stdout)
    for line, style in lines(report):
        write(line, style)


def lines(report: Report) -> Iterator[tuple[str, str]]:
    """Text and rich style, line by line."""
    for line in content.head(report):
        yield line, "dim"
    if report.failure is not None and not report.out_of_memory:
        yield "", ""
        yield report.failure, "bold"
    if report.out_of_memory:
        yield "", ""
        for number, line in enumerate(report.out_of_memory):
            yield line, "bold red" if number == 0 else ""
    diagnosis = report.diagnosis
    if diagnosis is not None:
        yield "", ""
        yield f"{diagnosis.bound}: {diagnosis.because}", "bold"
        yield f"next: {content.shorten(diagnosis.next_step, report)}", ""
        yield "", ""
        for line in content.speed(report):
            yield line, ""
        for name, part in content.breakdown(diagnosis):
            yield f"  {name:<18}{part:6.1%}  {'#' * round(part * _BAR)}", ""
        measured = (content.loaders, content.collectives, content.memory, content.utilisation)
        for line in (line for told in measured for line in told(report)):
            yield line, ""
        if diagnosis.memory_lines:
            yield "memory at the peak, by line:", "bold"
            for hot in content.memory_lines(diagnosis):
                yield f"  {bytes_text(hot.amount):>10}  {content.short(hot.file, report)}:{hot.line}  {hot.what}", ""
        if diagnosis.sync_lines:
            yield _sync_title(report), "bold"
            for hot in diagnosis.sync_lines:
                yield f"  {hot.amount:>10.2f}  {content.short(hot.file, report)}:{hot.line}  {hot.what}", ""
        for note in diagnosis.notes:
            yield f"note: {note}", "yellow"
    if report.answers:
        rows = content.dearest_first(content.rows(report))
        yield "", ""
        yield f"what the static check says of it: {content.verdicts(rows)}", "bold"
        for row in rows:
            verdict = row.verdict.value.replace("_", " ").upper()
            yield f"{row.code}  {row.place}  {verdict}  {row.why}", _STYLE[row.verdict]
    for number, (tried, text, edits) in enumerate(content.what_if(report)):
        if number == 0:
            yield "", ""
            yield "what if, most gain first:", "bold"
        yield f"  {text}", "" if tried.measured else "dim"
        for edit in edits:
            yield f"      {edit}", "dim"
    for number, line in enumerate(content.searched(report)):
        if number == 0:
            yield "", ""
        yield line, "bold" if number == 0 else ""
    for line in content.comparisons(report):
        yield line, "dim"
    earlier = content.against(report)
    if earlier:
        yield "", ""
        yield earlier[0], "bold"
        for line in earlier[1:]:
            yield f"  {line}", "bold red" if "regression: " in line and "no regression" not in line else ""
    if report.warnings or content.side_effects(report):
        yield "", ""
    for warning in report.warnings:
        yield f"warning: {warning}", "yellow"
    for line in content.side_effects(report):
        yield line, "dim"


def _sync_title(report: Report) -> str:
    return (
        "synchronisations per step, by line:" if report.evidence.cuda else "would synchronise a GPU, per step, by line:"
    )


def _writer(file: TextIO) -> Any:
    try:
        from rich.console import Console
        from rich.text import Text
    except ImportError:
        return lambda line, style: file.write(line + "\n")
    console = Console(file=file, highlight=False, soft_wrap=True)
    width = console.width if console.is_terminal else None

    def write(line: str, style: str) -> None:
        for part in folded(line, width):
            console.print(Text(part, style=style))

    return write


def folded(line: str, width: int | None) -> list[str]:
    """A long line in several, indented from the second on. `None`: whole, as who filters the output wants it."""
    parts: list[str] = []
    for whole in line.split("\n"):
        if width is None or len(whole) <= width:
            parts.append(whole)
            continue
        indent = " " * (len(whole) - len(whole.lstrip()) + 4)
        parts += textwrap.wrap(whole, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return parts


@contextmanager
def progress(file: TextIO | None = None) -> Iterator[Any]:
    """What is being done, on standard error while it runs. Gives `show(what, passes, number, done, asked)`.

    Steps are counted in a pass; what comes after the passes has the number 0, and its launches or pairs are counted.
    """
    stream = file or sys.stderr
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    except ImportError:
        yield _plain_progress(stream)
        return
    console = Console(file=stream)
    if not console.is_terminal:
        yield _plain_progress(stream)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total} {task.fields[unit]}"),
        TimeElapsedColumn(),
    )
    # Few redraws: the script is being timed on the same machine.
    with Progress(*columns, console=console, transient=True, refresh_per_second=2) as bar:
        tasks: dict[str, Any] = {}

        def show(what: str, passes: int, number: int, done: int, asked: int) -> None:
            said, unit = (f"pass {number}/{passes}: {what}", "steps") if number else (what, "times")
            if said not in tasks:
                for earlier in tasks.values():
                    bar.remove_task(earlier)
                tasks.clear()
                tasks[said] = bar.add_task(said, total=asked, unit=unit)
            bar.update(tasks[said], completed=min(done, asked))

        yield show


def _plain_progress(stream: TextIO) -> Any:
    told: set[tuple[str, int]] = set()

    def show(what: str, passes: int, number: int, done: int, asked: int) -> None:
        said = (
            f"pass {number} of {passes} ({what}), {asked} steps"
            if number
            else f"{what} ({done + 1} of {asked} at most)"
        )
        if (what, number) not in told:
            told.add((what, number))
            stream.write(f"verify: {said}\n")
            stream.flush()

    return show

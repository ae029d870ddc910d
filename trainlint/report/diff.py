"""Unified diffs of what fixes change; of a notebook, cell by cell."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator

from trainlint.report.paths import shown_path
from trainlint.report.style import Style
from trainlint.source import Source


def diff(before: Source, after: Source, style: Style) -> str:
    path = shown_path(before.path)
    if not before.is_notebook:
        return "\n".join(_unified(path, before.text, after.text, style))
    parts: list[str] = []
    for number, (old, new) in enumerate(zip(_cells(before), _cells(after), strict=True), 1):
        parts += _unified(f"{path}:cell {number}", old, new, style)
    return "\n".join(parts)


def _cells(source: Source) -> list[str]:
    starts = [cell.row for cell in source.cells]
    ends = [*starts[1:], len(source.row_starts)]
    return ["".join(f"{source.line(row)}\n" for row in range(a, b)) for a, b in zip(starts, ends, strict=True)]


def _unified(path: str, old: str, new: str, style: Style) -> Iterator[str]:
    for line in difflib.unified_diff(_lines(old), _lines(new), path, path):
        head, row = line[:1], line.rstrip("\r\n")
        if line.startswith(("---", "+++")):
            yield style.bold(row)
        elif head == "@":
            yield style.code(row)
        elif head == "-":
            yield style.removed(row)
        elif head == "+":
            yield style.added(row)
        else:
            yield row
        if not line.endswith(("\n", "\r")):
            yield "\\ No newline at end of file"


def _lines(text: str) -> list[str]:
    return re.findall("[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", text)

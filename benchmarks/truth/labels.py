"""Hand-made labels: which lines of public files a rule must find, and which it must not."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

Line = tuple[int, int]  # cell of a notebook (0 in a script), line


class Label(NamedTuple):
    """`verdict` is `yes` (must be found), `no` (must not be found) or `soft` (counts for neither)."""

    repo: str
    path: str
    code: str
    verdict: str
    lines: tuple[Line, ...]  # the first is the labelled one, the others may fairly be pointed at instead


def read_labels(file: Path) -> list[Label]:
    """Tab-separated, with the columns repo, path, line, code, verdict, note; `alt: 12, 13` in a note gives more lines."""
    return [
        Label(row["repo"], row["path"], row["code"], row["verdict"], tuple(_lines(row["line"], row["note"] or "")))
        for row in _rows(file)
    ]


def read_commits(file: Path) -> dict[str, str]:
    """Tab-separated, with the columns repo and commit."""
    return {row["repo"]: row["commit"] for row in _rows(file)}


def line_key(text: str) -> Line:
    """`12` is a line of a script, `3:12` one of a notebook's third cell."""
    cell, _, line = text.rpartition(":")
    return int(cell or 0), int(line)


def _lines(line: str, note: str) -> Iterable[Line]:
    yield line_key(line)
    for more in re.findall(r"alt:\s*([\d:, ]+)", note):
        yield from (line_key(part.strip()) for part in more.split(",") if part.strip())


def _rows(file: Path) -> list[dict[str, str]]:
    with open(file, newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))

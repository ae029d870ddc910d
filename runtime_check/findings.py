"""Findings as `trainlint check --output-format json` writes them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


class FindingsError(ValueError):
    """The findings could not be read; the message says which and why."""


@dataclass(frozen=True)
class Finding:
    """One finding of the static check: what it says, and of which lines. `path` is absolute."""

    code: str
    message: str
    path: str
    shown_path: str
    row: int
    end_row: int
    claim: str
    name: str = ""
    level: str = ""
    fingerprint: str = ""
    fix: dict[str, Any] | None = field(default=None, compare=False)  # applicability, message, edits

    @property
    def place(self) -> str:
        return f"{self.shown_path}:{self.row}"

    def covers(self, path: str, line: int) -> bool:
        return path == self.path and self.row <= line <= self.end_row


def read_findings(text: str, folder: Path) -> list[Finding]:
    """`text`: the JSON of a check (a list, or an object with `findings`). Relative paths are taken from `folder`."""
    try:
        content = json.loads(text)
    except ValueError as error:
        raise FindingsError(f"the findings are no JSON: {error}") from error
    if isinstance(content, dict):
        content = content.get("findings", content.get("diagnostics"))
    if not isinstance(content, list):
        raise FindingsError("the findings are not a list, as `trainlint check --output-format json` writes it")
    return [_finding(entry, number, folder) for number, entry in enumerate(content, 1)]


def _finding(entry: Any, number: int, folder: Path) -> Finding:
    try:
        filename, row = entry["filename"], int(entry["location"]["row"])
        end_row = int((entry.get("end_location") or entry["location"])["row"])
        code = entry["code"]
    except (KeyError, TypeError, ValueError) as error:
        raise FindingsError(f"finding {number} has no code, filename or location.row ({error!r})") from error
    path = (folder / filename).resolve()
    return Finding(
        code=code,
        message=entry.get("message", ""),
        path=str(path),
        shown_path=filename,
        row=row,
        end_row=max(row, end_row),
        claim=entry.get("claim") or "-",
        name=entry.get("name", ""),
        level=entry.get("level", ""),
        fingerprint=entry.get("fingerprint", ""),
        fix=entry.get("fix") or None,
    )


def selected(findings: list[Finding], only: tuple[str, ...]) -> list[Finding]:
    """`only`: codes ("TL101"), places ("train.py:48") or fingerprints; empty: all."""
    if not only:
        return findings
    return [finding for finding in findings if any(_matches(finding, word) for word in only)]


def _matches(finding: Finding, word: str) -> bool:
    if word in (finding.code, finding.fingerprint):
        return True
    path, _, row = word.rpartition(":")
    return bool(path) and row.isdigit() and finding.row == int(row) and finding.path.endswith(path.lstrip("./"))

"""The result of a file as plain data for JSON, and back."""

from __future__ import annotations

import os
from typing import Any

from trainlint.discovery import Target
from trainlint.findings import Claim, Edit, Finding, Fix, Level, Place, Related
from trainlint.result import FileResult
from trainlint.source import decode, read_bytes

_NOT_CHECKED = "TL000"


def stored(result: FileResult, root: str) -> Any | None:
    """None where the file must be looked at again: it could not be read, or trainlint failed."""
    if result.fault is not None or any(finding.code == _NOT_CHECKED for finding in result.findings):
        return None
    groups = (result.findings, result.hidden, result.suppressed)
    if not any(groups):
        return 0
    if result.source is None:
        return None
    return [[_finding(finding, root) for finding in group] for group in groups]


def restored(target: Target, root: str, entry: Any) -> FileResult:
    """Raises OSError, ValueError, TypeError, KeyError or IndexError for what `stored` did not make, or a file that has gone."""
    if entry == 0:
        return FileResult(target.path, target.settings)
    findings, hidden, suppressed = (
        tuple(_restored_finding(one, target.path, root) for one in group) for group in entry
    )
    source = decode(target.path, read_bytes(target.path))
    return FileResult(target.path, target.settings, findings, source, hidden, suppressed)


def _finding(finding: Finding, root: str) -> list[Any]:
    related = [[_short(one.path, root), one.place, one.message] for one in finding.related]
    values = finding._asdict()
    values.update(level=int(finding.level), claim=finding.claim.value, path="", related=related, fix=_fix(finding.fix))
    return list(values.values())


def _restored_finding(values: list[Any], path: str, root: str) -> Finding:
    plain = Finding(*values)
    related = tuple(Related(_long(where, root), Place(*place), said) for where, place, said in plain.related)
    return plain._replace(
        level=Level(plain.level),
        claim=Claim(plain.claim),
        path=path,
        place=Place(*plain.place),
        related=related,
        fix=_restored_fix(plain.fix),
        anchor_rows=tuple(plain.anchor_rows),
    )


def _fix(fix: Fix | None) -> list[Any] | None:
    return None if fix is None else [fix.safe, fix.message, fix.edits, _fix(fix.instead)]


def _restored_fix(values: Any) -> Fix | None:
    if values is None:
        return None
    safe, message, edits, instead = values
    return Fix(safe, message, tuple(Edit(Place(*place), text) for place, text in edits), _restored_fix(instead))


def _short(path: str, root: str) -> str:
    return os.path.relpath(path, root) if path.startswith(root + os.sep) else path


def _long(path: str, root: str) -> str:
    return path if os.path.isabs(path) else os.path.join(root, path)

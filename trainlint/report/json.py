"""Ruff's JSON, with what a training script needs besides: name, level, claim, why, related places, fingerprint."""

from __future__ import annotations

import json as codec
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from trainlint.findings import Edit, Finding, Fix, Place, Related
from trainlint.report.order import in_order
from trainlint.result import FileResult
from trainlint.source import NotChecked, Source, read_source

if TYPE_CHECKING:
    from trainlint.verified import Verified


def json(results: Sequence[FileResult], verified: Verified | None = None) -> str:
    """A list of objects, in the order of the findings. ASCII only, so that no console can spoil it."""
    return codec.dumps(
        [_with_verified(as_object(f, source), f, verified) for f, source in in_order(results, verified)], indent=2
    )


def _with_verified(entry: dict[str, Any], finding: Finding, verified: Verified | None) -> dict[str, Any]:
    if verified is not None:
        measured = verified.of(finding)
        entry["verified"] = measured.as_object() if measured is not None else None
    return entry


def as_object(finding: Finding, source: Source | None) -> dict[str, Any]:
    """In a notebook, `cell` is the 1-based number of the code cell and rows are counted in it, also in edits."""
    cell, _ = _cell_place(source, finding.place.row)
    last_row = finding.anchor_rows[-1] or finding.place.row
    return {
        "cell": cell,
        "code": finding.code,
        "name": finding.name,
        "message": finding.message,
        "level": finding.level.label,
        "severity": {"error": "error", "warning": "warning"}.get(finding.level.label, "info"),
        "claim": finding.claim.value,
        "why": finding.why,
        "help": finding.help,
        "filename": finding.path,
        **_range(finding.place, source),
        "related": [_related(related, finding.path, source) for related in finding.related],
        "fix": _fix(finding.fix, source) if finding.fix is not None else None,
        "fingerprint": finding.fingerprint,
        "noqa_row": _cell_place(source, last_row)[1],
        "url": None,
    }


def _cell_place(source: Source | None, row: int) -> tuple[int | None, int]:
    return source.cell_place(row) if source is not None else (None, row)


def _range(place: Place, source: Source | None) -> dict[str, Any]:
    return {
        "location": {"row": _cell_place(source, place.row)[1], "column": place.column},
        "end_location": _end(place, source),
    }


def _end(place: Place, source: Source | None) -> dict[str, int]:
    """Exclusive. Where a cell ends with its last row: the row after it, counted in the same cell, as in Ruff."""
    cell, row = _cell_place(source, place.row)
    end_cell, end_row = _cell_place(source, place.end_row)
    if cell is not None and end_cell != cell:
        end_row = row + place.end_row - place.row
    return {"row": end_row, "column": place.end_column}


def _related(related: Related, path: str, source: Source | None) -> dict[str, Any]:
    if related.path != path:
        source = None
        if related.path.endswith(".ipynb"):
            try:
                source = read_source(related.path)
            except NotChecked:
                pass
    cell, _ = _cell_place(source, related.place.row)
    return {
        "filename": related.path,
        "cell": cell,
        **_range(related.place, source),
        "message": related.message,
    }


def _fix(fix: Fix, source: Source | None) -> dict[str, Any]:
    return {
        "applicability": "safe" if fix.safe else "unsafe",
        "message": fix.message,
        "edits": [_edit(edit, source) for edit in fix.edits],
    }


def _edit(edit: Edit, source: Source | None) -> dict[str, Any]:
    cell, _ = _cell_place(source, edit.place.row)
    result: dict[str, Any] = {"content": edit.content, **_range(edit.place, source)}
    if cell is not None:
        result["cell"] = cell
    return result

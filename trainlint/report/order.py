"""In which order findings are reported: of a file and its rows, or of what they were measured to cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainlint.findings import Finding
from trainlint.result import FileResult
from trainlint.source import Source

if TYPE_CHECKING:
    from trainlint.verified import Verified


def in_order(results: Sequence[FileResult], verified: Verified | None) -> list[tuple[Finding, Source | None]]:
    found = [(finding, result.source) for result in results for finding in result.findings]
    return found if verified is None else sorted(found, key=lambda pair: verified.order(pair[0]))


def with_confirmed(results: Sequence[FileResult], verified: Verified | None) -> Sequence[FileResult]:
    """What a run has confirmed is shown whatever its level: advice that costs half of the step is not to be hidden."""
    if verified is None:
        return results
    shown = []
    for result in results:
        confirmed = [f for f in result.hidden if (measured := verified.of(f)) and measured.verdict == "confirmed"]
        if confirmed:
            findings = tuple(sorted((*result.findings, *confirmed), key=Finding.sort_key))
            hidden = tuple(finding for finding in result.hidden if finding not in confirmed)
            result = result._replace(findings=findings, hidden=hidden)
        shown.append(result)
    return shown


def remarks(results: Sequence[FileResult], verified: Verified | None) -> list[str]:
    """What a reader of the report has to know of the measurement."""
    if verified is None:
        return []
    found = [f for result in results for f in (*result.findings, *result.hidden, *result.suppressed)]
    return verified.remarks(found, [result.path for result in results])

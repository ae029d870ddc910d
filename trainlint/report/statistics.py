"""How often each code was found, the most frequent first."""

from __future__ import annotations

import json
from collections.abc import Sequence

from trainlint.records import NamedTuple
from trainlint.report.style import Style
from trainlint.report.summary import summary
from trainlint.result import FileResult


class Count(NamedTuple):
    code: str
    name: str
    findings: int
    fixable: int  # by safe fixes


def count(results: Sequence[FileResult]) -> list[Count]:
    found: dict[str, Count] = {}
    for result in results:
        for finding in result.findings:
            known = found.get(finding.code, Count(finding.code, finding.name, 0, 0))
            safe = finding.fix is not None and finding.fix.safe
            found[finding.code] = known._replace(findings=known.findings + 1, fixable=known.fixable + safe)
    return sorted(found.values(), key=lambda row: (-row.findings, row.code))


def statistics(results: Sequence[FileResult], style: Style, quiet: bool = False) -> str:
    rows = count(results)
    width = max((len(str(row.findings)) for row in rows), default=0)
    any_fixable = any(row.fixable for row in rows)
    lines = []
    for row in rows:
        mark = ""
        if any_fixable:
            state = "*" if row.fixable == row.findings else "-" if row.fixable else " "
            mark = f"[{state}]\t"
        lines.append(f"{row.findings:>{width}}\t{style.bold(row.code)}\t{mark}{row.name}")
    if not quiet:
        lines.append(summary(results, style))
    return "\n".join(lines)


def statistics_json(results: Sequence[FileResult]) -> str:
    return json.dumps(
        [
            {
                "code": row.code,
                "name": row.name,
                "count": row.findings,
                "fixable": row.fixable == row.findings,
                "fixable_count": row.fixable,
            }
            for row in count(results)
        ],
        indent=2,
    )

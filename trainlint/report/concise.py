"""One line per finding: `train.py:12:5: TL101 message`."""

from __future__ import annotations

from collections.abc import Sequence

from trainlint.report.paths import shown_place
from trainlint.report.style import Style
from trainlint.report.summary import summary
from trainlint.result import FileResult


def concise(results: Sequence[FileResult], style: Style, quiet: bool = False, fixed: int = 0) -> str:
    lines = []
    for result in results:
        for finding in result.findings:
            place = shown_place(finding.path, finding.place.row, finding.place.column, result.source)
            mark = "[*] " if finding.fix is not None and finding.fix.safe else ""
            code = style.level(finding.level, finding.code)
            lines.append(f"{style.bold(place)}: {code} {mark}{finding.message}")
    if not quiet:
        lines.append(summary(results, style, fixed))
    return "\n".join(lines)

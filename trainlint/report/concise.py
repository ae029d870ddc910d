"""One line per finding: `train.py:12:5: TL101 message`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainlint.report.order import in_order, remarks
from trainlint.report.paths import shown_place
from trainlint.report.style import Style
from trainlint.report.summary import summary
from trainlint.result import FileResult

if TYPE_CHECKING:
    from trainlint.verified import Verified


def concise(
    results: Sequence[FileResult],
    style: Style,
    quiet: bool = False,
    fixed: int = 0,
    verified: Verified | None = None,
) -> str:
    lines = []
    for finding, source in in_order(results, verified):
        place = shown_place(finding.path, finding.place.row, finding.place.column, source)
        mark = "[*] " if finding.fix is not None and finding.fix.safe else ""
        code = style.level(finding.level, finding.code)
        measured = verified.of(finding) if verified is not None else None
        cost = f" [{measured.short()}]" if measured is not None else ""
        lines.append(f"{style.bold(place)}: {code} {mark}{finding.message}{cost}")
    if not quiet:
        lines.extend(remarks(results, verified))
        lines.append(summary(results, style, fixed))
    return "\n".join(lines)

"""The report for people: each finding with its code, why it costs, what to write instead, and what makes it hot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainlint.findings import Finding, Place
from trainlint.report.order import in_order, remarks
from trainlint.report.paths import shown_place
from trainlint.report.style import Style
from trainlint.report.summary import summary
from trainlint.result import FileResult
from trainlint.source import NotChecked, Source, read_source

if TYPE_CHECKING:
    from trainlint.verified import Measured, Verified

_CONTEXT = 2  # rows shown above and below
_MOST_ROWS = 12  # of one finding; the middle of a longer one is left out
_TAB = 4
_WIDEST = 160  # columns of a row; longer ones are cut around the finding


def text(
    results: Sequence[FileResult],
    style: Style,
    *,
    quiet: bool = False,
    unfold: bool = False,
    fixed: int = 0,
    verified: Verified | None = None,
) -> str:
    """`unfold`: show each repeat of a finding in one loop by itself. So does `verified`, since each has its own cost."""
    blocks: list[str] = []
    sources: dict[str, Source | None] = {r.path: r.source for r in results if r.source is not None}
    if verified is None:
        groups = [(group, result.source) for result in results for group in _groups(result.findings, unfold)]
    else:
        groups = [([finding], source) for finding, source in in_order(results, verified)]
    for group, source in groups:
        measured = verified.of(group[0]) if verified is not None else None
        blocks.append(_Block(group, source, sources, style).render(measured))
    if not quiet:
        blocks.extend(remarks(results, verified))
        blocks.append(summary(results, style, fixed))
    return "\n\n".join(blocks)


def _groups(findings: Sequence[Finding], unfold: bool) -> list[list[Finding]]:
    """Findings of one code that name the same loop (or caller) make one group, where its first one stands."""
    groups: list[list[Finding]] = []
    by_key: dict[object, list[Finding]] = {}
    for finding in findings:
        key = (finding.code, finding.level, finding.why, finding.related)
        group = by_key.get(key) if finding.related and not unfold else None
        if group is None:
            group = by_key[key] = [finding]
            groups.append(group)
        else:
            group.append(finding)
    return groups


class _Block:
    def __init__(
        self, group: list[Finding], source: Source | None, sources: dict[str, Source | None], style: Style
    ) -> None:
        self.finding = group[0]
        self.repeats = group[1:]
        self.source = source
        self.sources = sources
        self.style = style
        places = [finding.place for finding in group]
        places += [related.place for related in self.finding.related]
        rows = [self._row_label(place, source) for place in places]
        rows += [self._row_label(Place(p.end_row + _CONTEXT, 1, 1, 1), source) for p in places[: len(group)]]
        self.margin = max(len(label) for label in rows)

    def render(self, measured: Measured | None = None) -> str:
        finding, style = self.finding, self.style
        mark = " [*]" if finding.fix is not None and finding.fix.safe else ""
        title = f"{style.level(finding.level, f'{finding.level.label}[{finding.code}]')} {finding.name}{mark}"
        lines = [f"{title}: {style.bold(finding.message)}", self._arrow("-->", finding.path, finding.place)]
        if self.source is not None and self.source.text:
            lines += self._frame(self.source, finding.place, finding, context=_CONTEXT)
        for repeat in self.repeats:
            message = "also here" if repeat.message == finding.message else f"also here: {repeat.message}"
            lines.append(self._arrow(":::", repeat.path, repeat.place, message))
            if self.source is not None:
                lines += self._frame(self.source, repeat.place, repeat, context=0)
        for related in finding.related:
            lines.append(self._arrow(":::", related.path, related.place, related.message))
            source = self._source_of(related.path)
            if source is not None:
                lines += self._frame(source, related.place, None, context=0)
        if measured is not None:
            lines.append(self._note("measured", measured.long()))
        if finding.why:
            lines.append(self._note("why", finding.why))
        if finding.help:
            lines.append(self._note("help", finding.help))
        if finding.fix is not None:
            kind = "fix" if finding.fix.safe else "unsafe fix"
            lines.append(self._note(kind, finding.fix.message))
        return "\n".join(lines)

    def _source_of(self, path: str) -> Source | None:
        if path not in self.sources:
            try:
                self.sources[path] = read_source(path)
            except NotChecked:
                self.sources[path] = None
        return self.sources[path]

    def _arrow(self, arrow: str, path: str, place: Place, message: str = "") -> str:
        shown = shown_place(path, place.row, place.column, self._source_of(path) if path != "-" else self.source)
        tail = f": {message}" if message else ""
        return f"{' ' * self.margin}{self.style.frame(arrow)} {shown}{tail}"

    def _note(self, word: str, message: str) -> str:
        return f"{' ' * self.margin} {self.style.frame('=')} {self.style.help(word)}: {message}"

    def _frame(self, source: Source, place: Place, finding: Finding | None, context: int) -> list[str]:
        first, last = place.row, max(place.row, place.end_row)
        if place.end_column <= 1 and last > first:
            last -= 1
        cell = source.cell_place(first)[0]
        rows = [
            row
            for row in range(max(1, first - context), last + context + 1)
            if row <= len(source.row_starts) and source.cell_place(row)[0] == cell
        ]
        while rows and rows[-1] > last and not source.line(rows[-1]).strip():
            rows.pop()
        while rows and rows[0] < first and not source.line(rows[0]).strip():
            rows.pop(0)
        bar = f"{' ' * self.margin} {self.style.frame('|')}"
        lines = [bar]
        for row in self._most(rows, first, last):
            if row is None:
                lines.append(self.style.frame("..."))
                continue
            line, start, end = _window(source.line(row), place, row)
            label = self.style.frame(f"{self._row_label(Place(row, 1, 1, 1), source):>{self.margin}} |")
            lines.append(f"{label} {line}".rstrip())
            if first <= row <= last and end > start:
                sign = "^" if finding is not None else "-"
                paint = (lambda t: self.style.level(finding.level, t)) if finding is not None else self.style.frame
                lines.append(f"{bar} {' ' * start}{paint(sign * (end - start))}")
        if context:
            lines.append(bar)
        return lines

    def _most(self, rows: list[int], first: int, last: int) -> list[int | None]:
        if last - first < _MOST_ROWS:
            return list(rows)
        half = _MOST_ROWS // 2
        head = [row for row in rows if row < first + half]
        return [*head, None, *(row for row in rows if row > last - half)]

    def _row_label(self, place: Place, source: Source | None) -> str:
        return str(source.cell_place(place.row)[1] if source is not None else place.row)


def _window(line: str, place: Place, row: int) -> tuple[str, int, int]:
    """(the row as shown, where its underline starts and ends): tabs spread out, long rows cut, wide letters counted."""
    indent = len(line) - len(line.lstrip())
    start = place.column - 1 if row == place.row else indent
    end = place.end_column - 1 if row == place.end_row else len(line.rstrip())
    start, end = min(start, len(line)), min(end, len(line))
    if row == place.row and end <= start:
        end = start + 1
    before, within, after = line[:start], line[start:end], line[end:]
    before = before.expandtabs(_TAB)
    within = within.expandtabs(_TAB) or " "
    after = after.expandtabs(_TAB)
    if len(before) + len(within) + len(after) > _WIDEST:
        if len(before) > _WIDEST // 2:
            before = "..." + before[-_WIDEST // 4 :]
        if len(within) > _WIDEST:
            within = within[:_WIDEST] + "..."
            after = ""
        room = max(_WIDEST - len(before) - len(within), 0)
        if len(after) > room:
            after = after[:room] + "..."
    shown = _visible(before) + _visible(within) + _visible(after)
    left = _width(before)
    return shown, left, left + max(_width(within), 1)


def _visible(text: str) -> str:
    """Control characters could do anything to a terminal."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    import unicodedata

    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )

"""Statements that a fix puts into a block of their own: their rows are indented, the text of their strings is not."""

from __future__ import annotations

import io
import re
import tokenize
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence

import libcst as cst

from trainlint.records import NamedTuple
from trainlint.rewriting import Change, NoFix, Site
from trainlint.semantic.facts import Evaluate, Statement
from trainlint.semantic.libcst_spans import node_spans
from trainlint.source import Source

_CELL_MARK = re.compile(r"#\s*(?:%%|In\[)")  # editors that run parts of a script know them at the start of a row only
_OPENS = ("FSTRING_START", "TSTRING_START")
_CLOSES = ("FSTRING_END", "TSTRING_END")


def put_under_with(site: Site, meant: Sequence[Statement]) -> list[Change]:
    """`f()` and the statements below it -> `with f():` and those statements, indented. In a notebook not those of other
    cells."""
    line = site.around(cst.SimpleStatementLine)
    if line is None or len(line.body) > 1:
        raise NoFix
    start, end = site.span(line.body[0])
    row = _row(site.source, start)
    if site.source.is_notebook:
        cell = site.source.cell_place(row)[0]
        meant = [s for s in meant if site.source.cell_place(rows_of(site, s)[1])[0] == cell]
        if meant and isinstance(meant[-1], Evaluate) and getattr(meant[-1].value, "attr", "") != "print":
            meant = meant[:-1]  # the notebook shows what the last row of a cell gives, unless it stands in a block
    spans = [rows_of(site, statement) for statement in meant]
    rest = site.source.line(row)[end - site.source.row_starts[row - 1] :].strip()
    if not spans or spans[0][0] <= row or (rest and not rest.startswith("#")):
        raise NoFix
    block = site.around(cst.IndentedBlock)
    unit = (block.indent or site.tree.default_indent) if block is not None else None
    base = site.indent_at(start)
    indented = _indented(site.source, row + 1, spans[-1][1], base, unit)
    return [site.insert(start, "with "), site.insert(end, ":"), *indented]


def put_under_guard(site: Site, statements: Sequence[Statement]) -> list[Change]:
    """Statements of a module, and the comment just above them, go under `if __name__ == "__main__":`."""
    source = site.source
    first, last = rows_of(site, statements[0])[0], rows_of(site, statements[-1])[1]
    start = source.row_starts[first - 1]
    if source.line(first)[:1].isspace() or source.is_notebook:
        raise NoFix
    above = statements[0].block[statements[0].index - 1] if statements[0].index else None
    limit = rows_of(site, above)[1] if above is not None else 0
    if limit >= first:
        raise NoFix  # on one row with the statement before
    while first - 1 > limit and source.line(first - 1).startswith("#"):
        first -= 1
    start = source.row_starts[first - 1]
    changes = _indented(source, first, last, "")
    if any(_CELL_MARK.match(source.line(row)) for row in range(first, last + 1)):
        raise NoFix
    head, *others = changes
    if head.start != start:
        raise NoFix
    gap = source.newline if first - 1 == limit else ""
    return [head._replace(content=f'{gap}if __name__ == "__main__":{source.newline}{head.content}'), *others]


def rows_of(site: Site, statement: Statement) -> tuple[int, int]:
    """The first and the last row of a statement, decorators included."""
    node = statement.node
    if hasattr(node, "lineno"):
        decorators = [d.lineno for d in getattr(node, "decorator_list", ())]
        return min([node.lineno, *decorators]), node.end_lineno
    if not isinstance(node, cst.CSTNode) or site.around_all[0] is not site.tree:
        raise NoFix
    found = node_spans(site.tree, site.source.text, [node]).get(id(node))
    if found is None:
        raise NoFix
    return _row(site.source, found[0]), _row(site.source, max(found[0], found[1] - 1))


def _row(source: Source, offset: int) -> int:
    return bisect_right(source.row_starts, offset)


def _indented(source: Source, first: int, last: int, base: str, unit: str | None = None) -> list[Change]:
    """One step more, behind the white space that all of them start with, for rows that have code or a comment and do not
    begin within a string."""
    layout = _layout(source)
    unit = unit or next((step for row, step in layout.steps if first <= row <= last), layout.unit)
    changes: list[Change] = []
    for row in range(first, last + 1):
        line = source.line(row)
        code = line.lstrip()
        blank = line[: len(line) - len(code)]
        if not code or row in layout.kept:
            continue
        within = blank.startswith(base)
        if not within and row in layout.statements:
            raise NoFix  # the same depth written in another way: what a step more is cannot be said for both
        # not behind the rest: a tab behind spaces counts for less, and a row that goes on keeps its alignment
        at = len(base) if within else 0
        end = len(blank) if row in layout.statements else at
        start = source.row_starts[row - 1]
        changes.append(Change(start + at, start + end, unit + blank[at:end]))
    return changes


class _Layout(NamedTuple):
    unit: str  # one step of indentation, as most of the blocks have it
    steps: list[tuple[int, str]]  # the row that a block begins in, and its step
    kept: set[int]  # rows that begin within a string
    statements: set[int]  # rows that begin with a statement


_BETWEEN = ("NL", "COMMENT", "INDENT", "DEDENT", "ENCODING")


def _layout(source: Source) -> _Layout:
    text = source.text.replace("\r\n", "\n").replace("\r", "\n")
    steps: list[tuple[int, str]] = []
    indents = [""]
    kept: set[int] = set()
    statements: set[int] = set()
    opened: list[int] = []
    starts = True
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            name = tokenize.tok_name[token.type]
            if name == "INDENT":
                step = token.string.removeprefix(indents[-1])
                if step and (not step.strip(" ") or not step.strip("\t")):
                    steps.append((token.start[0], step))
                indents.append(token.string)
            elif name == "DEDENT":
                indents.pop()
            elif name in _OPENS:
                opened.append(token.start[0])
            elif name in _CLOSES:
                kept.update(range(opened.pop() + 1, token.end[0] + 1))
            elif name == "STRING":
                kept.update(range(token.start[0] + 1, token.end[0] + 1))
            if starts and name not in _BETWEEN:
                statements.add(token.start[0])
            starts = name == "NEWLINE" or (starts and name in _BETWEEN)
    except (tokenize.TokenError, SyntaxError):
        raise NoFix from None
    counts = Counter(step for _, step in steps)
    return _Layout(max(counts, key=counts.__getitem__) if counts else "    ", steps, kept, statements)

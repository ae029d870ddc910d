"""The one place where a fix adds an import: among those at the head of the file."""

from __future__ import annotations

import ast
import sys
from bisect import bisect_right
from collections.abc import Iterator

import libcst as cst

from trainlint.records import NamedTuple
from trainlint.rewriting import Change, NoFix
from trainlint.semantic import from_ast, from_libcst
from trainlint.semantic.libcst_spans import node_spans
from trainlint.semantic.syntax import ParseError
from trainlint.source import Source


class _Top(NamedTuple):
    """A statement at the head of a file."""

    kind: str  # "docstring", "future", "import", "from" or "other"
    module: str
    row: int
    end_row: int
    column: int


def import_line(source: Source, module: str) -> list[Change]:
    """`import module` among the imports at the head of the file; behind docstring and `__future__` imports."""
    head: list[_Top] = []
    after: _Top | None = None
    for top in _tops(source):
        if top.kind == "future" or (top.kind == "docstring" and not head):
            after = top
        elif top.kind in ("import", "from"):
            if head and top.row > head[-1].end_row + 1:
                break
            head.append(top)
        else:
            break
    newline = source.newline
    starts = source.row_starts
    line = f"import {module}{newline}"
    if not head:
        if after is None:
            row = _first_code_row(source)
            return [Change(starts[row - 1], starts[row - 1], f"{line}{newline}")]
        return [_below(source, after.end_row, f"{newline}{line}")]
    if _is_standard(module) and not any(_is_standard(top.module) for top in head):
        line += newline  # the imports of the standard library are a group of their own
        first = head[0]
        return [Change(starts[first.row - 1], starts[first.row - 1], line)]
    for top in head:
        if top.kind != "import" or top.module > module:
            if top.column or sum(other.row == top.row for other in head) > 1:
                raise NoFix
            at = starts[top.row - 1]
            return [Change(at, at, line)]
    return [_below(source, head[-1].end_row, line)]


def _is_standard(module: str) -> bool:
    return module.partition(".")[0] in sys.stdlib_module_names


def _tops(source: Source) -> Iterator[_Top]:
    try:
        tree = from_ast.parse(source.text, source.path)
    except ParseError:
        yield from _tops_of_libcst(source)  # newer than the running Python
        return
    for statement in tree.body:
        place = (statement.lineno, statement.end_lineno or statement.lineno, statement.col_offset)
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            yield _Top("docstring", "", *place)
        elif isinstance(statement, ast.ImportFrom):
            module = "." * statement.level + (statement.module or "")
            yield _Top("future" if module == "__future__" else "from", module, *place)
        elif isinstance(statement, ast.Import):
            yield _Top("import", statement.names[0].name, *place)
        else:
            yield _Top("other", "", *place)


def _tops_of_libcst(source: Source) -> Iterator[_Top]:
    tree = from_libcst.parse(source.text)
    small = [part for line in tree.body if isinstance(line, cst.SimpleStatementLine) for part in line.body]
    spans = node_spans(tree, source.text, small)
    for line in tree.body:
        if not isinstance(line, cst.SimpleStatementLine):
            yield _Top("other", "", 0, 0, 0)
            continue
        for part in line.body:
            start, end = spans[id(part)]
            row = bisect_right(source.row_starts, start)
            place = (row, bisect_right(source.row_starts, max(start, end - 1)), start - source.row_starts[row - 1])
            if isinstance(part, cst.Expr) and isinstance(part.value, (cst.SimpleString, cst.ConcatenatedString)):
                yield _Top("docstring", "", *place)
            elif isinstance(part, cst.ImportFrom):
                module = "." * len(part.relative) + (tree.code_for_node(part.module) if part.module else "")
                yield _Top("future" if module == "__future__" else "from", module, *place)
            elif isinstance(part, cst.Import):
                yield _Top("import", tree.code_for_node(part.names[0].name), *place)
            else:
                yield _Top("other", "", *place)


def _below(source: Source, row: int, content: str) -> Change:
    if row < len(source.row_starts):
        at = source.row_starts[row]
        return Change(at, at, content)
    at = len(source.text)
    return Change(at, at, source.newline + content.rstrip("\r\n"))


def _first_code_row(source: Source) -> int:
    """The row below a shebang line, coding cookie and leading comments."""
    row = 1
    while row < len(source.row_starts) and source.line(row).lstrip().startswith("#"):
        row += 1
    return row

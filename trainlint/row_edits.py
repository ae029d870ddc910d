"""Rows of code that a fix puts before, behind or into the statement around a node, or moves."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import libcst as cst

from trainlint import rewriting
from trainlint.rewriting import Change, NoFix, Site


def before(site: Site, line: str, condition: str | None = None) -> list[Change]:
    """A row, under a condition or not, before the statement around the node."""
    start, indent = _place(site, _own(site))
    unit = site.tree.default_indent
    return [site.insert(start, "".join(f"{indent}{r}{site.source.newline}" for r in _under(condition, unit, line)))]


def behind(site: Site, *lines: str) -> list[Change]:
    """Rows below the statement around the node and all that is in it."""
    own = _own(site)
    _, indent = _place(site, own)
    return _put_at(site, _end(site, own), [f"{indent}{line}" if line else "" for line in lines])


def first_in(site: Site, line: str, condition: str | None = None) -> list[Change]:
    """A row at the start of the block of the node: a loop's body, or a function's below its docstring. A condition is
    for a `for` loop only."""
    node = site.node
    if isinstance(node, cst.For):
        return _below_header(site, node, line, condition)
    if (
        condition is not None
        or not isinstance(node, (cst.While, cst.FunctionDef, cst.If))
        or not isinstance(node.body, cst.IndentedBlock)
    ):
        raise NoFix
    first = node.body.body[0]
    if not isinstance(first, cst.SimpleStatementLine) and (
        isinstance(first, (cst.FunctionDef, cst.ClassDef)) or not isinstance(first, cst.BaseCompoundStatement)
    ):
        raise NoFix
    start, indent = _place(site, first)
    if isinstance(node, cst.FunctionDef) and node.get_docstring() is not None:
        assert isinstance(first, cst.SimpleStatementLine)
        return _put_at(site, _simple_end(site, first), [f"{indent}{line}"])
    imports = list(itertools.takewhile(_is_import, node.body.body)) if isinstance(node, cst.If) else []
    if imports:
        last = imports[-1]
        assert isinstance(last, cst.SimpleStatementLine)
        return _put_at(site, _simple_end(site, last), [f"{indent}{line}"])
    for _ in first.leading_lines:  # what is said about the statement stays with it
        start = rewriting.row_above(site.text, start)
    return [site.insert(start, f"{indent}{line}{site.source.newline}")]


def _below_header(site: Site, loop: cst.For, line: str, condition: str | None) -> list[Change]:
    if not isinstance(loop.body, cst.IndentedBlock):
        raise NoFix
    text = site.text
    colon = rewriting.past(text, site.outer_span(loop.iter)[1], ":")
    start = site.span(loop)[0]
    outer = text[rewriting.row_start(text, start) : start]
    if not rewriting.ends_row(text, colon) or outer.strip():
        raise NoFix
    row = rewriting.next_row(text, colon)
    unit = loop.body.indent or site.tree.default_indent
    newline = rewriting.newline_at(text, row)
    return [site.insert(row, "".join(f"{outer}{unit}{r}{newline}" for r in _under(condition, unit, line)))]


def _under(condition: str | None, unit: str, line: str) -> list[str]:
    return [line] if condition is None else [condition, f"{unit}{line}"]


def _is_import(statement: cst.BaseStatement) -> bool:
    return isinstance(statement, cst.SimpleStatementLine) and all(
        isinstance(small, (cst.Import, cst.ImportFrom)) for small in statement.body
    )


def moved_before(site: Site, target: Site) -> list[Change]:
    """The simple statement around the node, put before the statement around another one."""
    start, end, rows = _rows(site)
    to, _ = _place(target, _own(target))
    if start <= to <= end:
        raise NoFix
    return [_cut(site, start, end), site.insert(to, rows)]


def moved_behind(site: Site, target: Site) -> list[Change]:
    """The simple statement around the node, put below the statement around another one, with the comment above it."""
    start, end, rows = _rows(site)
    own = _own(site)
    assert isinstance(own, cst.SimpleStatementLine)
    for line in reversed(own.leading_lines):
        if line.comment is None:
            break
        above = rewriting.row_above(site.text, start)
        rows = site.text[above:start] + rows
        start = above
    to = _end(target, _own(target))
    newline = site.source.newline
    at = rewriting.next_row(target.text, to)
    if at == rewriting.row_end(target.text, to):  # the last row of the file has no end
        return [_cut(site, start, end), target.insert(at, newline + rows.rstrip("\r\n"))]
    return [_cut(site, start, end), target.insert(at, rows)]


def gone(site: Site) -> list[Change]:
    """The rows of the simple statement around the node, which is not the only one of its block."""
    start, end, _ = _rows(site)
    return [_cut(site, start, end)]


def _cut(site: Site, start: int, end: int) -> Change:
    """Rows taken out, with empty rows around them that would be too many."""
    first = start > 0 and site.text[rewriting.row_above(site.text, start) : start].rstrip().endswith(":")
    return Change(start, rewriting.over_blank_rows(site.text, start, end, first), "")


# ----------------------------------------------------------------------------------------------------------- places


def _own(site: Site) -> cst.BaseStatement:
    """The statement with a row of its own around the node: a simple one, or that in whose header the node stands."""
    for node in reversed(site.around_all):
        if isinstance(node, cst.SimpleStatementSuite):
            break
        if isinstance(node, (cst.SimpleStatementLine, cst.BaseCompoundStatement)):
            if isinstance(node, cst.While) and node is not site.node:
                break  # its header runs more than once
            if isinstance(node, (cst.FunctionDef, cst.ClassDef)):
                break
            return node
    raise NoFix


def _place(site: Site, own: cst.BaseStatement) -> tuple[int, str]:
    """Where the first row of a statement starts, and its indentation."""
    start = site.span(own.body[0])[0] if isinstance(own, cst.SimpleStatementLine) else site.span(own)[0]
    row = rewriting.row_start(site.text, start)
    indent = site.text[row:start]
    if indent.strip() or _is_joined(site.text, row):
        raise NoFix  # an `elif`, or behind another statement
    if isinstance(own, cst.If) and not site.text.startswith("if", start):
        raise NoFix
    return row, indent


def _is_joined(text: str, row: int) -> bool:
    """Whether the row above ends with a backslash."""
    return text[:row].rstrip("\r\n").endswith("\\")


def _end(site: Site, own: cst.BaseStatement) -> int:
    return _simple_end(site, own) if isinstance(own, cst.SimpleStatementLine) else site.last_offset(own)


def _simple_end(site: Site, own: cst.SimpleStatementLine) -> int:
    end = site.span(own.body[-1])[1]
    rest = site.text[end : rewriting.row_end(site.text, end)].strip(" \t\f;")
    if rest and not rest.startswith("#"):
        raise NoFix
    return end


def _rows(site: Site) -> tuple[int, int, str]:
    """Start, end and text of the rows of the simple statement around the node."""
    own = _own(site)
    if not isinstance(own, cst.SimpleStatementLine) or len(own.body) > 1:
        raise NoFix
    start, _ = _place(site, own)
    end = rewriting.next_row(site.text, _simple_end(site, own))
    rows = site.text[start:end]
    if not rows.endswith(("\n", "\r")):
        rows += site.source.newline
    return start, end, rows


def _put_at(site: Site, end: int, rows: Iterable[str]) -> list[Change]:
    """Rows below the one that holds an offset."""
    newline = site.source.newline
    row = rewriting.row_end(site.text, end)
    at = rewriting.next_row(site.text, end)
    if at == row:  # the last row of the file has no end
        return [site.insert(at, "".join(f"{newline}{r}" for r in rows))]
    return [site.insert(at, "".join(f"{r}{newline}" for r in rows))]

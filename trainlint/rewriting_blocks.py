"""Fixes around whole statements: a decorator, a `with` around a loop, a row below it."""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst

from trainlint.rewriting import Change, NoFix, Site, below_node, next_row, row_end, row_start, rows
from trainlint.semantic.libcst_spans import node_spans

_STRINGS = (cst.SimpleString, cst.FormattedString, cst.TemplatedString)


def decorate(site: Site, written: str) -> list[Change]:
    """The function around the node gets a decorator, the innermost one."""
    function = site.around(cst.FunctionDef)
    if function is None:
        raise NoFix
    start = site.found_span(function)[0]
    indent = site.text[row_start(site.text, start) : start]
    if indent.strip():
        raise NoFix
    return [site.insert(start, f"{written}{site.source.newline}{indent}")]


def put_in_with(site: Site, statement: cst.BaseStatement, manager: str, apart: Iterable[Change] = ()) -> list[Change]:
    """A statement, and the comments that belong to its end, indented under `with manager:`. Rows that begin inside of a
    string stay as they are, and rows that one of the changes `apart` takes away."""
    text = site.text
    simple = isinstance(statement, cst.SimpleStatementLine)
    start = site.found_span(statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else statement)[0]
    row = row_start(text, start)
    indent = text[row:start]
    if indent.strip():
        raise NoFix
    end = site.last_offset(statement)
    end = row_end(text, end) if simple else end_of_block(text, end, len(indent))
    strings = [n for n in below_node(statement) if isinstance(n, _STRINGS)]
    inside = sorted(node_spans(site.tree, text[site.shift :], strings).values())
    unit = site.tree.default_indent
    body = getattr(getattr(statement, "body", None), "body", None)
    if not simple and body:
        first = body[0].body[0] if isinstance(body[0], cst.SimpleStatementLine) else body[0]
        deeper = site.indent_at(site.found_span(first)[0])
        if deeper.startswith(indent) and deeper != indent:
            unit = deeper[len(indent) :]
    changes = [Change(row, start, f"{indent}with {manager}:{site.source.newline}{indent}{unit}")]
    for first_at, after in rows(text, next_row(text, start), end):
        line = text[first_at:after]
        if not line.strip() or any(a + site.shift < first_at < b + site.shift for a, b in inside):
            continue
        if any(c.start <= first_at and after <= c.end for c in apart):
            continue
        old = line[: len(line) - len(line.lstrip())]
        new = f"{indent}{unit}{old[len(indent) :]}" if old.startswith(indent) else f"{unit}{old}"
        changes.append(Change(first_at, first_at + len(old), new))
    return changes


def end_of_block(text: str, offset: int, indent: int) -> int:
    """The end of the row that a block ends in, with the comments below it that are indented deeper than `indent`."""
    end = row_end(text, offset)
    at = end
    while at < len(text):
        at = next_row(text, at)
        line = text[at : row_end(text, at)]
        if line.strip():
            if not line.lstrip().startswith("#") or len(line) - len(line.lstrip()) <= indent:
                break
            end = row_end(text, at)
        at = row_end(text, at)
    return end


def statement_after(
    site: Site, statement: cst.BaseCompoundStatement, line: str, last: int | None = None
) -> list[Change]:
    """A statement in a row below a compound one, at its depth; below what ends at `last`, if that stands in between."""
    start = site.found_span(statement)[0]
    indent = site.text[row_start(site.text, start) : start]
    if indent.strip():
        raise NoFix
    if last is not None:
        end = row_end(site.text, last)
    else:
        end = end_of_block(site.text, site.last_offset(statement), len(indent))
    return [site.insert(end, f"{site.source.newline}{indent}{line}")]


def moved_before(site: Site, offset: int) -> list[Change]:
    """The text of the simple statement around the node, in a row of its own before the statement at an offset."""
    line = site.around(cst.SimpleStatementLine)
    if line is None or len(line.body) != 1:
        raise NoFix
    start, end = site.span(line.body[0])
    written = site.text[start:end]
    row = row_start(site.text, offset)
    indent = site.text[row:offset]
    if indent.strip() or "\n" in written or "\r" in written:
        raise NoFix
    return [site.insert(row, f"{indent}{written}{site.source.newline}")]

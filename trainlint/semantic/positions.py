"""Where records stand in the text: the same places from both front ends.

An expression's place leaves out the parentheses around it, except those of a tuple or generator expression. A
function or class starts at its `def` or `class` (or `async`), after the decorators. A `with` item stands where its
value does; a comprehension's clause from its target to its last condition; a parameter from its name to its annotation.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from trainlint.findings import Place
from trainlint.patterns_on_use import Pattern
from trainlint.semantic import facts
from trainlint.semantic.facts import Record
from trainlint.semantic.syntax import BYTE_ORDER_MARK, split_rows

if TYPE_CHECKING:
    import ast

    import libcst as cst


def _ends(record: Record) -> tuple[Record, Record]:
    """The records that a record starts and ends with; mostly it is both itself.

    What ends with a block ends with its last statement, without the semicolon that may follow.
    """
    if isinstance(record, facts.WithItem):
        return record.value, record.value
    if isinstance(record, facts.Generator):
        return record.target, record.conditions[-1] if record.conditions else record.iter
    last = record
    while True:
        parts = _last_parts(last)
        if not parts:
            return record, last
        last = parts[-1]


def _last_parts(record: Record) -> Sequence[Record]:
    match record:
        case facts.Define():
            return (record.what,)
        case facts.Function(name="<lambda>"):
            return ()
        case facts.If() | facts.For() | facts.While():
            return record.orelse or record.body
        case facts.Try():
            return record.final or record.orelse or record.handlers or record.body
        case facts.Match():
            return record.cases
        case facts.Function() | facts.Class() | facts.With() | facts.Handler() | facts.Case():
            return record.body
    return ()


# -------------------------------------------------------------------------------------------------------------- ast


def ast_places(text: str, records: Iterable[Record]) -> dict[int, Place]:
    """The places of records of `from_ast`, by the `id` of the record; `text` is what was parsed.

    Before Python 3.12 the places of what stands inside an f-string are those that the parser made up.
    """
    rows = split_rows(text)

    def column(row: int, offset: int) -> int:
        """The parser counts UTF-8 bytes, and does not see a byte order mark."""
        line = rows[row - 1]
        if row == 1 and line.startswith(BYTE_ORDER_MARK):
            offset += len(BYTE_ORDER_MARK.encode())
        return offset + 1 if line.isascii() else len(line.encode()[:offset].decode(errors="replace")) + 1

    places = {}
    for record in records:
        row, offset, end_row, end_offset = _ast_span(record, rows)
        places[id(record)] = Place(row, column(row, offset), end_row, column(end_row, end_offset))
    return places


def _ast_span(record: Record, rows: Sequence[str]) -> tuple[int, int, int, int]:
    first, last = _ends(record)
    start, end = first.node, last.node
    if isinstance(first, facts.Case):
        return *_case_keyword(start.pattern, rows), end.end_lineno, end.end_col_offset
    return start.lineno, start.col_offset, end.end_lineno, end.end_col_offset


_CASE = Pattern(r"[ \t\f]*(?=case\b)")


def _case_keyword(pattern: ast.pattern, rows: Sequence[str]) -> tuple[int, int]:
    """The parser does not tell where a case starts, only its pattern, which may stand in parentheses on a later row."""
    row, before = pattern.lineno, pattern.col_offset
    while row > 0:
        found = _CASE.match(rows[row - 1])
        if found and found.end() < before:
            return row, found.end()
        row -= 1
        before = len(rows[row - 1]) + 1
    return pattern.lineno, pattern.col_offset


# ----------------------------------------------------------------------------------------------------------- libcst


def libcst_places(module: cst.Module, text: str, records: Iterable[Record], row_offset: int = 0) -> dict[int, Place]:
    """The places of records of `from_libcst`, by the `id` of the record, by one generation of the module's code.

    `text` is what was parsed, the part of a file that starts `row_offset` rows below its top. Raises ParseError where
    libcst does not give back what it read.
    """
    from trainlint.semantic.libcst_spans import spans

    wanted = [(record, *_ends(record)) for record in records]
    found = spans(module, text, [end for _, *ends in wanted for end in ends])
    starts = [0, *(match.end() for match in re.finditer("\r\n?|\n", text))]

    def position(offset: int) -> tuple[int, int]:
        row = bisect_right(starts, offset)
        return row + row_offset, offset - starts[row - 1] + 1

    return {
        id(record): Place(*position(found[id(first)][0]), *position(found[id(last)][1]))
        for record, first, last in wanted
    }

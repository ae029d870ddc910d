"""Changed code cells -> the notebook's JSON, with every other byte as it was."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import pairwise

from trainlint.records import NamedTuple
from trainlint.source import Source


class NotFound(Exception):
    """The text of a cell lies in the JSON in a way that cannot be changed in place."""


class _Text(NamedTuple):
    """A string literal of the JSON, and what it says."""

    start: int
    end: int
    text: str


def with_changes(data: bytes, source: Source, changes: Sequence[tuple[int, int, str]]) -> bytes:
    """The notebook with (start, end, content) changes of its joined code cells. Raises NotFound."""
    mark = b"\xef\xbb\xbf" if data.startswith(b"\xef\xbb\xbf") else b""
    raw = data[len(mark) :].decode("utf-8")
    cells = _code_cells(raw)
    if len(cells) != len(source.cells):
        raise NotFound("its cells could not be found again")
    starts = [source.row_starts[cell.row - 1] for cell in source.cells]
    replaced: list[tuple[int, int, str]] = []
    for cell, (start, end) in zip(cells, pairwise([*starts, len(source.text)]), strict=True):
        own = [
            (a - start, b - start, content)
            for a, b, content in changes
            if start <= a < end or a == end == len(source.text)
        ]
        if any(b > end - start for _, b, _ in own):
            raise NotFound("a fix reaches over two cells")
        if own:
            replaced += _in_cell(raw, cell, own)
    for start, end, content in sorted(replaced, reverse=True):
        raw = raw[:start] + content + raw[end:]
    return mark + raw.encode("utf-8")


def _in_cell(raw: str, lines: Sequence[_Text], changes: Sequence[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    old = "".join(line.text for line in lines)
    new = _changed(old, changes)
    if len(lines) == 1:
        return [_in_literal(raw, lines[0], new)]
    before = [line.text for line in lines]
    after = _split_like(before, new)
    first, last = _same_ends(before, after)
    gone, come = lines[first : len(lines) - last], after[first : len(after) - last]
    if len(gone) == len(come):
        return [_in_literal(raw, line, text) for line, text in zip(gone, come, strict=True)]
    comma = raw[lines[0].end : lines[1].start]
    literals = comma.join(_literal(raw, text) for text in come)
    if gone and come:
        return [(gone[0].start, gone[-1].end, literals)]
    if come:
        if first < len(lines):
            return [(lines[first].start, lines[first].start, literals + comma)]
        return [(lines[-1].end, lines[-1].end, comma + literals)]
    if first > 0:
        return [(lines[first - 1].end, gone[-1].end, "")]
    if last:
        return [(gone[0].start, lines[len(lines) - last].start, "")]
    return [(gone[0].start, gone[-1].end, "")]


def _changed(old: str, changes: Sequence[tuple[int, int, str]]) -> str:
    """A cell's text with changes that count each of its line ends, whatever it is, as one character; what they bring
    ends its lines as the cell does at that place."""
    ended = old.endswith(("\n", "\r"))
    new = old = old if ended else old + _newline_at(old, len(old))  # as the parser sees it
    places = [*(match.start() for match in _CHARACTER.finditer(old)), len(old)]
    for start, end, content in sorted(changes, reverse=True):
        written = content.replace("\r\n", "\n").replace("\n", _newline_at(old, places[start]))
        new = new[: places[start]] + written + new[places[end] :]
    last = _LAST_LINE_END.search(new)
    return new if ended or last is None else new[: last.start()]


_CHARACTER = re.compile(r"\r\n|.", re.DOTALL)
_LINE_END = re.compile(r"\r\n|\r|\n")
_LAST_LINE_END = re.compile(r"(?:\r\n|\r|\n)\Z")


def _newline_at(text: str, offset: int) -> str:
    """The line end before an offset, or the first one behind it."""
    before = list(_LINE_END.finditer(text, 0, offset))
    found = before[-1] if before else _LINE_END.search(text, offset)
    return found[0] if found else "\n"


def _split_like(before: Sequence[str], new: str) -> list[str]:
    """The new text in pieces: those of the old one at its head and end, as far as they are whole lines, else lines."""
    head: list[str] = []
    at = 0
    for piece in before:
        if not piece.endswith(("\r", "\n")) or not new.startswith(piece, at):
            break
        head.append(piece)
        at += len(piece)
    tail: list[str] = []
    end = len(new)
    for piece in reversed(before[len(head) :]):
        start = end - len(piece)
        if start < at or not new.endswith(piece, at, end) or not new[:start].endswith(("\r", "\n")):
            break
        tail.append(piece)
        end = start
    return [*head, *_LINES.findall(new[at:end]), *reversed(tail)]


_LINES = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


def _literal(raw: str, text: str) -> str:
    return json.dumps(text, ensure_ascii=raw.isascii())


def _same_ends(old: Sequence[str], new: Sequence[str]) -> tuple[int, int]:
    """How many items at the start are the same, and how many of the others at the end."""
    shorter = min(len(old), len(new))
    first = 0
    while first < shorter and old[first] == new[first]:
        first += 1
    last = 0
    while last < shorter - first and old[-1 - last] == new[-1 - last]:
        last += 1
    return first, last


_UNIT = re.compile(r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\u....|\\.|[^\\]", re.DOTALL)


def _in_literal(raw: str, literal: _Text, new: str) -> tuple[int, int, str]:
    """Only what differs is written anew, so that escapes stay as they were."""
    old = literal.text
    head, tail = _same_ends(old, new)
    ends = [literal.start + 1]
    ends += [match.end() for match in _UNIT.finditer(raw, literal.start + 1, literal.end - 1)]
    if len(ends) != len(old) + 1:
        return literal.start, literal.end, _literal(raw, new)
    return ends[head], ends[len(old) - tail], _literal(raw, new[head : len(new) - tail])[1:-1]


# ----------------------------------------------------------------------------------------------- places in the JSON


_BLANK = re.compile(r"[ \t\r\n]*")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_OTHER = re.compile(r"[^\s,\]}]+")


def _code_cells(raw: str) -> list[list[_Text]]:
    """The string literals of the source of each code cell."""
    document, _ = _read(raw, 0)
    cells = _member(document, "cells")
    if cells is None:
        sheets = _member(document, "worksheets")
        cells = _member(sheets[0], "cells") if isinstance(sheets, list) and sheets else None
    found: list[list[_Text]] = []
    for cell in cells if isinstance(cells, list) else ():
        kind = _member(cell, "cell_type")
        if not isinstance(kind, _Text) or kind.text != "code":
            continue
        source = _member(cell, "source")
        if source is None:
            source = _member(cell, "input")
        lines = [source] if isinstance(source, _Text) else source if isinstance(source, list) else []
        if any(not isinstance(line, _Text) for line in lines):
            raise NotFound("a cell holds something other than text")
        found.append([line for line in lines if isinstance(line, _Text)])
    return found


def _member(value: object, name: str) -> object:
    return value.get(name) if isinstance(value, dict) else None


def _read(raw: str, at: int) -> tuple[object, int]:
    """The value that starts at an offset, and where it ends. The JSON is known to be valid."""
    at = _skip(raw, at)
    sign = raw[at]
    if sign == '"':
        end = _string_end(raw, at)
        return _Text(at, end, json.loads(raw[at:end], strict=False)), end
    if sign not in "{[":
        match = _OTHER.match(raw, at)
        assert match is not None
        return None, match.end()
    items: list[object] = []
    members: dict[str, object] = {}
    at = _skip(raw, at + 1)
    while raw[at] not in "}]":
        if sign == "{":
            end = _string_end(raw, at)
            key = json.loads(raw[at:end], strict=False)
            at = _skip(raw, end) + 1  # the colon
            members[key], at = _read(raw, at)
        else:
            value, at = _read(raw, at)
            items.append(value)
        at = _skip(raw, at)
        if raw[at] == ",":
            at = _skip(raw, at + 1)
    return (members if sign == "{" else items), at + 1


def _skip(raw: str, at: int) -> int:
    match = _BLANK.match(raw, at)
    assert match is not None
    return match.end()


def _string_end(raw: str, at: int) -> int:
    match = _STRING.match(raw, at)
    assert match is not None
    return match.end()

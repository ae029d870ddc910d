"""Bytes -> text, and places in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainlint.source import NotChecked, Source, decode, read_source


def test_text_keeps_its_newlines_and_loses_its_byte_order_mark() -> None:
    source = decode("/a.py", b"\xef\xbb\xbfa = 1\r\nb = 2\r\n")
    assert source.text == "a = 1\r\nb = 2\r\n"
    assert (source.encoding, source.bom, source.newline) == ("utf-8", True, "\r\n")


@pytest.mark.parametrize(
    ("data", "newline"), [(b"a\nb\r\n", "\n"), (b"a\rb\n", "\r"), (b"a\r\nb\n", "\r\n"), (b"a", "\n"), (b"a\r", "\r")]
)
def test_the_first_newline_counts(data: bytes, newline: str) -> None:
    assert decode("/a.py", data).newline == newline


def test_rows_end_where_python_ends_them() -> None:
    source = decode("/a.py", "a\r\nb\rc\nd\x0ce\u2028f".encode())
    assert [source.line(row) for row in range(1, 6)] == ["a", "b", "c", "d\x0ce\u2028f", ""]
    assert source.row_starts == (0, 3, 5, 7)
    assert source.offset(2, 1) == 3
    assert source.offset(4, 2) == 8
    assert source.offset(9, 1) == len(source.text)


def test_cookie_of_the_second_line_only_after_a_comment() -> None:
    assert decode("/a.py", b"#!/bin/python\n# coding: latin-1\n'\xe9'\n").text.endswith("'é'\n")
    with pytest.raises(NotChecked):
        decode("/a.py", b"import x\n# coding: latin-1\n'\xe9'\n")


def test_a_source_does_not_change() -> None:
    source = Source("/a.py", "x")
    with pytest.raises(AttributeError):
        source.text = "y"


def test_reading_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotChecked, match="no such file"):
        read_source(str(tmp_path / "nowhere.py"))
    with pytest.raises(NotChecked, match="cannot be read"):
        read_source(str(tmp_path))


def test_cells_map_both_ways() -> None:
    data = b"""{"cells": [{"cell_type": "code", "source": "a\\nb"}, {"cell_type": "markdown", "source": "x"},
        {"cell_type": "code", "source": []}, {"cell_type": "code", "source": ["c\\n", "d\\n"]}]}"""
    source = decode("/a.ipynb", data)
    assert source.text == "a\nb\n\nc\nd\n"
    places = [source.cell_place(row) for row in range(1, 6)]
    assert places == [(1, 1), (1, 2), (2, 1), (3, 1), (3, 2)]
    assert [source.joined_row(*place) for place in places if place[0]] == [1, 2, 3, 4, 5]
    assert [cell.position for cell in source.cells] == [0, 2, 3]
    with pytest.raises(ValueError, match="3 code cells, not 4"):
        source.joined_row(4, 1)

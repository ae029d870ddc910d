"""Reads a text with both front ends and says where they differ; shared by the tests of this folder."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainlint.findings import Place
from trainlint.semantic import from_ast, from_libcst
from trainlint.semantic.facts import FString, Record
from trainlint.semantic.positions import ast_places, libcst_places
from trainlint.semantic.same import same, syntax

DATA = Path(__file__).parent / "data"


def snippets(name: str) -> list[str]:
    """The pieces of a data file, which lie between rows of dashes."""
    text = (DATA / name).read_bytes().decode()  # as it is: with form feeds and carriage returns
    return text.split("---\n")


def records(lowered: object) -> Iterator[Record]:
    """Every record in a lowered piece of code, outermost first."""
    return (record for record, _ in _with_formatted(lowered))


def difference(text: str) -> str | None:
    """The first difference, or None. Raises ParseError where a front end refuses the text."""
    by_ast = from_ast.lower(from_ast.parse(text, "test.py"))
    module = from_libcst.parse(text)
    by_libcst = from_libcst.lower(module)
    if not same(by_ast, by_libcst):
        pairs = zip(records(by_ast), records(by_libcst), strict=False)
        left, right = [pair for pair in pairs if not same(*pair)][-1]
        return f"ast reads {describe(left)}, libcst {describe(right)}"
    left_places = ast_places(text, records(by_ast))
    right_places = libcst_places(module, text, records(by_libcst))
    for (left, formatted), right in zip(_with_formatted(by_ast), records(by_libcst), strict=True):
        if formatted and sys.version_info < (3, 12):
            continue  # ast has no true places inside f-strings
        if left_places[id(left)] != right_places[id(right)]:
            return f"{describe(left)}: {left_places[id(left)]} by ast, {right_places[id(right)]} by libcst"
    return None


def describe(value: object) -> Any:
    """Records as nested tuples of class name and attributes, without those that are empty."""
    if isinstance(value, Record):
        parts = {name: describe(getattr(value, name)) for name in syntax(type(value))}
        return type(value).__name__, {name: part for name, part in parts.items() if part not in (None, (), False)}
    if isinstance(value, tuple):
        return tuple(describe(item) for item in value)
    return value


def quoted(text: str, place: Place) -> str:
    """The text at a place; rows end as they do for Python."""
    rows = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")[place.row - 1 : place.end_row]
    rows[-1] = rows[-1][: place.end_column - 1]
    rows[0] = rows[0][place.column - 1 :]
    return "\n".join(rows)


def _with_formatted(lowered: object) -> Iterator[tuple[Record, bool]]:
    """Every record, and whether it stands inside an f-string."""
    rest: list[tuple[object, bool]] = [(lowered, False)]
    while rest:
        value, formatted = rest.pop()
        if isinstance(value, Record):
            yield value, formatted
            formatted = formatted or isinstance(value, FString)
            rest += [(getattr(value, name), formatted) for name in reversed(syntax(type(value)))]
        elif isinstance(value, tuple):
            rest += [(item, formatted) for item in reversed(value)]

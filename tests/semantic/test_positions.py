"""Places: their text is what one would select, and libcst's own provider finds the same."""

from __future__ import annotations

import random
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest
from front_ends import quoted, records
from libcst.metadata import MetadataWrapper, PositionProvider

from trainlint.findings import Place
from trainlint.semantic import facts, from_ast, from_libcst
from trainlint.semantic.facts import Record
from trainlint.semantic.positions import ast_places, libcst_places

Read = Callable[[str], list[tuple[Record, Place]]]


def by_ast(text: str) -> list[tuple[Record, Place]]:
    found = list(records(from_ast.lower(from_ast.parse(text, "test.py"))))
    places = ast_places(text, found)
    return [(record, places[id(record)]) for record in found]


def by_libcst(text: str) -> list[tuple[Record, Place]]:
    module = from_libcst.parse(text)
    found = list(records(from_libcst.lower(module)))
    places = libcst_places(module, text, found)
    return [(record, places[id(record)]) for record in found]


both = pytest.mark.parametrize("read", [by_ast, by_libcst])


def place_of(kind: type[Record], read: Read, text: str) -> Place:
    return next(place for record, place in read(text) if type(record) is kind)


@both
@pytest.mark.parametrize(
    ("kind", "text", "selected"),
    [
        (facts.Name, "( a )", "a"),
        (facts.Call, "(f)(a, # c\n b)", "(f)(a, # c\n b)"),
        (facts.Operator, "x = ((a) + (b))", "(a) + (b)"),
        (facts.Sequence, "x = ( a, b )", "( a, b )"),
        (facts.Sequence, "x = a, b ,  # comment", "a, b ,"),
        (facts.Sequence, "x[a , b]", "a , b"),
        (facts.Slice, "x[ a : ]", "a :"),
        (facts.Comprehension, "f( x for x in y )", "( x for x in y )"),
        (facts.Generator, "[x for  (x, y) in z if a if (b) ]", "(x, y) in z if a if (b"),
        (facts.Keyword, "f(a, b = (1), c=2)", "b = (1)"),
        (facts.Keyword, "f(** a)", "** a"),
        (facts.Starred, "f(* a)", "* a"),
        (facts.Parameter, "def f(* args : int): pass", "args : int"),
        (facts.Parameter, "def f(a=1): pass", "a"),
        (facts.WithItem, "with open(a) as b: pass", "open(a)"),
        (facts.Handler, "try: a\nexcept B as c:\n  d\n", "except B as c:\n  d"),
        (facts.Case, "match a:\n  case (\n b): c;\n", "case (\n b): c"),
        (facts.Function, "@a\ndef f():\n  b; c ;  # d\n  # e\nf", "def f():\n  b; c"),
        (facts.Function, "@a\nasync  def f(): pass", "async  def f(): pass"),
        (facts.Class, "@a\nclass C: x = 1", "class C: x = 1"),
        (facts.Lambda, "x = (lambda: (a))", "lambda: (a)"),
        (facts.If, "if a:\n  b\nelif c:\n  d\nelse: (e) ; # f\n", "if a:\n  b\nelif c:\n  d\nelse: (e)"),
        (facts.Evaluate, "(a) ; b", "(a)"),
        (facts.Constant, "x = ('a' # b\n 'c')", "'a' # b\n 'c'"),
    ],
)
def test_what_a_place_covers(read: Read, kind: type[Record], text: str, selected: str) -> None:
    assert quoted(text, place_of(kind, read, text)) == selected


@both
@pytest.mark.parametrize(
    ("text", "row", "column"),
    [
        ("é = '😀ü'; call()", 1, 11),  # characters, not bytes
        ("\tcall()".replace("\t", "if a:\n\t"), 2, 2),  # a tab is one character
        ("a\r\nb\r\n  \r\ncall()\r\n", 4, 1),
        ("a\rb\rcall()\r", 3, 1),
        ("a\n\f\n\fcall()\n", 3, 2),  # a form feed ends no row
        ("\fcall()", 1, 2),
        ("\ufeffcall()", 1, 2),  # the places are those of the text as given
        ("'''\n\u2028\n'''; call()", 3, 6),  # neither does a line separator
        ("a\n\\\ncall()", 3, 1),
        ("call()", 1, 1),
    ],
)
def test_rows_and_columns(read: Read, text: str, row: int, column: int) -> None:
    assert place_of(facts.Call, read, text) == Place(row, column, row, column + len("call()"))


def test_part_of_a_file() -> None:
    module = from_libcst.parse("f(a)\n")
    (statement,) = from_libcst.lower(module)
    places = libcst_places(module, "f(a)\n", [statement], row_offset=40)
    assert places == {id(statement): Place(41, 1, 41, 5)}


def test_only_the_wanted_records() -> None:
    text = "f(a)\ng(b)\n"
    module = from_libcst.parse(text)
    _, second = from_libcst.lower(module)
    assert libcst_places(module, text, [second]) == {id(second): Place(2, 1, 2, 5)}
    assert libcst_places(module, text, []) == {}


def test_as_the_position_provider() -> None:
    """It counts neither parentheses of tuples nor the semicolons that end blocks, and does not know slices."""
    library = Path(sysconfig.get_paths()["stdlib"])
    paths = [path for path in sorted(library.glob("*.py")) if path.stat().st_size < 30_000]
    other = (facts.Sequence, facts.Comprehension, facts.Slice, facts.Generator, facts.WithItem, facts.Parameter)
    compared = 0
    for path in random.Random(3).sample(paths, 8):
        text = path.read_bytes().decode()
        module = from_libcst.parse(text)
        found = [record for record in records(from_libcst.lower(module)) if not isinstance(record, other)]
        ranges = MetadataWrapper(module, unsafe_skip_copy=True).resolve(PositionProvider)
        places = libcst_places(module, text, found)
        for record in found:
            expected, place = ranges[record.node], places[id(record)]
            assert place == (
                expected.start.line,
                expected.start.column + 1,
                expected.end.line,
                expected.end.column + 1,
            )
            compared += 1
    assert compared > 1000

"""Both front ends read the same records, at the same places, from every text that both accept."""

from __future__ import annotations

import ast
import io
import random
import sysconfig
import token
import tokenize
from pathlib import Path

import pytest
from front_ends import difference, snippets
from hypothesis import given, settings
from hypothesis import strategies as st

from trainlint.semantic.syntax import ParseError

FIXTURES = Path(__file__).parents[2] / "fixtures"
STANDARD_LIBRARY = Path(sysconfig.get_paths()["stdlib"])

# Files of the standard library that try to be hard to read; Linux distributions leave some out.
HARD = (
    "test/test_decorators.py",
    "test/test_fstring.py",
    "test/test_named_expressions.py",
    "test/test_patma.py",
    "test/test_positional_only_arg.py",
    "test/test_string_literals.py",
    "test/test_unicode_identifiers.py",
    "test/test_unpack_ex.py",
    "test/test_with.py",
)


@pytest.mark.parametrize("text", snippets("expressions.txt") + snippets("statements.txt"))
def test_every_kind_of_node(text: str) -> None:
    assert difference(text) is None


@pytest.mark.parametrize("text", snippets("newer_syntax.txt"))
def test_syntax_that_this_python_may_not_have(text: str) -> None:
    try:
        ast.parse(text)
    except SyntaxError:
        pytest.skip("newer than this Python")
    assert difference(text) is None


@pytest.mark.parametrize("newline", ["\r\n", "\r"])
@pytest.mark.parametrize("text", snippets("statements.txt"))
def test_other_row_ends_and_a_byte_order_mark(text: str, newline: str) -> None:
    assert difference("\ufeff" + text.replace("\n", newline)) is None


def test_fixtures() -> None:
    different = {}
    for path in sorted(FIXTURES.rglob("*.py")):
        text = path.read_bytes().decode(errors="replace")
        try:
            different[path.name] = difference(text)
        except ParseError:
            continue  # some are not Python on purpose
    assert not {name: what for name, what in different.items() if what}


def test_standard_library() -> None:
    paths = [path for path in sorted(STANDARD_LIBRARY.glob("*.py")) if path.stat().st_size < 40_000]
    sample = random.Random(7).sample(paths, 30) + [STANDARD_LIBRARY / name for name in HARD]
    different = {}
    for path in sample:
        if path.exists():
            different[path.name] = difference(path.read_bytes().decode())
    assert not {name: what for name, what in different.items() if what}


# ------------------------------------------------------------------------------- other white space, other comments

SPACES = (" ", "  ", "\t", " \t ", " \f", " \\\n", " \\\n   ")
SPACES_IN_BRACKETS = (*SPACES, "\n", "\n\n  ", "  # é ( ' \n", "\f\n\t")
ROW_ENDS = ("\n", "\n", "  \n", "  # é ( ' \n", "\n\n   # less or more indented\n", "\n\f\n", "\n\t\n")
STARTS = ("", "", "\ufeff", "\n", "# -*- coding: latin-1 -*-\n", "\f", "\f\n", "  \f")
ENDS = ("", "\n\n", "# comment", "    ", "\f", "    # comment\n")

_FORMATTED = {getattr(token, name, None) for name in ("FSTRING_START", "FSTRING_MIDDLE", "FSTRING_END")} - {None}


def respaced(text: str, chance: random.Random) -> str:
    """The same statements with other white space, comments and semicolons."""
    pieces = [chance.choice(STARTS)]
    rows = text.splitlines(keepends=True)
    brackets = formatted = 0
    end = (1, 0)
    decorator = False
    last = ""
    for kind, value, start, next_end, _ in tokenize.generate_tokens(io.StringIO(text).readline):
        if kind in (token.ENDMARKER, token.INDENT, token.DEDENT, tokenize.NL, tokenize.COMMENT):
            continue
        if kind == token.NEWLINE:
            semicolon = last not in (":", ";") and not decorator and chance.random() < 0.2
            pieces.append((" ; " if semicolon else "") + chance.choice(ROW_ENDS))
        else:
            starts_row = last in ("", "\n")
            if starts_row:
                decorator = value == "@"
                pieces.append(rows[start[0] - 1][: start[1]])
            else:
                gap = rows[start[0] - 1][end[1] : start[1]] if start[0] == end[0] else " "
                if formatted or kind in _FORMATTED:
                    pieces.append(gap)
                elif gap or chance.random() < 0.3:
                    pieces.append(chance.choice(SPACES_IN_BRACKETS if brackets else SPACES))
            pieces.append(value)
        brackets += (value in ("(", "[", "{")) - (value in (")", "]", "}"))
        formatted += (kind == getattr(token, "FSTRING_START", -1)) - (kind == getattr(token, "FSTRING_END", -1))
        last, end = "\n" if kind == token.NEWLINE else value, next_end
    return "".join(pieces) + chance.choice(ENDS)


@settings(max_examples=250, deadline=None, derandomize=True)
@given(
    text=st.sampled_from(snippets("expressions.txt") + snippets("statements.txt")),
    chance=st.randoms(use_true_random=False),
    newline=st.sampled_from(["\n", "\r\n", "\r"]),
)
def test_any_white_space(text: str, chance: random.Random, newline: str) -> None:
    text = respaced(text, chance).replace("\n", newline)
    try:
        assert difference(text) is None
    except ParseError:
        pass  # libcst refuses a few; what counts is that it reads nothing else than ast

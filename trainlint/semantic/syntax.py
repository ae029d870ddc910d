"""Why a text cannot be read: the one error of both front ends, and the bounds that they share."""

from __future__ import annotations

import re

from trainlint.patterns_on_use import Pattern

BYTE_ORDER_MARK = "\ufeff"

MAX_DEPTH = 500
"""Levels of nested expressions that are read. CPython itself stops at 200 brackets and 100 indentations; what is left
are chains (`a.b.c...`, `not not ...`, `1 + 1 + ...`). They cost the parser of libcst its stack or quadratic time."""

_TOO_DEEP = f"nested more than {MAX_DEPTH} levels deep"


class ParseError(Exception):
    """The text is not Python, or none that can be read here. `row` and `column` are 1-based and count characters."""

    def __init__(self, reason: str, row: int, column: int) -> None:
        super().__init__(reason, row, column)
        self.reason = reason
        self.row = row
        self.column = column

    def __str__(self) -> str:
        return f"{self.row}:{self.column}: {self.reason}"


class TooDeep(ParseError):
    """Nested too deeply; another parser would not do better, so the file counts as not checked."""

    def __init__(self, row: int, column: int, reason: str = _TOO_DEEP) -> None:
        super().__init__(reason, row, column)


def split_rows(text: str) -> list[str]:
    """The rows as Python counts them, without their ends: a lone carriage return ends one, a form feed does not."""
    if "\r" in text:
        return re.split("\r\n?|\n", text)
    return text.split("\n")


def split_rows_keeping_ends(text: str) -> list[str]:
    """As `split_rows`, each row with its own end."""
    return re.findall("[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", text)


def without_lone_returns(text: str) -> str:
    """The text with the row ends of old Macs, which libcst does not always understand, replaced one for one."""
    return re.sub("\r(?!\n)", "\n", text) if "\r" in text else text


def refuse_null_bytes(text: str) -> None:
    """The parsers disagree on where a null byte is an error and how they report it."""
    offset = text.find("\0")
    if offset >= 0:
        before = split_rows(text[:offset])
        raise ParseError("null byte in the source", len(before), len(before[-1]) + 1)


# ----------------------------------------------------------------------------------------- nesting, seen in the text

_MAX_BRACKETS = 200  # CPython's own bound
_MAX_OPERATORS = 4 * MAX_DEPTH  # an estimate from above: operators in one row need not nest

_TOKEN = Pattern(
    r"""
    (?P<words> [^'"\#()\[\]{},;.+\-*/%@&|^~<>=!\r\n]* )
    (?: (?P<skip> \#[^\r\n]*
            | \"{3} [^"\\]* (?: (?: \\. | "(?!"") ) [^"\\]* )* (?:\"{3})?
            | \'{3} [^'\\]* (?: (?: \\. | '(?!'') ) [^'\\]* )* (?:\'{3})?
            | " [^"\\\r\n]* (?: \\. [^"\\\r\n]* )* "?
            | ' [^'\\\r\n]* (?: \\. [^'\\\r\n]* )* '? )
      | (?P<statement> [\r\n]+ [ \t]* (?:assert|class|def|del|global|import|raise|return|try|while|with)\b )
      | (?P<row> [\r\n]+ )
      | (?P<open> [(\[{] ) | (?P<close> [)\]}] ) | (?P<comma> [,;] )
      | (?P<operator> [+\-~] | [.*/%@&|^<>=!]+ )
      | $ )
    """,
    re.VERBOSE | re.DOTALL,
)
_WORD_OPERATOR = Pattern(r"\b(?:and|await|else|if|lambda|not|or)\b")


def refuse_deep_text(text: str) -> None:
    """Raises TooDeep for what the native parser should not see, without a tree.

    Estimates the levels that are open at a place: in every open bracket, the operators since its last comma. A string
    taken apart wrongly (nested quotes of an f-string) spoils the estimate no further than to the next statement.
    """
    levels = [0]
    total = 0
    for token in _TOKEN.finditer(text):
        words, kind = token["words"], token.lastgroup
        if " " in words:
            found = len(_WORD_OPERATOR.findall(words))
            levels[-1] += found
            total += found
        if kind == "operator":
            levels[-1] += 1
            total += 1
        elif kind == "open":
            levels[-1] += 1
            levels.append(0)
            total += 1
        elif kind == "close" and len(levels) > 1:
            total -= levels.pop()
        elif kind == "comma":
            total -= levels[-1]
            levels[-1] = 0
        elif kind == "statement" or (kind == "row" and len(levels) == 1):
            levels = [0]
            total = 0
        if total > _MAX_OPERATORS or len(levels) > _MAX_BRACKETS:
            before = split_rows(text[: token.end()])
            raise TooDeep(len(before), max(len(before[-1]), 1))

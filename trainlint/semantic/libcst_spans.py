"""Offsets of libcst nodes in their text, from one generation of the code of a statement.

libcst's PositionProvider notes rows and columns, of a copy of the tree, which costs several times as much.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from contextlib import AbstractContextManager
from functools import lru_cache
from itertools import accumulate
from typing import Any, cast

import libcst as cst

from trainlint.patterns_on_use import Pattern
from trainlint.semantic.deep_stack import run_in_deep_stack
from trainlint.semantic.facts import Parameter, Record
from trainlint.semantic.syntax import ParseError, without_lone_returns


def spans(module: cst.Module, text: str, records: Iterable[Record]) -> dict[int, tuple[int, int]]:
    """Start and end offset in `text`, which `module` was parsed from, by the `id` of the record.

    Of a record that ends with a block, only the start counts: its code goes on to the end of the row.
    """
    return _spans(_generated(module), text, {id(record): _bounds(record) for record in records})


def node_spans(module: cst.Module, text: str, nodes: Iterable[cst.CSTNode]) -> dict[int, tuple[int, int]]:
    """As `spans`, for nodes, by the `id` of the node; those without a position of their own are left out.

    `text` may go on behind what `module` was parsed from.
    """
    return _spans(_generated(module), text, {id(node): (node, node) for node in nodes}, leave_out_empty=True)


def forget_trees() -> None:
    """Lets go of the statements of a file that is done with: what is known of one keeps its tree alive."""
    _generated.cache_clear()


@lru_cache(maxsize=8)
def _generated(module: cst.Module) -> _Code:
    """Kept for the statements asked for last: first all findings of a file want their places, and then each of their fixes."""
    code = _Code(module)
    run_in_deep_stack(lambda: module._codegen_impl(cast(Any, code)))
    code.text = "".join(code.tokens)
    code.offsets = list(accumulate(map(len, code.tokens), initial=0))
    return code


def _spans(
    code: _Code,
    text: str,
    bounds: dict[int, tuple[cst.CSTNode, cst.CSTNode]],
    leave_out_empty: bool = False,
) -> dict[int, tuple[int, int]]:
    found = {}
    for key, (first, last) in bounds.items():
        if id(first) not in code.starts or id(last) not in code.ends:
            continue
        start, end = code.starts[id(first)], code.ends[id(last)]
        if start == end and leave_out_empty:
            continue
        start, end = code.trimmed(start, end)
        if _has_own_parentheses(first):
            start, end = code.with_parentheses(start, end)
        found[key] = code.offsets[start], code.offsets[end]
    # What follows the last node is not looked at: libcst puts the end of a file into order.
    generated = code.text[: max((end for _, end in found.values()), default=0)]
    shifts = _Shifts(generated, without_lone_returns(text))
    return {key: (shifts.start(start), shifts.end(end)) for key, (start, end) in found.items()}


def _bounds(record: Record) -> tuple[cst.CSTNode, cst.CSTNode]:
    """The nodes that a record starts and ends with."""
    node = record.node
    if isinstance(record, Parameter):
        return node.name, node.annotation or node.name
    if isinstance(node, cst.CSTNode):
        return node, node
    comma = node[-1].comma  # of the elements of a subscript
    return node[0], comma if isinstance(comma, cst.Comma) else node[-1]


def _has_own_parentheses(node: cst.CSTNode) -> bool:
    """libcst counts parentheses as around the node, Python those of a tuple or generator expression as part of it."""
    return isinstance(node, cst.GeneratorExp) or (isinstance(node, cst.Tuple) and bool(node.lpar))


class _Code:
    """Stands in for libcst's CodegenState: collects the tokens, and at which of them each node starts and ends."""

    __slots__ = (
        "add_token",
        "default_indent",
        "default_newline",
        "ends",
        "increase_indent",
        "indent_tokens",
        "offsets",
        "starts",
        "text",
        "tokens",
    )

    def __init__(self, module: cst.Module) -> None:
        self.default_indent = module.default_indent
        self.default_newline = module.default_newline
        self.indent_tokens: list[str] = []
        self.tokens: list[str] = []
        self.text = ""  # once all is generated: the tokens joined
        self.offsets: list[int] = []  # of each token, and of the end
        self.starts: dict[int, int] = {}
        self.ends: dict[int, int] = {}
        self.add_token = self.tokens.append
        self.increase_indent = self.indent_tokens.append

    def decrease_indent(self) -> None:
        self.indent_tokens.pop()

    def add_indent_tokens(self) -> None:
        self.tokens.extend(self.indent_tokens)

    def pop_trailing_newline(self) -> None:
        if self.tokens:
            self.tokens.pop()

    def before_codegen(self, node: cst.CSTNode) -> None:
        self.starts[id(node)] = len(self.tokens)

    def after_codegen(self, node: cst.CSTNode) -> None:
        """For the few nodes that have no syntactic position, such as slices."""
        self.ends.setdefault(id(node), len(self.tokens))

    def record_syntactic_position(self, node: cst.CSTNode, **_: object) -> AbstractContextManager[None]:
        return _Mark(self, id(node))

    def trimmed(self, start: int, end: int) -> tuple[int, int]:
        """Without white space and comments at either end, nor the semicolon that libcst counts into `type X = int;`."""
        end = min(end, len(self.tokens))  # the last row end of a file may have been taken back
        while _is_trivia(self.tokens[start]):
            start += 1
        while _is_trivia(self.tokens[end - 1]) or self.tokens[end - 1] == ";":
            end -= 1
        return start, end

    def with_parentheses(self, start: int, end: int) -> tuple[int, int]:
        """Nothing but white space and comments lies between them and the node, at the end also a trailing comma."""
        start -= 1
        while self.tokens[start] != "(":
            start -= 1
        while self.tokens[end] != ")":
            end += 1
        return start, end + 1


class _Mark(AbstractContextManager[None]):
    __slots__ = ("_code", "_key")

    def __init__(self, code: _Code, key: int) -> None:
        self._code = code
        self._key = key

    def __enter__(self) -> None:
        self._code.starts[self._key] = len(self._code.tokens)

    def __exit__(self, *_: object) -> None:
        self._code.ends[self._key] = len(self._code.tokens)


def _is_trivia(token: str) -> bool:
    return not token.strip(" \t\f\r\n\\") or token.startswith("#")


# What libcst reads and does not keep: a byte order mark, and form feeds or joined rows where a statement begins.
_DROPPED = Pattern("\ufeff|[ \t\f]+|\\\\(?:\r\n?|\n)")


class _Shifts:
    """Maps offsets in the generated code to those in the text, which may hold more."""

    def __init__(self, generated: str, text: str) -> None:
        self._offsets = [0]
        self._shifts = [0]
        done = position = 0
        while True:
            length = _common_length(generated, done, text, position)
            done += length
            position += length
            if done == len(generated):
                return
            dropped = _DROPPED.match(text, position)
            if dropped is None:
                row = text.count("\n", 0, position) + 1
                raise ParseError("libcst does not give back what it read", row, 1)
            position = dropped.end()
            self._offsets.append(done)
            self._shifts.append(position - done)

    def start(self, offset: int) -> int:
        return offset + self._shifts[bisect_right(self._offsets, offset) - 1]

    def end(self, offset: int) -> int:
        return offset + self._shifts[max(bisect_left(self._offsets, offset) - 1, 0)]


def _common_length(a: str, a_start: int, b: str, b_start: int) -> int:
    if b.startswith(a[a_start:], b_start):
        return len(a) - a_start
    low, high = 0, len(a) - a_start  # the first `low` characters are equal, the first `high` are not
    while high - low > 1:
        middle = (low + high) // 2
        if b.startswith(a[a_start + low : a_start + middle], b_start + low):
            low = middle
        else:
            high = middle
    return low

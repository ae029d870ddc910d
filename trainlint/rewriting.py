"""From a hit's libcst node to text edits: where its parts stand, and the few ways in which fixes change code.

A fix never writes a node back as a whole. It replaces, inserts or cuts at the spans of nodes, so that comments, blank
rows, quotes and line ends around it are not even looked at.
"""

from __future__ import annotations

import dataclasses
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from itertools import pairwise
from typing import TypeVar

import libcst as cst

from trainlint.findings import Edit, Place
from trainlint.records import NamedTuple
from trainlint.semantic.facts import Record
from trainlint.semantic.libcst_spans import node_spans
from trainlint.source import Source

_Node = TypeVar("_Node", bound=cst.CSTNode)


_PLACED = (cst.BaseExpression, cst.Arg, cst.BaseSmallStatement, cst.BaseCompoundStatement)


class Change(NamedTuple):
    """Write `content` in place of the text from `start` to `end`."""

    start: int
    end: int
    content: str


class NoFix(Exception):
    """The code has a shape that a fix does not know how to change."""


class Site:
    """Where a fix is at work: a node, what stands around it, and where each of them lies in the text."""

    def __init__(
        self,
        node: cst.CSTNode,
        tree: cst.Module,
        row: int,
        source: Source,
        of: Callable[[Record], Site] | None = None,
    ) -> None:
        """`tree` was parsed from the part of the text that starts at `row`; `of` gives the site of another record."""
        self._of = of
        self.node = node
        self.source = source
        self.text = source.text
        self.tree = tree
        self.shift = source.row_starts[row - 1]
        self.around_all = _path(tree, node)
        wanted: list[cst.CSTNode] = [n for n in self.around_all if isinstance(n, _PLACED)]
        stack: list[cst.CSTNode] = [node]
        while stack:
            current = stack.pop()
            if isinstance(current, _PLACED):
                wanted.append(current)
            stack.extend(_children(current))
        self._spans = node_spans(tree, self.text[self.shift :], wanted)

    @property
    def call(self) -> cst.Call:
        return self.expect(self.node, cst.Call)

    def of(self, record: Record) -> Site:
        """Where another of the records is that the rewrite names (`Rewrite.others`)."""
        if self._of is None:
            raise NoFix
        return self._of(record)

    def expect(self, node: object, kind: type[_Node]) -> _Node:
        if not isinstance(node, kind):
            raise NoFix
        return node

    def span(self, node: cst.CSTNode) -> tuple[int, int]:
        """Where a node stands, without the parentheses around it."""
        found = self._spans.get(id(node))
        if found is None:
            raise NoFix
        return found[0] + self.shift, found[1] + self.shift

    def place(self, record: Record) -> tuple[int, int]:
        """Where one of `Rewrite.others` stands."""
        there = self.of(record)
        return there.span(there.node)

    def found_span(self, node: cst.CSTNode) -> tuple[int, int]:
        """As `span`, for a node anywhere in the tree."""
        found = node_spans(self.tree, self.text[self.shift :], [node]).get(id(node))
        if found is None:
            raise NoFix
        return found[0] + self.shift, found[1] + self.shift

    def outer_span(self, node: cst.BaseExpression) -> tuple[int, int]:
        """With the parentheses around it."""
        start, end = self.span(node)
        if isinstance(node, (cst.Tuple, cst.GeneratorExp)):
            return start, end  # those belong to it
        for _ in node.lpar:
            start = self.text.rindex("(", 0, start)
            end = past(self.text, end, ")")
        return start, end

    def written(self, node: cst.BaseExpression) -> str:
        """A node's text, with the parentheses around it."""
        start, end = self.outer_span(node)
        return self.text[start:end]

    def inside(self, node: cst.BaseExpression) -> str:
        """A node's text, without the parentheses around it: for a place that has its own."""
        start, end = self.span(node)
        if isinstance(node, (cst.NamedExpr, cst.Yield)) or (isinstance(node, cst.Tuple) and not node.lpar):
            raise NoFix
        return self.text[start:end]

    def around(self, kind: type[_Node]) -> _Node | None:
        """The innermost node of that kind around (or at) the node."""
        for node in reversed(self.around_all):
            if isinstance(node, kind):
                return node
        return None

    def parent(self) -> cst.CSTNode:
        return self.around_all[-2]

    def last_offset(self, node: cst.CSTNode) -> int:
        """Where the last statement in a node ends."""
        ends = [self._spans[id(n)][1] for n in below_node(node) if id(n) in self._spans]
        if not ends:
            found = node_spans(
                self.tree, self.text[self.shift :], [n for n in below_node(node) if isinstance(n, _PLACED)]
            )
            ends = [end for _, end in found.values()]
        if not ends:
            raise NoFix
        return max(ends) + self.shift

    def indent_at(self, offset: int) -> str:
        """The white space that the row of an offset starts with."""
        row = bisect_right(self.source.row_starts, offset)
        line = self.source.line(row)
        return line[: len(line) - len(line.lstrip())]

    def replace(self, node: cst.BaseExpression, content: str) -> Change:
        """A node, its parentheses too, written anew."""
        return Change(*self.outer_span(node), content)

    def insert(self, offset: int, content: str) -> Change:
        return Change(offset, offset, content)


def edits_of(changes: Iterable[Change], source: Source) -> tuple[Edit, ...]:
    """Raises NoFix where two of them overlap or one touches what is no Python (a notebook's magic)."""
    ordered = sorted(set(changes))
    for one, other in pairwise(ordered):
        if other.start < one.end or (other.start == one.start and one.start == one.end):
            raise NoFix
    edits = tuple(
        Edit(Place(*_position(source, c.start), *_position(source, c.end)), c.content)
        for c in ordered
        if source.text[c.start : c.end] != c.content
    )
    for edit in edits:
        last = edit.place.end_row if edit.place.end_column > 1 or edit.place.row == edit.place.end_row else -1
        if source.masked and any(edit.place.row <= row <= last for row in source.masked):
            raise NoFix
    return edits


def _position(source: Source, offset: int) -> tuple[int, int]:
    row = bisect_right(source.row_starts, offset)
    return row, offset - source.row_starts[row - 1] + 1


def below_node(node: cst.CSTNode) -> list[cst.CSTNode]:
    found = [node]
    for current in found:
        found.extend(_children(current))
    return found


def _path(tree: cst.Module, node: cst.CSTNode) -> list[cst.CSTNode]:
    """The nodes from the module down to a node, both included."""
    above = _parents(tree)
    found = [node]
    while found[-1] is not tree:
        parent = above.get(id(found[-1]))
        if parent is None:
            raise NoFix
        found.append(parent)
    return found[::-1]


def forget_trees() -> None:
    """As that of `libcst_spans`."""
    _parents.cache_clear()


@lru_cache(maxsize=8)
def _parents(tree: cst.Module) -> dict[int, cst.CSTNode]:
    """What each node of a tree stands in, by the `id` of the node. One walk for all fixes in a statement."""
    found: dict[int, cst.CSTNode] = {}
    stack: list[cst.CSTNode] = [tree]
    while stack:
        current = stack.pop()
        children = _children(current)
        found.update((id(child), current) for child in children)
        stack.extend(children)
    return found


def _children(node: cst.CSTNode) -> list[cst.CSTNode]:
    """As `CSTNode.children`, which runs a visitor over them and takes several times as long; in the order of the fields."""
    found: list[cst.CSTNode] = []
    for name in _fields(node.__class__):
        held = getattr(node, name)
        if isinstance(held, (list, tuple)):
            found.extend(one for one in held if _is_node(one.__class__))
        elif _is_node(held.__class__):
            found.append(held)
    return found


@cache
def _is_node(kind: type) -> bool:
    return issubclass(kind, cst.CSTNode)


@cache
def _fields(kind: type[cst.CSTNode]) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))


# ---------------------------------------------------------------------------------------------------- expressions


def expression(node: object) -> cst.BaseExpression:
    if not isinstance(node, cst.BaseExpression):
        raise NoFix
    return node


def attribute(node: object) -> cst.Attribute:
    if not isinstance(node, cst.Attribute):
        raise NoFix
    return node


def call(node: object) -> cst.Call:
    if not isinstance(node, cst.Call):
        raise NoFix
    return node


def keep_only(site: Site, inner: cst.BaseExpression) -> list[Change]:
    """Cuts what stands around a part of the node."""
    (start, end), (first, last) = site.span(site.node), site.outer_span(inner)
    if "#" in site.text[start:first] or "#" in site.text[last:end]:
        raise NoFix
    rows = "\n" in site.text[start:end] or "\r" in site.text[start:end]
    if rows and ("\n" in site.text[start:first] or "\n" in site.text[last:end]):
        raise NoFix  # without the brackets around it the code would end with the row
    return [Change(start, first, ""), Change(last, end, "")]


def atom(node: cst.BaseExpression, written: str) -> str:
    """An expression's text such that `.name` or `(...)` may follow it."""
    if node.lpar or isinstance(
        node,
        (cst.Name, cst.Attribute, cst.Call, cst.Subscript, cst.List, cst.Dict, cst.Set, cst.ListComp, cst.DictComp),
    ):
        return written
    return f"({written})"


def method_on(site: Site, node: cst.BaseExpression, name: str) -> list[Change]:
    """`x` -> `x.name()`, `a + b` -> `(a + b).name()`."""
    start, end = site.outer_span(node)
    if atom(node, "") == "":
        return [site.insert(end, f".{name}()")]
    return [site.insert(start, "("), site.insert(end, f").{name}()")]


def wrapped(site: Site, node: cst.BaseExpression, function: str) -> list[Change]:
    """`x` -> `function(x)`."""
    start, end = site.outer_span(node)
    if isinstance(node, (cst.GeneratorExp, cst.Yield, cst.NamedExpr)) and not node.lpar:
        raise NoFix
    if isinstance(node, cst.Tuple) and not node.lpar:
        return [site.insert(start, f"{function}(("), site.insert(end, "))")]
    return [site.insert(start, f"{function}("), site.insert(end, ")")]


def around_shallow_copy(site: Site) -> list[Change]:
    """`copy.copy(x)` -> `copy.deepcopy(x)`; nothing where no such call is around the node."""
    outer = site.around_all[-3] if len(site.around_all) > 2 else None
    if not isinstance(outer, cst.Call) or not isinstance(outer.func, cst.Attribute):
        return []
    if (
        outer.func.attr.value != "copy"
        or not isinstance(outer.func.value, cst.Name)
        or outer.func.value.value != "copy"
    ):
        return []
    start = site.outer_span(outer)[0]
    end = past(site.text, past(site.text, start, "copy"), ".")
    return [Change(end, past(site.text, end, "copy"), "deepcopy")]


# ------------------------------------------------------------------------------------------------------ arguments


def keyword(call: cst.Call, name: str) -> int | None:
    """The index of the argument passed by that name."""
    for index, argument in enumerate(call.args):
        if argument.keyword is not None and argument.keyword.value == name:
            return index
    return None


def argument(call: cst.Call, name: str, position: int | None = None) -> int | None:
    """As `keyword`, or the argument at that position, where no starred one stands before it."""
    found = keyword(call, name)
    if found is not None or position is None or position >= len(call.args):
        return found
    if any(a.star or a.keyword is not None for a in call.args[: position + 1]):
        return None
    return position


def set_keyword(site: Site, call: cst.Call, name: str, value: str) -> list[Change]:
    """`name=value`: written over the one that is there, else put last (before `**options`)."""
    at = keyword(call, name)
    if at is not None:
        return [site.replace(call.args[at].value, value)]
    return add_argument(site, call, f"{name}={value}")


def set_options(site: Site, call: cst.Call, options: Sequence[tuple[str, str, int | None]]) -> list[Change]:
    """(name, value, position): each is written over the one that is there, by keyword or position; the others put last."""
    changes: list[Change] = []
    missing: list[str] = []
    for name, value, position in options:
        at = argument(call, name, position)
        if at is None:
            missing.append(f"{name}={value}")
        else:
            changes.append(site.replace(call.args[at].value, value))
    return [*changes, *(add_argument(site, call, *missing) if missing else ())]


def add_argument(site: Site, call: cst.Call, *contents: str) -> list[Change]:
    """Behind the last argument, on a row of its own where each of them has one; before `**options`."""
    args = call.args
    text = site.text
    content = ", ".join(contents)
    if not args:
        closing = site.span(call)[1] - 1
        return [site.insert(_back_over_blanks(text, closing), content)]
    if len(args) == 1 and isinstance(args[0].value, cst.GeneratorExp) and not args[0].value.lpar:
        raise NoFix
    double = next((i for i, a in enumerate(args) if a.star == "**"), len(args))
    if double < len(args):
        start = site.span(args[double])[0]
        if _starts_row(text, start):
            return [site.insert(start, "".join(f"{one},{_newline_and(site, start)}" for one in contents))]
        return [site.insert(start, f"{content}, ")]
    start, end = site.span(args[-1])
    comma = isinstance(args[-1].comma, cst.Comma)
    starts = [_starts_row(text, site.span(a)[0]) for a in args]
    own_rows = starts[-1] and (starts[-2:] == [True, True] or all(starts[1:]))
    if own_rows and len(args) > 1 and not comma and text[end : end + 1] == ")":  # the bracket closes in the last row
        return [site.insert(end, "".join(f",{_newline_and(site, start)}{one}" for one in contents))]
    if comma:
        end = past(text, end, ",")
    if own_rows and ends_row(text, end):
        rest = row_end(text, end)
        added = ",".join(f"{_newline_and(site, start)}{one}" for one in contents) + ("," if comma else "")
        if comma or rest == end:
            return [site.insert(rest, added if comma else f",{added}")]
        return [site.insert(end, ","), site.insert(rest, added)]
    if comma:
        return [site.insert(end, f" {content},")]
    return [site.insert(end, f", {content}")]


def first_argument(site: Site, call: cst.Call, content: str) -> list[Change]:
    """Before all others."""
    if not call.args:
        return add_argument(site, call, content)
    if len(call.args) == 1 and isinstance(call.args[0].value, cst.GeneratorExp) and not call.args[0].value.lpar:
        raise NoFix
    start = site.span(call.args[0])[0]
    if _starts_row(site.text, start):
        return [site.insert(start, f"{content},{_newline_and(site, start)}")]
    return [site.insert(start, f"{content}, ")]


def drop_argument(site: Site, call: cst.Call, at: int) -> list[Change]:
    """One argument, with its comma and what was written about it in its own row."""
    return drop_arguments(site, call, [at])


def drop_arguments(site: Site, call: cst.Call, places: Sequence[int]) -> list[Change]:
    text, args = site.text, call.args
    gone = sorted(set(places))
    if any(
        args[i].keyword is None and any(a.keyword is None for a in args[i + 1 :]) for i in gone if i + 1 not in gone
    ):
        raise NoFix  # what follows by position would move up
    changes: list[Change] = []
    last_kept = max((i for i in range(len(args)) if i not in gone), default=-1)
    for at in gone:
        start, end = site.span(args[at])
        if isinstance(args[at].comma, cst.Comma):
            end = past(text, end, ",")
        if _starts_row(text, start) and ends_row(text, end):  # rows of its own: they go, with the comment in the last
            start = row_start(text, start)
            after = next_row(text, end)
            if text[start:after].lstrip().startswith("#"):
                raise NoFix
            changes.append(Change(start, after, ""))
        elif at < last_kept:
            following = site.span(args[at + 1])[0]
            if "#" in text[end:following] or "\n" in text[end:following]:
                if _starts_row(text, start):
                    raise NoFix
                changes.append(Change(_back_over_blanks(text, start), end, ""))
            else:
                changes.append(Change(start, following, ""))
        else:
            before = _back_over_blanks(text, start)
            if text[before - 1 : before] in ("\n", "\r", "\\"):
                before = start
            if last_kept >= 0 and last_kept + 1 == gone_run(gone, at) and not isinstance(args[-1].comma, cst.Comma):
                comma = past(text, site.span(args[last_kept])[1], ",") - 1
                if comma + 1 == before or (at == last_kept + 1 and "#" not in text[comma:before]):
                    before = comma
            changes.append(Change(before, end, ""))
    return changes


def gone_run(gone: Sequence[int], at: int) -> int:
    """The first of the neighbours that go together with the argument at `at`."""
    while at - 1 in gone:
        at -= 1
    return at


# ----------------------------------------------------------------------------------------------------- statements


def remove_statement(site: Site) -> list[Change]:
    """The simple statement around the node, with its row; `pass` where a block would be left empty."""
    line = site.around(cst.SimpleStatementLine)
    if line is None:
        raise NoFix
    small = line.body[0]
    start, end = site.span(small)
    block = next((n for n in reversed(site.around_all) if isinstance(n, (cst.IndentedBlock, cst.Module))), None)
    if len(line.body) > 1 or block is None:
        raise NoFix
    if isinstance(block, cst.IndentedBlock) and len(block.body) == 1:
        return [Change(start, end, "pass")]
    text = site.text
    end = _back_over_blanks(text, end) if text[end : end + 1] != ";" else end + 1
    if not _starts_row(text, start) or not ends_row(text, end):
        return [Change(start, end, "pass")]
    if "#" in text[end : row_end(text, end)]:
        comment = text[end : row_end(text, end)].lstrip()
        if re.match(r"#\s*(?:expect|trainlint|noqa|type:|fmt:|pylint)", comment) is None:
            return [Change(start, end + len(text[end : row_end(text, end)]) - len(comment), "")]
    first = block.body[0] is line and isinstance(block, cst.IndentedBlock)
    start = row_start(text, start)
    return [Change(start, over_blank_rows(text, start, next_row(text, end), first), "")]


def over_blank_rows(text: str, start: int, end: int, first: bool = False) -> int:
    """The end of the blank rows that go with rows: those that would make the gap wider than it was on either side, and of
    what a block or the file begins with all of them."""
    above = below = 0
    row = start
    while row > 0 and not text[row_above(text, row) : row].strip():
        row = row_above(text, row)
        above += 1
    rows = [end]
    while rows[-1] < len(text) and not text[rows[-1] : row_end(text, rows[-1])].strip():
        rows.append(next_row(text, rows[-1]))
        below += 1
    if row == 0 or (first and not above and not text[row_above(text, row) : row].lstrip().startswith("#")):
        return rows[-1]
    return rows[min(above, below)]


def unwrap(site: Site) -> list[Change]:
    """`f(x, ...)` -> `x`; `x = f(x)` goes."""
    value = site.call.args[0].value
    written = site.written(value)
    parent = site.parent()
    if isinstance(parent, cst.Assign) and [site.tree.code_for_node(t.target) for t in parent.targets] == [written]:
        return remove_statement(site)
    start, end = site.span(site.node)
    if "\n" in site.text[start:end] or "\r" in site.text[start:end] or isinstance(value, cst.GeneratorExp):
        raise NoFix
    free = isinstance(parent, (cst.Assign, cst.Arg, cst.Expr, cst.Return))  # these need no parentheses around it
    return [Change(start, end, written if free else atom(value, written))]


def loop(node: object) -> cst.For:
    if not isinstance(node, cst.For):
        raise NoFix
    return node


def rows(text: str, start: int, end: int) -> list[tuple[int, int]]:
    rows = []
    while start < end:
        following = next_row(text, start)
        rows.append((start, following))
        if following == start:
            break
        start = following
    return rows


# ----------------------------------------------------------------------------------------------------------- text


def _newline_and(site: Site, offset: int) -> str:
    """A line end, and the white space that stands before an offset in its row."""
    start = row_start(site.text, offset)
    before = site.text[start:offset]
    return newline_at(site.text, start) + before


def newline_at(text: str, start: int) -> str:
    """The line end just before a row."""
    if text[start - 2 : start] == "\r\n":
        return "\r\n"
    return text[start - 1 : start] or "\n"


def row_start(text: str, offset: int) -> int:
    return max(text.rfind("\n", 0, offset), text.rfind("\r", 0, offset)) + 1


def row_above(text: str, start: int) -> int:
    """Where the row above the one that starts there starts."""
    return row_start(text, start - (2 if text[start - 2 : start] == "\r\n" else 1))


def row_end(text: str, offset: int) -> int:
    found = re.compile("[\r\n]").search(text, offset)
    return found.start() if found else len(text)


def next_row(text: str, offset: int) -> int:
    end = row_end(text, offset)
    return end + (2 if text[end : end + 2] == "\r\n" else 1 if end < len(text) else 0)


def _starts_row(text: str, offset: int) -> bool:
    return not text[row_start(text, offset) : offset].strip()


def ends_row(text: str, offset: int) -> bool:
    """Whether nothing but a comment follows in the row."""
    rest = text[offset : row_end(text, offset)].strip()
    return not rest or rest.startswith("#")


def _back_over_blanks(text: str, offset: int) -> int:
    while offset > 0 and text[offset - 1] in " \t":
        offset -= 1
    return offset


_TRIVIA = re.compile(r"(?:[\s\\]|#[^\r\n]*)*")


def past(text: str, offset: int, sign: str) -> int:
    """The end of a sign that follows, with nothing but white space and comments before it."""
    match = _TRIVIA.match(text, offset)
    assert match is not None
    if not text.startswith(sign, match.end()):
        raise NoFix
    return match.end() + len(sign)

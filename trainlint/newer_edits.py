"""Whether edits changed nothing else, for files whose syntax only libcst reads: newer than the running Python."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst

from trainlint.semantic import from_libcst
from trainlint.semantic.libcst_spans import node_spans
from trainlint.semantic.syntax import ParseError

_PARTS = (
    cst.BaseSmallStatement,
    cst.BaseCompoundStatement,
    cst.Else,
    cst.ExceptHandler,
    cst.ExceptStarHandler,
    cst.Finally,
    cst.MatchCase,
    cst.Decorator,
)


def untouched(text: str, spans: Sequence[tuple[int, int]]) -> list[str] | None:
    """The statements that no span touches, of a compound statement its header, each with its depth; None where the text
    does not parse."""
    try:
        tree = from_libcst.parse(text)
        parts = list(_parts(tree, 0))
        places = node_spans(tree, text, [node for node, _ in parts])
    except ParseError:
        return None
    found: list[str] = []
    for node, depth in parts:
        place = places.get(id(node))
        if place is None:
            continue
        start, end = place
        starts = [places[id(inner)][0] for inner, _ in _parts(node, 0, own=False) if id(inner) in places]
        own = text[start : min([end, *(s for s in starts if s > start)])].rstrip()
        row = max(text.rfind("\n", 0, start), text.rfind("\r", 0, start)) + 1
        code = row + len(text[row:start]) - len(text[row:start].lstrip())
        first_touched = start
        if start > code and any(first <= code and row <= last for first, last in spans):
            first_touched = row  # it stands behind another statement, and is indented with it
        if not any(first_touched <= last and first <= start + len(own) for first, last in spans):
            found.append(f"{depth} {own}")
    return found


def _parts(node: cst.CSTNode, depth: int, own: bool = True) -> Iterator[tuple[cst.CSTNode, int]]:
    """The statements in a node, itself included or not, with how deep they stand."""
    if own and isinstance(node, _PARTS):
        yield node, depth
    inner = depth + 1 if isinstance(node, (cst.IndentedBlock, cst.SimpleStatementSuite)) else depth
    for child in node.children:
        if isinstance(child, (cst.BaseStatement, cst.BaseSuite, *_PARTS)):
            yield from _parts(child, inner)

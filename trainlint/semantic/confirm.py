"""libcst as the parser of record: what the screen found is confirmed on libcst's tree of the same statement.

Rules are functions of the facts. So a finding of the screen is confirmed by lowering the top-level statement it lies in
from libcst and comparing: where both front ends give the same records, the rules would say the same. The finding then
gets its exact place, and its libcst node for a fix, from that tree.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from trainlint.findings import Place
from trainlint.records import NamedTuple
from trainlint.semantic.facts import Module, Record, Statement
from trainlint.semantic.same import same, syntax

if TYPE_CHECKING:
    import libcst as cst

LARGEST_STATEMENT = 1_000_000  # characters; a larger one is reported from the screen
MOST_RECORDS = 50_000


class Confirmed(NamedTuple):
    """A record of the screen, as libcst has it. `node` is None where libcst could not confirm it (then `place` is ast's)."""

    place: Place
    node: Any = None
    tree: cst.Module | None = None
    row: int = 1  # the row of the file at which `tree` starts


def confirm(text: str, module: Module, records: Iterable[Record]) -> dict[int, Confirmed]:
    """Places (and libcst nodes) of records of a module that `from_ast` made, by the `id` of the record."""
    wanted = list(records)
    groups: dict[tuple[int, int], list[Record]] = {}
    for record in wanted:
        groups.setdefault(_group(module, record), []).append(record)
    found: dict[int, Confirmed] = {}
    for (first, last), members in groups.items():
        found.update(_confirm_group(text, module.body[first : last + 1], members))
    left = [record for record in wanted if id(record) not in found]
    if left:
        from trainlint.semantic.positions import ast_places

        places = ast_places(text, left)
        found.update((id(record), Confirmed(places[id(record)])) for record in left)
    return found


def _group(module: Module, record: Record) -> tuple[int, int]:
    """The top-level statements (first and last index) on the rows of the one that a record lies in."""
    orders = [statement.order for statement in module.body]
    index = max(bisect_right(orders, _start(record)) - 1, 0)
    first = last = index
    while first > 0 and module.body[first - 1].node.end_lineno >= _first_row(module.body[first]):
        first -= 1
    while last + 1 < len(module.body) and _first_row(module.body[last + 1]) <= module.body[last].node.end_lineno:
        last += 1
    return first, last


def _start(record: Record) -> int:
    return record.order


def _first_row(statement: Statement) -> int:
    decorators = getattr(statement.node, "decorator_list", None)
    row: int = statement.node.lineno
    return min([row, *(d.lineno for d in decorators)]) if decorators else row


def _confirm_group(text: str, body: tuple[Statement, ...], members: list[Record]) -> dict[int, Confirmed]:
    from trainlint.semantic import from_libcst
    from trainlint.semantic.positions import libcst_places
    from trainlint.semantic.syntax import ParseError, split_rows_keeping_ends

    rows = split_rows_keeping_ends(text)
    first, last = _first_row(body[0]), body[-1].node.end_lineno
    part = "".join(rows[first - 1 : last])
    if len(part) > LARGEST_STATEMENT:
        return {}
    try:
        tree = from_libcst.parse(part)
        lowered = from_libcst.lower(tree)
        if not same(body, lowered):
            return {}
        twins = _twins(body, lowered, members)
        if len(twins) != len({id(m) for m in members}):
            return {}
        places = libcst_places(tree, part, twins.values(), first - 1)
    except ParseError:
        return {}
    return {key: Confirmed(places[id(twin)], twin.node, tree, first) for key, twin in twins.items()}


def _twins(left: object, right: object, members: list[Record]) -> dict[int, Record]:
    """For each member on the left, the record at the same spot on the right; nothing where there are too many records."""
    wanted = {id(m) for m in members}
    found: dict[int, Record] = {}
    stack: list[tuple[Any, Any]] = [(left, right)]
    count = 0
    while stack and len(found) < len(wanted):
        a, b = stack.pop()
        if isinstance(a, tuple):
            stack.extend(zip(a, b, strict=True))
        elif isinstance(a, Record):
            count += 1
            if count > MOST_RECORDS:
                return {}
            if id(a) in wanted:
                found[id(a)] = b
            stack.extend((getattr(a, name), getattr(b, name)) for name in syntax(type(a)))
    return found


def places_of_libcst_module(text: str, tree: cst.Module, records: Iterable[Record]) -> dict[int, Confirmed]:
    """As `confirm`, for a module that was lowered from libcst whole (its syntax is newer than the running Python)."""
    from trainlint.semantic.positions import libcst_places

    wanted = list(records)
    places = libcst_places(tree, text, wanted)
    return {id(r): Confirmed(places[id(r)], r.node, tree, 1) for r in wanted}

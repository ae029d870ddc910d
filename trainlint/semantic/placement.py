"""Where else in a file a thing could be said: the statements around a place, and what an object is called there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from trainlint.semantic.contexts import dotted_name
from trainlint.semantic.facts import (
    Attribute,
    Binding,
    Call,
    Context,
    Expr,
    For,
    Function,
    If,
    Match,
    Name,
    Record,
    Return,
    Statement,
    Try,
    While,
    With,
)

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

Path = tuple[Call, ...]


def chain(record: Record) -> list[Statement]:
    """The statements around (or at) a record within its function or file, outermost first. Empty in a lambda or class body."""
    context = record.context
    if isinstance(record, Statement) and record.context.kind == "class":
        return []
    function = context.function
    block: tuple[Statement, ...] = context.module.body if function is None else function.body
    if function is not None and function.name == "<lambda>":
        return []
    found: list[Statement] = []
    while block:
        at = [s for s in block if s.order <= record.order]
        if not at:
            break
        found.append(at[-1])
        if at[-1] is record:
            break
        inner = [b for b in blocks(at[-1]) if b and b[0].order <= record.order]
        block = inner[-1] if inner else ()
    return found


def blocks(statement: Statement) -> Iterator[tuple[Statement, ...]]:
    """The blocks of a compound statement in order, those of a definition left out."""
    if isinstance(statement, (If, For, While)):
        yield statement.body
        yield statement.orelse
    elif isinstance(statement, With):
        yield statement.body
    elif isinstance(statement, Try):
        yield statement.body
        yield from (handler.body for handler in statement.handlers)
        yield statement.orelse
        yield statement.final
    elif isinstance(statement, Match):
        yield from (case.body for case in statement.cases)


def nested(statement: Statement) -> Iterator[Statement]:
    """A statement and all in its blocks."""
    yield statement
    for block in blocks(statement):
        for inner in block:
            yield from nested(inner)


def own_statement(record: Record) -> Statement | None:
    """The innermost statement that a record stands in."""
    found = chain(record)
    return found[-1] if found else None


def beside(statement: Statement, record: Record) -> Statement | None:
    """The statement among those of one block (that of `statement`) that holds a record, None where none does."""
    return next((s for s in chain(record) if s.block is statement.block), None)


def common(records: Sequence[Record]) -> list[Statement]:
    """The statements of the innermost block that holds all of the records, one for each record."""
    chains = [chain(record) for record in records]
    if not all(chains):
        return []
    found: list[Statement] = []
    for level in zip(*chains, strict=False):
        if any(s.block is not level[0].block for s in level):
            break
        found = list(level)
    return found


def leaves(statements: Sequence[Statement]) -> bool:
    """Whether a `return` stands in them: what comes behind is then not reached for sure."""
    for statement in statements:
        if isinstance(statement, Return):
            return True
        if any(leaves(block) for block in blocks(statement)):
            return True
    return False


# ----------------------------------------------------------------------------------------------------------- names


def name_at(script: Script, expr: Expr | None, path: Path, place: Record) -> str | None:
    """How the object is written at a place that an expression, at the end of a path of calls, names; None where it cannot be told."""
    identity = script.semantics.steps.identity
    for _ in range(8):
        if expr is None:
            return None
        written = dotted_name(expr)
        if written is None:
            return None
        root = _root(expr)
        if expr.context.module is place.context.module and _means_the_same(root, place):
            return written
        if not isinstance(expr, Name):
            return None
        given = identity.argument(expr, path)
        if given is None:
            return None
        expr, path = given
    return None


def _root(expr: Expr) -> Name:
    while isinstance(expr, Attribute):
        expr = expr.value
    assert isinstance(expr, Name)
    return expr


def _means_the_same(name: Name, place: Record) -> bool:
    """Whether a name at its own place and at another one is the same variable, with the same value."""
    here, there = name.context.function, place.context.function
    if here is not None and _is_self(here, name.id):
        return there is here or (
            there is not None and there.cls is not None and there.cls is here.cls and _is_self(there, name.id)
        )
    own, other = scope_of(name.id, name.context), scope_of(name.id, place.context)
    if own is None or own is not other:
        return False
    bindings = [b for b in bindings_of(own, name.id) if b.how != "delete"]
    if here is not there:
        return len(bindings) == 1 and (own.kind == "module" or bindings[0].order < place.order)
    if own.function is not here:
        return True  # both see a variable of the same outer scope
    first, last = sorted((name.order, place.order))
    if any(first < b.order < last for b in bindings):
        return False
    before = [b for b in bindings if b.order < place.order]
    return any(place.context.within(b.context) for b in before)


def _is_self(function: Function, name: str) -> bool:
    return function.cls is not None and bool(function.parameters) and function.parameters[0].name == name


def scope_of(name: str, context: Context) -> Context | None:
    """The function or file whose variable a name is at a place; None for what neither binds."""
    for frame in context.frames():
        if frame.kind == "function" and name in frame.record.locals and name not in frame.record.outer_names:
            return frame
        if frame.kind == "module":
            return frame if name in frame.module.names else None
    return None


def bindings_of(scope: Context, name: str) -> list[Binding]:
    """Where a variable of a function or file gets its values."""
    if scope.kind == "function":
        found: list[Binding] = scope.record.locals.get(name, [])
        return found
    return scope.module.names.get(name, [])

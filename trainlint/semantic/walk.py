"""All expressions of a file, and those inside one."""

from __future__ import annotations

from collections.abc import Iterator

from trainlint.semantic.facts import (
    Assign,
    Attribute,
    Comprehension,
    Constant,
    Expr,
    For,
    Module,
    Name,
    Record,
    Sequence,
    Starred,
    Statement,
    Subscript,
    Walrus,
    With,
)


def expressions(where: Module | Record) -> Iterator[Expr]:
    """All expressions of a file in source order; an expression and every one below it; those in the head of a statement."""
    return iter(of_module(where)) if isinstance(where, Module) else inside(where)


def inside(record: Record) -> Iterator[Expr]:
    """An expression (or keyword, comprehension clause) and every expression below it."""
    stack: list[Record] = [record]
    while stack:
        current = stack.pop()
        if isinstance(current, Expr):
            yield current
        stack.extend(_children(current))


def of_module(module: Module) -> list[Expr]:
    """Every expression that stands in the file's statements, in source order."""
    found: list[Expr] | None = module.memo.get("expressions")
    if found is None:
        found = [e for statement in module.statements for e in inside(statement)]
        found.sort(key=lambda e: e.order)
        module.memo["expressions"] = found
    return found


def strings(module: Module) -> Iterator[tuple[Constant, str]]:
    """Every string in a file, with its text."""
    for expr in of_module(module):
        if isinstance(expr, Constant) and isinstance(expr.value, str):
            yield expr, expr.value


def root(expr: Expr) -> Expr:
    """`model` of `model.layers[0].weight`."""
    while isinstance(expr, (Attribute, Subscript)):
        expr = expr.value
    return expr


def names_read(module: Module) -> Iterator[Name]:
    """Every plain name in a file that is read, not assigned to."""
    bound = {id(name) for statement in module.statements for name in _bound(statement)}
    for expr in of_module(module):
        if isinstance(expr, Comprehension):
            bound.update(id(n) for g in expr.generators for n in _targets(g.target))
        elif isinstance(expr, Walrus):
            bound.add(id(expr.target))
    for expr in of_module(module):
        if isinstance(expr, Name) and id(expr) not in bound:
            yield expr


def _bound(statement: Statement) -> Iterator[Name]:
    """The names that a statement assigns to."""
    if isinstance(statement, Assign) and statement.op is None:
        for target in statement.targets:
            yield from _targets(target)
    elif isinstance(statement, For):
        yield from _targets(statement.target)
    elif isinstance(statement, With):
        for item in statement.items:
            if item.target is not None:
                yield from _targets(item.target)


def _targets(target: Expr) -> Iterator[Name]:
    if isinstance(target, Name):
        yield target
    elif isinstance(target, Sequence):
        for element in target.elements:
            yield from _targets(element)
    elif isinstance(target, Starred):
        yield from _targets(target.value)
    elif isinstance(target, Attribute):
        return


def _children(record: Record) -> Iterator[Record]:
    for part in record.parts:
        child = getattr(record, part)
        for one in child if isinstance(child, tuple) else (child,):
            if isinstance(one, Record) and not isinstance(one, Statement):
                yield one

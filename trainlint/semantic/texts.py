"""The strings of a file that are data: what a script runs, opens or compares with."""

from __future__ import annotations

from collections.abc import Iterator

from trainlint.semantic.facts import Call, Constant, Evaluate, Expr, FString, Keyword, Module, Record, Statement

_SHOWN = frozenset({"print", "write", "echo", "info", "debug", "warning", "error", "warn", "exit", "log"})
_DESCRIBES = frozenset({"help", "description", "epilog", "usage"})


def data_strings(module: Module) -> Iterator[tuple[Expr, str]]:
    """Every string with its text (of an f-string what stands between the values); no docstrings, and nothing that is
    only shown to people: help texts, prints, exceptions."""
    for statement in module.statements:
        if isinstance(statement, Evaluate) and isinstance(statement.value, Constant):
            continue
        stack: list[Record] = [statement]
        while stack:
            current = stack.pop()
            if isinstance(current, Constant) and isinstance(current.value, str):
                yield current, current.value
            elif isinstance(current, FString):
                yield current, current.text
            if _is_shown(current):
                continue
            for part in current.parts:
                child = getattr(current, part)
                for one in child if isinstance(child, tuple) else (child,):
                    if isinstance(one, Record) and not isinstance(one, Statement):
                        stack.append(one)


def _is_shown(record: Record) -> bool:
    if isinstance(record, Keyword):
        return record.name in _DESCRIBES
    attr = record.attr or "" if isinstance(record, Call) else ""
    return attr in _SHOWN or attr.endswith(("Error", "Warning", "Exception"))

"""Code that only some versions of a library run: import fallbacks, version tests, `hasattr`."""

from __future__ import annotations

import re

from trainlint.patterns_on_use import Pattern
from trainlint.semantic.contexts import dotted_name
from trainlint.semantic.facts import Assign, Attribute, Call, Context, Expr, Import, Name, Sequence, Try
from trainlint.semantic.walk import expressions

_VERSION = Pattern(
    r"version|^(?:IS_)?(?:TORCH|PT|PYTORCH)_?(?:\d|GE|GT|LT|LE|VER|AT_LEAST|BEFORE|AFTER)|torch_?(?:ge|gt|lt|le)_?\d",
    re.I,
)
_IMPORT_ERRORS = frozenset({"ImportError", "ModuleNotFoundError", "AttributeError"})


def depends_on_version(context: Context) -> bool:
    """Whether a place stands in a branch, or a try with a way out, that a version of the library decides about."""
    for frame in context.frames():
        if frame.kind == "branch" and frame.test is not None and asks_version(frame.test):
            return True
        if frame.kind == "except" and _catches_import(frame.record.type):
            return True
        if frame.kind == "try" and isinstance(frame.record, Try):
            if any(_catches_import(h.type, _only_imports(frame.record)) for h in frame.record.handlers):
                return True
    return False


def is_second_choice(context: Context) -> bool:
    """Whether a place is what runs where an import or attribute is missing, or where a version test says so."""
    for frame in context.frames():
        if frame.kind == "branch" and frame.test is not None and asks_version(frame.test):
            return True
        if frame.kind == "except" and _catches_import(frame.record.type):
            return True
    return False


def asks_version(test: Expr) -> bool:
    """`torch.__version__ >= "2.0"`, `hasattr(torch, "compile")`, `TORCH_2_4`"""
    for part in expressions(test):
        if isinstance(part, Call) and part.attr in ("hasattr", "find_spec"):
            return True
        word = part.id if isinstance(part, Name) else part.attr if isinstance(part, (Attribute, Call)) else None
        if word and _VERSION.search(word):
            return True
    return False


def _only_imports(statement: Try) -> bool:
    return all(isinstance(s, (Import, Assign)) for s in statement.body)


def _catches_import(type_: Expr | None, broad: bool = True) -> bool:
    """Whether a handler is for what is missing; one that catches everything only where `broad`."""
    if type_ is None:
        return broad
    names = type_.elements if isinstance(type_, Sequence) else (type_,)
    caught = {(dotted_name(n) or "").rpartition(".")[2] for n in names}
    return bool(caught & _IMPORT_ERRORS) or (broad and bool(caught & {"Exception", "BaseException"}))

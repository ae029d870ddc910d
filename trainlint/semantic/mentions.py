"""What the code of a program speaks of: names, attributes, keywords and strings, without comments, docstrings and
imports that nobody uses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.semantic import walk
from trainlint.semantic.facts import Attribute, Call, Constant, Evaluate, Expr, Module, Name

if TYPE_CHECKING:
    from trainlint.patterns_on_use import Words
    from trainlint.semantic.script import Script


def mentions(script: Script, pattern: Words) -> Iterator[Expr]:
    """Every such word of the program in which the pattern is found, in the files in whose text it stands.

    A pattern for `torch.half` finds the attribute of torch, and no option of that name.
    """
    words = re.compile(pattern.pattern.decode("ascii"))
    for module in script.semantics.program.modules(script.module, pattern):
        docstrings = {id(s.value) for s in module.statements if isinstance(s, Evaluate)}
        for expr in _of(module):
            if id(expr) not in docstrings and any(words.search(word) for word in _words(script, expr)):
                yield expr


def _of(module: Module) -> Iterator[Expr]:
    yield from walk.of_module(module)
    for function in module.functions:
        for decorator in function.decorators:
            yield from walk.inside(decorator)


def _words(script: Script, expr: Expr) -> Iterator[str]:
    """What an expression adds to those inside it; for a name or attribute also what it is called outside."""
    if isinstance(expr, (Name, Attribute)):
        yield expr.id if isinstance(expr, Name) else expr.attr
        full = script.name_of(expr)
        if full is not None:
            yield full
    elif isinstance(expr, Constant) and isinstance(expr.value, str):
        yield expr.value
    elif isinstance(expr, Call):
        yield from (k.name for k in expr.keywords if k.name is not None)

"""Whether what a loop computes with a model leaves it with its autograd graph, for somebody who may need it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.patterns_on_use import Pattern
from trainlint.semantic import placement, walk
from trainlint.semantic.contexts import is_self
from trainlint.semantic.facts import (
    Assign,
    Attribute,
    Call,
    Compare,
    Comprehension,
    Conditional,
    Expr,
    For,
    Function,
    Lambda,
    Name,
    Sequence,
    Starred,
    Statement,
    Subscript,
    While,
)
from trainlint.semantic.graphs import may_have_graph
from trainlint.semantic.work import FORWARD

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_ROUNDS = 8
_KEEPS = frozenset("append appendleft extend insert add update setdefault".split())
_PLAIN = frozenset("eq ne gt lt ge le argsort long int bool isnan isfinite dim numel nelement backward".split())
_NUMBERS = frozenset("float int bool len str print isinstance repr range".split())
_EVALUATES = Pattern(r"(?:^|_)(?:eval\w*|valid\w*|val|test\w*|predict\w*|infer\w*)(?:_|$)", re.I)


def may_be_needed(script: Script, loop: For | While | Comprehension, whole: bool) -> bool:
    """Whether the function around the loop gives back, or keeps on `self`, what has a graph; or, if not the `whole` of it
    is meant, uses it below the loop. Functions that are named after evaluation are trusted: who calls them wants numbers."""
    function = loop.context.function
    if function is None or _EVALUATES.search(function.name):
        return False
    return _Leaving(script, function).found(None if whole else loop)


class _Leaving:
    def __init__(self, script: Script, function: Function) -> None:
        self.script = script
        self.function = function
        self.statements = [s for s in function.module.statements if s.context.within(function.inner)]
        self.names: set[str] = set()
        self.kept = False

    def found(self, loop: For | While | Comprehension | None) -> bool:
        for _ in range(_ROUNDS):
            before = len(self.names)
            for statement in self.statements:
                self._follow(statement)
            if len(self.names) == before:
                break
        if self.kept or any(r.value is not None and self._carries(r.value) for r in self.function.returns):
            return True
        if loop is None:
            return False
        own = placement.own_statement(loop)
        inside = {id(s) for s in placement.nested(own)} if own is not None else set()
        below = [s for s in self.statements if s.order > loop.order and id(s) not in inside]
        return any(self._carries(e) for s in below for e in _heads(s))

    def _follow(self, statement: Statement) -> None:
        if isinstance(statement, Assign) and statement.value is not None and self._carries(statement.value):
            for target in statement.targets:
                self._mark(target)
        elif isinstance(statement, For) and self._carries(statement.iter):
            self._mark(statement.target)
        for expr in walk.inside(statement):
            if isinstance(expr, Call) and expr.attr in _KEEPS and expr.receiver is not None:
                if any(self._carries(given) for given in _given(expr)):
                    self._mark(expr.receiver)

    def _mark(self, target: Expr) -> None:
        if isinstance(target, Name):
            self.names.add(target.id)
        elif isinstance(target, Sequence):
            for element in target.elements:
                self._mark(element)
        elif isinstance(target, (Starred, Subscript)):
            self._mark(target.value)
        elif isinstance(target, Attribute) and is_self(target.value, target.context):
            self.kept = True

    def _carries(self, expr: Expr) -> bool:
        """Whether an expression may hang on the graph of a forward in this function."""
        if isinstance(expr, Name):
            return expr.id in self.names
        if isinstance(expr, (Compare, Lambda)) or self.script.semantics.lineage.cut(expr):
            return False
        if isinstance(expr, Call):
            if expr.attr in _PLAIN or (isinstance(expr.callee, Name) and expr.callee.id in _NUMBERS):
                return False
            if not may_have_graph(self.script, expr):
                return False
            work = self.script.semantics.work
            if work.kind(expr) == FORWARD or FORWARD in work.of_call(expr).once:
                return True
            return any(self._carries(part) for part in (*_given(expr), expr.callee))
        if isinstance(expr, Conditional):
            return self._carries(expr.body) or self._carries(expr.orelse)
        return any(self._carries(child) for child in _below(expr))


def _given(call: Call) -> list[Expr]:
    return [*call.args, *(k.value for k in call.keywords)]


def _heads(statement: Statement) -> Iterator[Expr]:
    """The outermost expressions that a statement reads, without those of its blocks."""
    for part in statement.parts:
        if part != "targets":
            child = getattr(statement, part)
            yield from (one for one in (child if isinstance(child, tuple) else (child,)) if isinstance(one, Expr))


def _below(expr: Expr) -> Iterator[Expr]:
    for part in expr.parts:
        child = getattr(expr, part)
        for one in child if isinstance(child, tuple) else (child,):
            if isinstance(one, Expr):
                yield one
            elif one is not None and hasattr(one, "iter"):
                yield one.iter

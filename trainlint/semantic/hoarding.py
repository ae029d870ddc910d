"""Batches that a loop keeps as they came from the loader."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.patterns_on_use import Pattern
from trainlint.semantic.bindings import lookup
from trainlint.semantic.contexts import dotted_name
from trainlint.semantic.facts import (
    Attribute,
    Call,
    Comprehension,
    Constant,
    Expr,
    For,
    Function,
    Module,
    Name,
    Sequence,
    Subscript,
)
from trainlint.semantic.values import Number, Text, each

if TYPE_CHECKING:
    from trainlint.semantic.feeding import Feed
    from trainlint.semantic.script import Script

_JOINS = frozenset({"cat", "stack", "concat", "concatenate", "vstack", "hstack", "pad_sequence"})
_STRINGS = Pattern(r"path|name|file|text|caption|sentence|meta|string|(?:^|_)ids?$|uid|key|url|title|info", re.I)


def kept_as_is(script: Script, feed: Feed) -> Iterator[tuple[Expr, Expr]]:
    """What a loop puts into a list that outlives its turns without a copy, with the tensor that is kept."""
    record = feed.record
    if isinstance(record, Comprehension):
        if record.kind == "list" and len(record.generators) == 1 and not record.generators[0].conditions:
            targets = _names(record.generators[0].target)
            if _is_part(script, record.element, targets) and _joined(script, record, feed.module):
                yield record, record.element
        return
    if not isinstance(record, For) or feed.frame is None:
        return
    targets = _names(record.target)
    for call in script.semantics.loops.calls_of(feed.frame):
        if call.attr != "append" or call.receiver is None or len(call.args) != 1 or not call.context.within(feed.frame):
            continue
        if any(f.kind == "branch" for f in call.context.local_frames() if f.within(feed.frame)):
            continue
        value = call.args[0]
        if not _is_part(script, value, targets) or not _outlives(call.receiver, feed):
            continue
        if _joined(script, call.receiver, feed.module):
            yield call, value


def _names(target: Expr) -> set[str]:
    if isinstance(target, Name):
        return {target.id}
    if isinstance(target, Sequence):
        return {n for e in target.elements for n in _names(e)}
    return set()


def _is_part(script: Script, expr: Expr, targets: set[str]) -> bool:
    """A name that the loop binds, or a field of it, never assigned anew: the very tensor that the worker made."""
    current = expr
    while isinstance(current, Subscript):
        if not isinstance(current.index, Constant):
            return False
        if isinstance(current.index.value, str) and _STRINGS.search(current.index.value):
            return False
        current = current.value
    if not isinstance(current, Name) or current.id not in targets or _STRINGS.search(current.id):
        return False
    if any(isinstance(v, (Number, Text)) for v in each(script.value(expr))):
        return False
    bindings, _ = lookup(current, current.id)
    return all(b.how == "for" for b in bindings)


def _outlives(receiver: Expr, feed: Feed) -> bool:
    """The list is not made anew inside the loop."""
    root = receiver
    while isinstance(root, (Subscript, Attribute)):
        root = root.value
    if not isinstance(root, Name):
        return False
    bindings, bound = lookup(root, root.id)
    return bound and feed.frame is not None and not any(b.context.within(feed.frame) for b in bindings)


def _joined(script: Script, kept: Expr, module: Module) -> bool:
    """Proof that the list holds tensors: something in the same function or class joins tensors of a list of that name,
    or of names that go through it."""
    function, cls = kept.context.function, kept.context.cls
    names = _list_names(kept, function, module)
    for name in _JOINS:
        for call in module.calls_by_attr.get(name, ()):
            if not call.args or not (script.name_of(call.callee) or "").startswith("torch."):
                continue
            here = call.context.function is function or (cls is not None and call.context.cls is cls)
            if here and _reads(call.args[0], names):
                return True
    return False


def _list_names(kept: Expr, function: Function | None, module: Module) -> set[str]:
    """The names that the list goes by, and those of loops over it."""
    names: set[str] = set()
    scope = function.locals if function is not None else module.names
    if isinstance(kept, Comprehension):
        names = {n for n, bindings in scope.items() if any(b.value is kept for b in bindings)}
    else:
        root = kept
        while isinstance(root, Subscript):
            root = root.value
        dotted = dotted_name(root)
        if dotted is not None:
            names = {dotted}
    for name, bindings in scope.items():
        if any(b.how == "for" and b.value is not None and _reads(b.value, names) for b in bindings):
            names = names | {name}
    return names


def _reads(expr: Expr, names: set[str]) -> bool:
    stack = [expr]
    while stack:
        current = stack.pop()
        if isinstance(current, (Name, Attribute)) and dotted_name(current) in names:
            return True
        if isinstance(current, Comprehension):
            stack.append(current.element)
            stack.extend(g.iter for g in current.generators)
        elif isinstance(current, (Subscript, Attribute)):
            stack.append(current.value)
        elif isinstance(current, Call):
            stack.extend(current.args)
            if current.receiver is not None:
                stack.append(current.receiver)
    return False

"""Epoch loops and the names at their head: which of them holds the sampler that is drawn from in the loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainlint.semantic import loading, sharding, walk
from trainlint.semantic.contexts import dotted_name, is_self
from trainlint.semantic.facts import Attribute, Binding, Call, Conditional, Constant, Context, Expr, Name
from trainlint.semantic.feeding import Feed
from trainlint.semantic.values import Const, Object, each

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_DEEPEST = 4
_PASS_ON = ("enumerate", "tqdm", "iter")  # what is iterated is their first argument


def sampler_at(script: Script, feed: Feed, loader: Call, loop: Context) -> tuple[str, bool] | None:
    """An expression that holds the distributed sampler of a loader at the head of a loop, and whether it may be None."""
    given = loader.argument(loading.position("sampler"), "sampler")
    if given is None or not _is_sharded(script, loader):
        return None
    may_be_none = _may_be_none(script, given)
    if isinstance(given, Name) and _holds_still(given, loader, loop):
        return given.id, may_be_none
    if _is_attribute(given) and given.context.cls is loop.cls and _is_of_method(loop, loader):
        return dotted_name(given) or "", may_be_none
    for other in feed.loaders:
        own = other.argument(loading.position("sampler"), "sampler")
        if own is None or _may_be_none(script, own) or not _is_sharded(script, other):
            return None
    for expr in walk.of_module(loop.module):
        if isinstance(expr, Name) and _is_one_of(script, expr, feed) and expr.context.within(loop):
            if expr.context.function is loop.function and _is_one_value(expr.id, loop):
                return f"{expr.id}.sampler", False
    drawn = _drawn(feed.expr)
    if drawn is not None and _is_attribute(drawn) and drawn.context.cls is loop.cls and _is_of_method(loop, drawn):
        return f"{dotted_name(drawn)}.sampler", False
    return None


def _is_one_of(script: Script, name: Name, feed: Feed) -> bool:
    """Whether a name holds one of the loaders that are drawn from at a place, whatever the way there."""
    values = list(each(script.value(name)))
    return bool(values) and all(isinstance(v, Object) and any(v.call is c for c in feed.loaders) for v in values)


def _is_sharded(script: Script, loader: Call) -> bool:
    """Whether the sampler of a loader is a distributed one, or None."""
    held = loading.option(script, loader, "sampler")
    return held is not None and all(
        sharding.is_distributed_sampler(v) or (isinstance(v, Const) and v.value is None) for v in each(held)
    )


def _may_be_none(script: Script, expr: Expr, depth: int = 0) -> bool:
    """Whether some way gives None, or not all ways are seen: `DistributedSampler(data) if distributed else None`."""
    if depth > _DEEPEST or isinstance(expr, Constant):
        return True
    if isinstance(expr, Conditional):
        return any(_may_be_none(script, arm, depth + 1) for arm in (expr.body, expr.orelse))
    if isinstance(expr, Call):
        functions = script.callees(expr)
        if all(f.name == "__init__" for f in functions):
            return False
        returned = [r.value for f in functions for r in f.returns]
        return any(value is None or _may_be_none(script, value, depth + 1) for value in returned)
    found = loading.definitions(script, expr)
    return not found or any(
        b.how != "assign" or b.path or b.value is None or _may_be_none(script, b.value, depth + 1) for b in found
    )


def _drawn(expr: Expr) -> Expr | None:
    while isinstance(expr, Call):
        if expr.attr not in _PASS_ON or not expr.args:
            return None
        expr = expr.args[0]
    return expr


def _is_attribute(expr: Expr) -> bool:
    """`self.loader`"""
    return isinstance(expr, Attribute) and is_self(expr.value, expr.context)


def _is_of_method(loop: Context, other: Expr) -> bool:
    """Whether `self` is the same name in both: methods of one class, not nested functions."""
    here, there = loop.function, other.context.function
    if here is None or there is None or here.cls is None or here.cls is not there.cls:
        return False
    return bool(here.parameters) and bool(there.parameters) and here.parameters[0].name == there.parameters[0].name


def _scope(name: str, loop: Context) -> list[Binding]:
    """The bindings of a name in the scope that the loop stands in; none where it comes from outside of it."""
    if loop.function is not None:
        return loop.function.locals.get(name, [])
    return loop.module.names.get(name, [])


def _holds_still(name: Name, loader: Call, loop: Context) -> bool:
    """Whether a name that is handed to a loader still holds the same at a loop of the same scope."""
    if loader.context.function is not loop.function or loader.context.module is not loop.module:
        return False
    bindings = _scope(name.id, loop)
    if loop.function is not None and name.id in loop.function.outer_names:
        return False
    return bool(bindings) and all(b.order < loader.order < loop.record.order for b in bindings)


def _is_one_value(name: str, loop: Context) -> bool:
    """Whether a name is bound before the loop and not in it."""
    bindings = _scope(name, loop)
    return bool(bindings) and all(b.order < loop.record.order for b in bindings)


def is_read(name: str, loop: Context) -> bool:
    return any(e.id == name and e.context.within(loop) for e in walk.names_read(loop.module))


def is_unused(name: str, loop: Context) -> bool:
    """Whether no code of the function around a loop, or of the module, speaks of a name."""
    return not any(
        isinstance(e, Name) and e.id == name and (loop.function is None or e.context.function is loop.function)
        for e in walk.of_module(loop.module)
    )

"""Loaders that are built again on every turn of the loop that draws from them, though nothing about them changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainlint.semantic.contexts import dotted_name, is_self
from trainlint.semantic.facts import (
    Attribute,
    Call,
    Comprehension,
    Context,
    Expr,
    Function,
    Keyword,
    Lambda,
    Name,
    Record,
)
from trainlint.semantic.values import External, Object, Type, each

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


def loop_that_rebuilds(script: Script, loader: Call) -> Context | None:
    """The loop that builds a loader with the same arguments on each turn and iterates it once."""
    feeding = script.feeding
    feeds = feeding.feeds(loader)
    for frame, calls in _nearest(script, loader.context):
        if isinstance(frame.record, Comprehension) or feeding.names_phases(frame) or _guarded(loader, frame):
            continue
        for feed in feeds:
            around = [f for f, _ in feeding.around(feed.outside)]
            if not around or around[0] is not frame:
                continue
            if _builds_model(script, frame) or _differs(script, loader, frame, calls):
                continue
            if feed.phase == "train" or _trains_around(script, frame, feed.phase):
                return frame
    return None


def _nearest(script: Script, context: Context) -> list[tuple[Context, tuple[Call, ...]]]:
    """The innermost loop around a place on each way that leads there."""
    found: list[tuple[Context, tuple[Call, ...]]] = []
    ways: set[tuple[int, ...]] = set()
    for frame, calls in script.feeding.around(context):
        way = tuple(id(c) for c in calls)
        # a longer way through a call that was met before lies further out
        if not any(way[: len(w)] == w for w in ways):
            ways.add(way)
            found.append((frame, calls))
    return found


def _guarded(loader: Call, frame: Context) -> bool:
    """Under a condition: perhaps it is not built on each turn."""
    for inner in loader.context.frames():
        if inner is frame:
            return False
        if inner.kind in ("branch", "except", "case"):
            return True
    return False


def _trains_around(script: Script, frame: Context, phase: str) -> bool:
    """The loop is one that trains: an evaluation loader built again after each epoch."""
    from trainlint.semantic.work import BACKWARD

    done = script.semantics.work.within(script.semantics.loops.calls_of(frame), frame)
    return phase in ("eval", "other") and BACKWARD in done.once | done.looped


def _builds_model(script: Script, frame: Context) -> bool:
    """Each turn is a run of its own: a model or optimizer is made in it."""
    for call in script.semantics.loops.calls_of(frame):
        if call.context.within(frame):
            for value in each(script.value(call)):
                if isinstance(value, Object) and value.call is call and value.role in ("optimizer", "module"):
                    return True
    return False


def _differs(script: Script, loader: Call, frame: Context, calls: tuple[Call, ...]) -> bool:
    """Whether an argument of the loader may be another thing on another turn of the loop.

    Follows names up the calls that lead from the loader to the loop; what is bound inside the loop may differ.
    """
    if _is_used(script, loader, frame):
        return True
    wanted: list[Expr] = [*loader.args, *(k.value for k in loader.keywords)]
    place: Call | None = loader
    for call in (*calls, None):
        function = place.context.function if place is not None else None
        names, fixed = _free_names(script, wanted, function if call is not None else None, frame)
        if not fixed:
            return True
        if call is None:
            return False
        wanted = _passed(script, function, call, names)
        place = call
    return False


def _is_used(script: Script, loader: Call, frame: Context) -> bool:
    """The loop calls a method of the dataset, which may change it: `dataset.resample()`."""
    dataset = loader.argument(0, "dataset")
    dotted = dotted_name(dataset) if dataset is not None else None
    if dotted is None:
        return False
    places = [frame] if loader.context.within(frame) else [frame, loader.context]
    for place in places:
        for call in script.semantics.loops.calls_of(place):
            if call.receiver is not None and dotted_name(call.receiver) == dotted:
                if place is not frame or call.context.within(frame):
                    return True
    return False


def _free_names(script: Script, wanted: list[Expr], function: Function | None, frame: Context) -> tuple[set[str], bool]:
    """The parameters that expressions depend on, and whether everything else about them is the same on each turn."""
    parameters: set[str] = set()
    stack: list[Record] = list(wanted)
    seen: set[int] = set()
    while stack:
        current = stack.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        if isinstance(current, Lambda):
            continue
        if isinstance(current, Name):
            scope = current.context.function
            bindings = (
                scope.locals.get(current.id, [])
                if scope is not None
                else current.context.module.names.get(current.id, [])
            )
            for binding in bindings:
                if binding.how == "parameter":
                    parameters.add(current.id)
                elif function is None:
                    # in the loop's own function: what the loop binds may differ
                    if binding.context.within(frame):
                        return parameters, False
                elif binding.how == "assign" and binding.value is not None and not binding.path:
                    stack.append(binding.value)
                elif binding.how not in ("import", "define"):
                    return parameters, False
            continue
        if isinstance(current, Attribute):
            if is_self(current.value, current.context):
                cls = current.context.cls
                if cls is None or any(_changes(b.context.function) for b in cls.attributes.get(current.attr, [])):
                    return parameters, False
                continue
        elif isinstance(current, Call) and not _is_constructor(script, current):
            return parameters, False
        for part in current.parts:
            child = getattr(current, part)
            stack.extend(c for c in (child if isinstance(child, tuple) else (child,)) if isinstance(c, (Expr, Keyword)))
    return parameters, True


def _changes(function: Function | None) -> bool:
    return function is not None and function.name not in ("__init__", "setup", "__post_init__")


def _is_constructor(script: Script, call: Call) -> bool:
    """A class, `len(...)`: nothing that may draw or read something else each time."""
    for value in each(script.value(call.callee)):
        if isinstance(value, Type):
            continue
        if isinstance(value, External):
            last = value.name.rpartition(".")[2]
            if last in ("len", "int", "dict", "min", "max", "cpu_count", "is_available", "partial", "range"):
                continue
            if last[:1].isupper() and not last.endswith("Sampler") and last != "Generator":
                continue
        return False
    return True


def _passed(script: Script, function: Function | None, call: Call, names: set[str]) -> list[Expr]:
    """The arguments of a call for these parameters of the function that it enters."""
    if function is None:
        return []
    found: list[Expr] = []
    for site in script.inference.callgraph.callers(function):
        if site.call is not call:
            continue
        for parameter in function.parameters:
            if parameter.name in names:
                argument = site.argument(function, parameter)
                if isinstance(argument, Expr):
                    found.append(argument)
                elif function.parameters[0] is parameter and function.cls is not None and call.receiver is not None:
                    continue
    return found

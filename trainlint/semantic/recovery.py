"""What is done inside the handlers of out-of-memory errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.records import NamedTuple
from trainlint.semantic.contexts import dotted_name
from trainlint.semantic.facts import (
    Call,
    Constant,
    Context,
    Evaluate,
    Expr,
    Function,
    Handler,
    If,
    Jump,
    Raise,
    Return,
    Sequence,
    Try,
)
from trainlint.semantic.values import External, Routine, each
from trainlint.semantic.work import BACKWARD, FORWARD, STEP

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_OUT_OF_MEMORY = frozenset(
    {"torch.cuda.OutOfMemoryError", "torch.OutOfMemoryError", "torch.cuda.memory.OutOfMemoryError"}
)
_GENERAL = frozenset({"RuntimeError"})
_EMPTY = frozenset(
    {"torch.cuda.empty_cache", "torch.cuda.memory.empty_cache", "torch.xpu.empty_cache", "torch.mps.empty_cache"}
)


class Recovery(NamedTuple):
    call: Call
    handler: Handler


def inside_handlers(script: Script) -> Iterator[Recovery]:
    """For each handler of memory errors the first call in it that empties the cache or tries again."""
    for statement in script.module.statements:
        if not isinstance(statement, Try):
            continue
        for handler in statement.handlers:
            kind = _kind(script, handler)
            if kind is None:
                continue
            calls = [c for c in script.module.calls if _stands_in(c.context, handler)]
            if _raises_again(handler):
                calls = [c for c in calls if _leaves(c, handler)]
            emptied = [c for c in calls if _empties(script, c)]
            about_memory = (
                kind == "memory" or bool(emptied) or any(_speaks_of_memory(c) for c in _tests(handler, calls))
            )
            if not about_memory:
                continue
            for call in calls:
                if call in emptied or _tries_again(script, call, statement):
                    yield Recovery(call, handler)
                    break


def _kind(script: Script, handler: Handler) -> str | None:
    """ "memory", "general" (a RuntimeError may be one), or None."""
    if handler.type is None:
        return None
    kinds: set[str] = set()
    for part in handler.type.elements if isinstance(handler.type, Sequence) else (handler.type,):
        for value in each(script.value(part)):
            if isinstance(value, External) and value.name in _OUT_OF_MEMORY:
                kinds.add("memory")
            elif isinstance(value, External) and value.name in _GENERAL:
                kinds.add("general")
    return "memory" if "memory" in kinds else "general" if kinds else None


def _raises_again(handler: Handler) -> bool:
    """The block ends with a raise."""
    return bool(handler.body) and isinstance(handler.body[-1], Raise)


def _leaves(call: Call, handler: Handler) -> bool:
    """A call in a branch of the handler that ends with `continue` or `return`: the raise behind it is not for that way."""
    for frame in call.context.local_frames():
        if frame.kind == "except" and frame.record is handler:
            return False
        if frame.kind == "branch" and isinstance(frame.record, If) and not frame.rest:
            block = frame.record.orelse if frame.negated else frame.record.body
            if block and isinstance(block[-1], (Jump, Return)) and getattr(block[-1], "kind", "") != "pass":
                return True
    return False


def _stands_in(context: Context, handler: Handler) -> bool:
    return any(frame.kind == "except" and frame.record is handler for frame in context.local_frames())


def _tests(handler: Handler, calls: list[Call]) -> Iterator[Expr]:
    """The handler's conditions: `if "out of memory" in str(error)`."""
    yield from calls
    stack = list(handler.body)
    while stack:
        statement = stack.pop()
        test = getattr(statement, "test", None)
        if test is not None:
            yield test
        for part in ("body", "orelse"):
            stack.extend(getattr(statement, part, ()) if not isinstance(statement, Evaluate) else ())


def _speaks_of_memory(expr: Expr) -> bool:
    stack: list[Expr] = [expr]
    while stack:
        current = stack.pop()
        if isinstance(current, Constant) and isinstance(current.value, str) and "memory" in current.value.lower():
            return True
        for part in current.parts:
            child = getattr(current, part)
            stack.extend(c for c in (child if isinstance(child, tuple) else (child,)) if isinstance(c, Expr))
    return False


def _empties(script: Script, call: Call) -> bool:
    return call.attr == "empty_cache" and any(
        isinstance(v, External) and v.name in _EMPTY for v in each(script.value(call.callee))
    )


def _tries_again(script: Script, call: Call, attempt: Try) -> bool:
    """The call runs the model, repeats what the failed block called, or calls the function around it once more."""
    work = script.semantics.work.of_call(call)
    if (work.once | work.looped) & {FORWARD, BACKWARD, STEP}:
        return True
    function = call.context.function
    targets: list[Function] = [v.function for v in each(script.value(call.callee)) if isinstance(v, Routine)]
    if function is not None and any(t is function for t in targets):
        return True
    name = dotted_name(call.callee)
    if name is None or not targets:
        return False
    return any(
        dotted_name(c.callee) == name
        for c in script.module.calls
        if any(f.kind == "try" and f.record is attempt for f in c.context.local_frames())
    )

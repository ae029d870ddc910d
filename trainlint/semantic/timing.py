"""Host clocks read around device work: what runs between two readings, and whether anything waits for it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.patterns_on_use import Pattern
from trainlint.records import NamedTuple
from trainlint.semantic import transfers
from trainlint.semantic.contexts import dotted_name
from trainlint.semantic.facts import Assign, Call, Expr, For, Name, Operator, Statement, While
from trainlint.semantic.values import Batch, External, Routine, Tensor, Unknown, each
from trainlint.semantic.walk import expressions
from trainlint.semantic.work import BACKWARD, FORWARD, STEP

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_CLOCKS = frozenset(
    {f"time.{n}{s}" for n in ("time", "perf_counter", "monotonic", "process_time") for s in ("", "_ns")}
    | {"timeit.default_timer"}
)
_WAITS = frozenset(
    "item cpu numpy tolist synchronize nonzero nms batched_nms unique masked_select wait barrier "
    "elapsed_time result join".split()
)
_SPEAKS_OF_WAITING = Pattern(r"sync|wait|block_until", re.I)
_READS = frozenset({"float", "int", "bool", "print", "str"})
_DEEPEST = 4


class Reading(NamedTuple):
    """`end`: the second reading; `work`: the one piece of device work between it and `start`; `kind` in words."""

    start: Call
    end: Call
    work: Call
    kind: str


def unsynchronized(script: Script) -> Iterator[Reading]:
    """Pairs of clock readings around one piece of device work that nothing waits for."""
    for start, name in _starts(script):
        statement = start.statement
        for later in statement.block[statement.index + 1 :]:
            if (
                isinstance(later, Assign)
                and any(dotted_name(t) == name for t in later.targets)
                and not _reads_clock(script, later)
            ):
                break
            end = _end(script, later, name)
            if end is None:
                if _rebinds(later, name):
                    break
                continue
            between = statement.block[statement.index + 1 : later.index]
            found = _single_work(script, between)
            if found is not None:
                yield Reading(start, end, *found)
            break


def _is_clock(script: Script, call: Call) -> bool:
    return not call.args and any(isinstance(v, External) and v.name in _CLOCKS for v in each(script.value(call.callee)))


def _starts(script: Script) -> Iterator[tuple[Call, str]]:
    """`start = time.time()`"""
    for statement in script.module.statements:
        if isinstance(statement, Assign) and isinstance(statement.value, Call) and _is_clock(script, statement.value):
            for target in statement.targets:
                name = dotted_name(target)
                if name is not None:
                    yield statement.value, name


def _reads_clock(script: Script, statement: Statement) -> bool:
    return any(isinstance(e, Call) and _is_clock(script, e) for e in expressions(statement))


def _rebinds(statement: Statement, name: str) -> bool:
    return isinstance(statement, Assign) and any(dotted_name(t) == name for t in statement.targets)


def _end(script: Script, statement: Statement, name: str) -> Call | None:
    """The second reading in a statement: `time.time() - start`, or `end = time.time()` with `end - start` somewhere."""
    for expr in expressions(statement):
        if isinstance(expr, Operator) and expr.op == "-" and len(expr.operands) == 2:
            left, right = expr.operands
            if isinstance(left, Call) and _is_clock(script, left) and dotted_name(right) == name:
                return left
    if isinstance(statement, Assign) and isinstance(statement.value, Call) and _is_clock(script, statement.value):
        ends = {dotted_name(t) for t in statement.targets}
        if name not in ends and _is_subtracted(statement, ends, name):
            return statement.value
    return None


def _is_subtracted(statement: Statement, ends: set[str | None], name: str) -> bool:
    for other in statement.block[statement.index + 1 :]:
        stack: list[Statement] = [other]
        while stack:
            current = stack.pop()
            for expr in expressions(current):
                if isinstance(expr, Operator) and expr.op == "-" and len(expr.operands) == 2:
                    if dotted_name(expr.operands[0]) in ends and dotted_name(expr.operands[1]) == name:
                        return True
            for part in ("body", "orelse"):
                stack.extend(s for s in getattr(current, part, ()) if isinstance(s, Statement))
    return False


def _single_work(script: Script, between: tuple[Statement, ...]) -> tuple[Call, str] | None:
    """The one kind of asynchronous device work in some statements, when no statement is a loop and nothing waits."""
    found: list[tuple[Call, str]] = []
    for statement in between:
        if isinstance(statement, (For, While)):
            return None
        calls = [c for c in script.module.calls if _is_in(c, statement)]
        for call in sorted(calls, key=lambda c: c.order):
            if waits(script, call, 0) or (found and _copies_and_waits(script, call)):
                return None
            kind = _kind(script, call, 0)
            if kind is not None:
                found.append((call, kind))
            elif found and _may_wait(script, call):
                return None
    kinds = {kind for _, kind in found}
    return found[0] if len(kinds) == 1 else None


def _is_in(call: Call, statement: Statement) -> bool:
    if call.statement is statement:
        return True
    return any(frame.record is statement for frame in call.context.local_frames())


def _kind(script: Script, call: Call, depth: int) -> str | None:
    work = script.semantics.work.of_call(call)
    if work.looped & {FORWARD, BACKWARD, STEP}:
        return "several steps"
    done = work.once & {FORWARD, BACKWARD, STEP}
    if len(done) > 1:
        return "a whole step"
    if done:
        return {FORWARD: "the forward pass", BACKWARD: "the backward pass", STEP: "the optimizer step"}[
            next(iter(done))
        ]
    if call.attr in ("to", "cuda") and call.receiver is not None and transfers.is_non_blocking(script, call) is True:
        return "the copy" if transfers.target_of(script, call) == "device" else None
    if depth < 2:
        for callee in script.inference.callgraph.callees(call):
            for inner in callee.function.calls:
                if _kind(script, inner, depth + 1) == "the copy":
                    return "the copy"
    return None


def waits(script: Script, call: Call, depth: int) -> bool:
    """Whether a call, or anything it enters, waits for the device."""
    attr = call.attr or ""
    if attr in _WAITS or _SPEAKS_OF_WAITING.search(attr):
        return True
    if isinstance(call.callee, Name) and attr in _READS:
        return any(
            isinstance(v, (Tensor, Unknown)) for a in call.args for v in each(script.value(a)) if not _is_plain(a)
        )
    if attr == "to" and transfers.target_of(script, call) == "host":
        return True
    if depth >= _DEEPEST:
        return False
    return any(
        waits(script, inner, depth + 1)
        for callee in script.inference.callgraph.callees(call)
        for inner in callee.function.calls
    )


def _copies_and_waits(script: Script, call: Call) -> bool:
    """`targets.to(device)`: a copy to the device that is not told otherwise waits for what was queued before it."""
    if call.attr not in ("to", "cuda") or call.receiver is None:
        return False
    held = script.value(call.receiver)
    return (
        isinstance(held, (Tensor, Batch, Unknown))
        and getattr(held, "device", None) != "device"
        and transfers.target_of(script, call) == "device"
        and transfers.is_non_blocking(script, call) is not True
    )


def _is_plain(expr: Expr) -> bool:
    return not expr.parts and not isinstance(expr, Name)


def _may_wait(script: Script, call: Call) -> bool:
    """A call that cannot be followed and gets something: it may read what it gets."""
    if not call.args and not call.keywords:
        return False
    values = list(each(script.value(call.callee)))
    return all(isinstance(v, Unknown) for v in values) and not any(isinstance(v, (Routine, External)) for v in values)


def reported(kind: str) -> bool:
    return kind not in ("several steps", "a whole step")

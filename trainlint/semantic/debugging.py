"""Debugging modes that are on in every run of a program."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.records import NamedTuple
from trainlint.semantic.contexts import dotted_name
from trainlint.semantic.facts import Call, Constant, Context, Evaluate, For, Jump, Record, With
from trainlint.semantic.values import Const, Items, each
from trainlint.semantic.work import BACKWARD

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_ANOMALY = ("torch.autograd.set_detect_anomaly", "torch.autograd.anomaly_mode.set_detect_anomaly")
_ANOMALY_BLOCK = ("torch.autograd.detect_anomaly", "torch.autograd.anomaly_mode.detect_anomaly")
_PROFILERS = ("torch.profiler.profile", "torch.profiler.profiler.profile", "torch.autograd.profiler.profile")
_FEW = 200  # turns of a loop that is profiled on purpose
_BLOCKING = "CUDA_LAUNCH_BLOCKING"


class Mode(NamedTuple):
    record: Record
    what: str
    cost: str
    remedy: str


def modes(script: Script) -> Iterator[Mode]:
    if _is_test_file(script.path):
        return
    yield from _anomaly(script)
    yield from _blocking(script)
    yield from _profilers(script)


def _anomaly(script: Script) -> Iterator[Mode]:
    cost = "every operation records a stack trace, and every gradient is checked for NaN, which waits for the device"
    remedy = "put it behind an option that is off by default; turn it on to look for a NaN"
    for call in script.calls(*_ANOMALY):
        given = call.argument(0, "mode")
        if given is not None and _is_true(script, given) and not _is_conditional(script, call.context):
            yield Mode(call, "anomaly detection", cost, remedy)
    for call in script.calls(*_ANOMALY_BLOCK):
        if not isinstance(call.statement, Evaluate) and not _is_conditional(script, call.context):
            yield Mode(call, "anomaly detection", cost, remedy)


def _is_true(script: Script, given: object) -> bool:
    values = list(each(script.value(given)))  # type: ignore[arg-type]
    return len(values) == 1 and isinstance(values[0], Const) and values[0].value is True and not values[0].settable


def _blocking(script: Script) -> Iterator[Mode]:
    what = f"{_BLOCKING}=1"
    cost = "Python waits after each kernel, so nothing runs ahead and nothing overlaps"
    remedy = f"set {_BLOCKING} in the shell for the run that is debugged, not in the script"
    for binding in script.module.stores.get("os.environ[]", ()):
        index = binding.source.index
        if isinstance(index, Constant) and index.value == _BLOCKING and binding.value is not None:
            if (
                script.constant(binding.value) == "1"
                and binding.statement is not None
                and not _is_conditional(script, binding.context)
            ):
                yield Mode(binding.statement, what, cost, remedy)
    for call in script.methods("setdefault"):
        if call.receiver is not None and dotted_name(call.receiver) == "os.environ" and len(call.args) == 2:
            if script.constant(call.args[0]) == _BLOCKING and script.constant(call.args[1]) == "1":
                if not _is_conditional(script, call.context):
                    yield Mode(call, what, cost, remedy)
    for call in script.calls("os.putenv"):
        if len(call.args) == 2 and script.constant(call.args[0]) == _BLOCKING and script.constant(call.args[1]) == "1":
            if not _is_conditional(script, call.context):
                yield Mode(call, what, cost, remedy)


def _profilers(script: Script) -> Iterator[Mode]:
    cost = "every event of the run is recorded and kept in memory, and each operation gets slower"
    remedy = "give it schedule=torch.profiler.schedule(wait=10, warmup=2, active=3), or profile a few steps"
    for call in script.calls(*_PROFILERS):
        schedule = call.keyword("schedule")
        enabled = call.argument(0, "enabled") if script.name_of(call.callee) == _PROFILERS[2] else None
        if call.unpacks or (schedule is not None and script.constant(schedule) is not None):
            continue
        if enabled is not None and not _is_true(script, enabled):
            continue
        block = _block_of(script, call)
        if block is not None and _holds_training(script, block) and not _is_conditional(script, call.context):
            yield Mode(call, "a profiler around the whole training", cost, remedy)


def _block_of(script: Script, call: Call) -> Context | None:
    """The body of the `with` statement that a call is entered by."""
    for statement in script.module.withs:
        assert isinstance(statement, With)
        if any(item.value is call for item in statement.items):
            for other in script.module.calls:
                for frame in other.context.frames():
                    if frame.kind == "with" and frame.record is statement:
                        return frame
    return None


def _holds_training(script: Script, block: Context) -> bool:
    """A whole training loop runs in the block: no `break`, no fixed small number of turns, no call of `prof.step()`."""
    calls = [c for c in script.semantics.loops.calls_of(block) if c.context.within(block)]
    if BACKWARD not in script.semantics.work.within(calls, block).looped:
        return False
    for statement in script.module.statements:
        if isinstance(statement, Jump) and statement.kind == "break" and statement.context.within(block):
            return False
        if isinstance(statement, For) and statement.context.within(block) and _is_short(script, statement):
            return False
    return not any(frame.kind == "loop" for frame in block.local_frames())


def _is_short(script: Script, loop: For) -> bool:
    iterated = loop.iter
    if isinstance(iterated, Call) and iterated.attr in ("range", "islice", "trange") and iterated.args:
        limit = script.constant(iterated.args[-1])
        return isinstance(limit, int) and limit <= _FEW and BACKWARD in _work_in(script, loop)
    return any(
        isinstance(v, Items) and v.elements is not None and len(v.elements) <= _FEW
        for v in each(script.value(iterated))
    )


def _work_in(script: Script, loop: For) -> frozenset[str]:
    """What one turn of a loop does outside of further loops."""
    for call in script.module.calls:
        for frame in call.context.local_frames():
            if frame.kind == "loop" and frame.record is loop:
                return script.semantics.work.within(script.semantics.loops.calls_of(frame), frame).once
    return frozenset()


def _is_conditional(script: Script, context: Context, depth: int = 0) -> bool:
    """Behind a condition other than the main guard or one on the device, in an error path, in a test; or all callers
    are."""
    for frame in context.frames():
        if frame.kind in ("except", "case"):
            return True
        if frame.kind == "branch" and not frame.rest and not _always(script, frame):
            return True
        if frame.kind == "function":
            function = frame.record
            if function.name.startswith("test") or depth > 4:
                return True
            sites = script.inference.callgraph.callers(function)
            return bool(sites) and all(_is_conditional(script, site.call.context, depth + 1) for site in sites)
    return False


def _always(script: Script, frame: Context) -> bool:
    test = frame.test
    if test is None:
        return False
    words = {getattr(e, "id", None) or getattr(e, "attr", None) for e in _parts(test)}
    if "__name__" in words or "is_available" in words:
        return True
    value = script.constant(test)
    return isinstance(value, bool) and value != frame.negated and not getattr(script.value(test), "settable", False)


def _parts(expr: object) -> list[object]:
    found: list[object] = []
    stack = [expr]
    while stack:
        current = stack.pop()
        found.append(current)
        for part in getattr(current, "parts", ()):
            child = getattr(current, part)
            stack.extend(child if isinstance(child, tuple) else (child,))
    return found


def _is_test_file(path: str) -> bool:
    name = os.path.basename(path)
    return name.startswith("test_") or name.endswith("_test.py") or name == "conftest.py"

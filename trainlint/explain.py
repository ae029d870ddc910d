"""`trainlint check --why FILE:LINE`: the facts at a line, and why each rule spoke or stayed silent there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainlint.findings import Finding
from trainlint.rules import describe
from trainlint.rules.rule import Rule
from trainlint.semantic.facts import Call, Constant, Expr, Name, Record
from trainlint.semantic.heat import Cold, Hot
from trainlint.semantic.values import (
    Array,
    Batch,
    Const,
    External,
    Items,
    Method,
    Number,
    Object,
    OneOf,
    Routine,
    Table,
    Tensor,
    Text,
    Type,
    Unknown,
    Value,
)

if TYPE_CHECKING:
    from trainlint.semantic.script import Script
    from trainlint.source import Source


def explain(script: Script, source: Source, row: int, rules: Sequence[Rule], findings: list[Finding]) -> str:
    """Several lines of text for a person. `row` is 1-based."""
    lines = [f"{script.path}:{row}", f"    {source.line(row).strip()}", ""]
    calls = [c for c in script.module.calls if _row(c) == row]
    records: list[Record] = list(calls) or [s for s in script.module.statements if _row(s) == row]
    if not records:
        return "\n".join([*lines, "No code starts on this line."])
    first = records[0]
    lines.append(f"place:     {_place(script, first)}")
    lines.append(f"hot:       {_heat(script, first)}")
    lines.extend(f"guard:     {text}" for text in _guards(script, first))
    lines.append(f"autograd:  {_autograd(script.autograd(first))}")
    values = _values(script, calls)
    if values:
        lines.append("values:")
        lines.extend(f"    {name}: {what}" for name, what in values)
    lines.append("rules:")
    lines.extend(f"    {text}" for text in _verdicts(row, rules, findings))
    return "\n".join(lines)


def _row(record: Record) -> int:
    node = record.node
    row = getattr(node, "lineno", None)
    return row if isinstance(row, int) else -1


def _place(script: Script, record: Record) -> str:
    names = []
    for frame in record.context.frames():
        if frame.kind in ("function", "class"):
            names.append(frame.record.qualname)
            break
    where = f"in {names[0]}" if names else "at module level"
    if script.semantics.entry.unguarded(record.context) is not None:
        where += ", runs when the file is imported"
    return where


def _heat(script: Script, record: Record) -> str:
    found = script.semantics.heat.of(record.context)
    if isinstance(found, Cold):
        if found.frame is not None and found.frame.test is not None:
            return f"no: {found.reason} by `{_condition(found.frame.test, found.frame.negated)}` on line {_row(found.frame.test)}"
        return f"no: {found.reason}"
    return _hot(found)


def _hot(hot: Hot) -> str:
    text = f"yes, {hot.phase}"
    if hot.loop is not None:
        record = hot.loop.record
        text += f": the loop on line {_row(record)} of {hot.loop.frame.module.path} ({_source(hot)})"
    elif hot.framework:
        text += f": called on every batch by {hot.framework}"
    for call in hot.calls:
        text += f"\n           through {describe.text(call)} on line {_row(call)} of {call.context.module.path}"
    if hot.flagged:
        text += "\n           only when a flag that is off by default is set"
    return text


def _source(hot: Hot) -> str:
    assert hot.loop is not None
    return "draws from a loader" if hot.loop.source == "loader" else "known by the work in it"


def _condition(test: Expr, negated: bool) -> str:
    return f"not ({describe.text(test)})" if negated else describe.text(test)


def _guards(script: Script, record: Record) -> list[str]:
    found = []
    for frame in record.context.local_frames():
        if frame.kind == "branch" and frame.test is not None:
            guard = script.semantics.guards.guard(frame)
            meaning = {
                None: "no guard",
                "rare": "rare",
                "off": "off by default",
                "quiet": "named like a guard, not resolved",
            }
            found.append(f"`{_condition(frame.test, frame.negated)}`: {meaning[guard]}")
        elif frame.kind == "except":
            found.append("an except block: rare")
        elif frame.kind == "loop":
            break
    return found


def _autograd(mode: str) -> str:
    return {"on": "on", "off": "off", "mixed": "on for some callers, off for others"}[mode]


def _values(script: Script, calls: list[Call]) -> list[tuple[str, str]]:
    seen: dict[str, str] = {}
    stack: list[Expr] = list(calls)
    while stack:
        expr = stack.pop(0)
        if not isinstance(expr, Constant):
            name = describe.text(expr)
            if name not in seen:
                value = script.value(expr)
                if not (isinstance(expr, Name) and isinstance(value, External) and value.name == expr.id):
                    seen[name] = phrase(value)
        for part in expr.parts:
            child = getattr(expr, part)
            for one in child if isinstance(child, tuple) else (child,):
                if isinstance(one, Expr):
                    stack.append(one)
                elif one is not None and isinstance(getattr(one, "value", None), Expr):
                    stack.append(one.value)
    return list(seen.items())[:24]


def phrase(value: Value) -> str:
    """A value in words."""
    if isinstance(value, Unknown):
        return "not known"
    if isinstance(value, Const):
        return f"{value.value!r}" + (" by default" if value.settable else "")
    if isinstance(value, Number):
        return "a Python number" if value.kind == "number" else f"a Python {value.kind}"
    if isinstance(value, Text):
        return "a string"
    if isinstance(value, Tensor):
        place = {"host": " on the host", "device": " on the device", None: ""}[value.device]
        graph = {True: ", with its graph", False: ", without graph", None: ""}[value.graph]
        origin = {"module": " from a module", "loss": " (a loss)", "batch": " of a batch", "parameter": " (parameters)"}
        return f"a tensor{origin.get(value.origin, '')}{place}{graph}"
    if isinstance(value, Array):
        return "a numpy array"
    if isinstance(value, Batch):
        return "a batch" + {"host": " on the host", "device": " on the device", None: ""}[value.device]
    if isinstance(value, Object):
        name = f" ({value.name})" if value.name else ""
        inner = f", wraps {phrase(value.inner[0])}" if len(value.inner) == 1 else ""
        return f"{value.role}{name}{inner}"
    if isinstance(value, Routine):
        return f"the function {value.function.qualname} of {value.function.module.path}"
    if isinstance(value, Type):
        return f"the class {value.cls.qualname} of {value.cls.module.path}"
    if isinstance(value, External):
        return value.name
    if isinstance(value, Method):
        return f"method {value.name} of {phrase(value.owner)}"
    if isinstance(value, Items):
        inner = ", ".join(phrase(v) for v in value.elements[:4]) if value.elements else phrase(value.element)
        return f"{value.kind} of {inner}" if inner else f"an empty {value.kind}"
    if isinstance(value, Table):
        return "a dict"
    assert isinstance(value, OneOf)
    return " or ".join(phrase(v) for v in value.values[:4])


def _verdicts(row: int, rules: Sequence[Rule], findings: list[Finding]) -> list[str]:
    spoken = {f.code: f for f in findings if f.place.row <= row <= f.place.end_row}
    lines = [f"{code}: {f.message} ({f.level.label})" for code, f in sorted(spoken.items())]
    silent = [rule.code for rule in rules if rule.code not in spoken]
    if silent:
        lines.append(f"silent here: {', '.join(silent)}")
    return lines

"""Environments of reinforcement learning: `env.step(action)` takes Python numbers, so somebody must wait for the action."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainlint.semantic import walk
from trainlint.semantic.bindings import lookup
from trainlint.semantic.contexts import dotted_name
from trainlint.semantic.facts import Assign, Call, Context, Expr, Name, Return, Sequence

if TYPE_CHECKING:
    from trainlint.semantic.heat import Hot
    from trainlint.semantic.script import Script

_DEEPEST = 3


def goes_to_environment(script: Script, expr: Expr, depth: int = 0) -> bool:
    """Whether a value becomes an argument of some `x.step(...)`: at once, through a name, or as what a function returns."""
    steps = expr.context.module.calls_by_attr.get("step", ())
    if any(expr in step.args for step in steps):
        return True
    statement = _statement_with(expr)
    if isinstance(statement, Assign):
        names = {dotted_name(target) for target in statement.targets} - {None}
        return any(
            step.context.function is expr.context.function
            and step.order > expr.order
            and any(isinstance(a, Name) and a.id in names for a in step.args)
            for step in steps
        )
    if isinstance(statement, Return) and depth < _DEEPEST and expr.context.function is not None:
        sites = script.inference.callgraph.callers(expr.context.function)
        return any(goes_to_environment(script, site.call, depth + 1) for site in sites)
    return False


def comes_from_environment(expr: Call) -> bool:
    """Whether what a tensor is built of came out of an environment: `state, reward, done, info = env.step(action)`."""
    for argument in expr.args:
        for part in walk.inside(argument):
            if isinstance(part, Name) and any(_is_result(b.value) for b in lookup(part, part.id)[0]):
                return True
    return False


def _is_result(value: Expr | None) -> bool:
    return isinstance(value, Call) and (
        (value.attr == "step" and _is_of_environment(value)) or (value.attr == "reset" and _names_environment(value))
    )


def _names_environment(call: Call) -> bool:
    name = dotted_name(call.receiver) if call.receiver is not None else None
    return name is not None and "env" in name.rpartition(".")[2].lower()


def plays(frame: Context) -> bool:
    """Whether the turns of a loop are steps of an environment: `state, reward, done, info = env.step(action)`."""
    return any(
        step.context.within(frame) and _is_of_environment(step) for step in frame.module.calls_by_attr.get("step", ())
    )


def _is_of_environment(step: Call) -> bool:
    statement = step.statement
    if not isinstance(statement, Assign) or statement.value is not step or not step.args:
        return False
    return any(isinstance(t, Sequence) and len(t.elements) >= 3 for t in statement.targets)


def is_once_per_episode(script: Script, expr: Expr, hot: Hot) -> bool:
    """Whether the batch loop plays whole episodes, and an expression stands beside the loop over their steps: each step has
    waited for its action already."""
    if hot.loop is None or hot.calls:
        return False
    outer = hot.loop.frame
    for step in expr.context.module.calls_by_attr.get("step", ()):
        inner = next((f for f in step.context.local_frames() if f.kind == "loop"), None)
        if inner is None or inner is outer or not inner.within(outer) or expr.context.within(inner):
            continue
        if _is_of_environment(step):
            return True
    return False


def _statement_with(expr: Expr) -> Assign | Return | None:
    """The assignment or return whose value an expression is a part of."""
    if not isinstance(expr, Call):
        return None
    statement = expr.statement
    if isinstance(statement, (Assign, Return)) and statement.value is not None:
        if any(part is expr for part in walk.inside(statement.value)):
            return statement
    return None

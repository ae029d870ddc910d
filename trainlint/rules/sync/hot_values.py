"""What the synchronisation rules share: levels by place, and the places that another rule or nobody should speak of."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from trainlint.findings import Level
from trainlint.patterns_on_use import Pattern
from trainlint.semantic.environments import goes_to_environment, is_once_per_episode
from trainlint.semantic.facts import Call, Context, Expr, Record
from trainlint.semantic.heat import Hot
from trainlint.semantic.values import Items, Method, Tensor, each
from trainlint.semantic.work import BACKWARD, FORWARD

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


def host_level(hot: Hot) -> Level | None:
    """Advice behind a flag that is off by default, else the rule's own level."""
    return Level.ADVICE if hot.flagged else None


def in_loop(context: Context) -> bool:
    return any(frame.kind == "loop" for frame in context.local_frames())


def in_parameter_loop(script: Script, record: Record) -> bool:
    """Inside a loop over a model's parameters: that is TL109's to say."""
    for frame in record.context.local_frames():
        if frame.kind == "loop":
            iterated = getattr(frame.record, "iter", None)
            if iterated is None and hasattr(frame.record, "generators"):
                iterated = frame.record.generators[0].iter
            if iterated is not None and _yields_parameters(script, iterated):
                return True
    return False


def _yields_parameters(script: Script, iterated: Expr) -> bool:
    for value in each(script.value(iterated)):
        if isinstance(value, Items):
            element = value.element
            parts = element.elements if isinstance(element, Items) and element.elements is not None else (element,)
            if any(isinstance(p, Tensor) and p.origin == "parameter" for p in parts):
                return True
        if isinstance(value, Method) and value.name in ("parameters", "named_parameters"):
            return True
    return False


_DECODER = Pattern(r"generat|decode|beam|sample|translate|greedy|infer_step|predict_next|autoregress", re.I)
_END = Pattern(r"eos|end_?of|stop|sep_token|end_token|done", re.I)


def decodes(script: Script, call: Expr, hot: Hot) -> bool:
    """The end-of-sequence test of a decoding loop, or an environment's end in RL: Python must know before it goes on."""
    function = call.context.function
    named = function is not None and bool(_DECODER.search(function.name))
    if named and innermost_loop(call.context) is not None and hot.phase != "train":
        return True
    if goes_to_environment(script, call) or is_once_per_episode(script, call, hot):
        return True
    test = getattr(call.statement, "test", None) if isinstance(call, Call) else call
    return test is not None and hot.phase != "train" and _mentions(test, _END)


def innermost_loop(context: Context) -> Context | None:
    for frame in context.local_frames():
        if frame.kind == "loop":
            return frame
    return None


def _mentions(expr: Expr, pattern: Pattern[str]) -> bool:
    stack: list[Expr] = [expr]
    while stack:
        current = stack.pop()
        for attribute in ("id", "attr"):
            word = getattr(current, attribute, None)
            if isinstance(word, str) and pattern.search(word):
                return True
        for part in current.parts:
            child = getattr(current, part)
            if isinstance(child, tuple):
                stack.extend(c for c in child if isinstance(c, Expr))
            elif isinstance(child, Expr):
                stack.append(child)
    return False


def between_forward_and_backward(script: Script, record: Record, hot: Hot) -> bool:
    """Whether a forward stands before the place and a backward after it, on the same turn of the loop that holds it."""
    if hot.loop is None or hot.calls or hot.phase != "train":
        return False
    frame = hot.loop.frame
    work = script.semantics.work
    before = after = False
    for call in script.semantics.loops.calls_of(frame):
        if not call.context.within(frame):
            continue
        once = work.of_call(call).once
        if FORWARD in once and call.order < record.order:
            before = True
            after = False if BACKWARD in once else after
        if BACKWARD in once:
            if call.order > record.order:
                after = True
            else:
                before = False
    return before and after

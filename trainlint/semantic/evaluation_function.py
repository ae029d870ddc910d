"""Functions that do nothing but evaluate, so that autograd may be off in all of them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from trainlint.patterns_on_use import Pattern
from trainlint.semantic import autograd, evaluation
from trainlint.semantic.contexts import dotted_name
from trainlint.semantic.facts import Call, Constant, Context, Function, Name
from trainlint.semantic.values import Object, each
from trainlint.semantic.work import BACKWARD, FORWARD, STEP, ZERO

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_USES_AUTOGRAD = frozenset(
    "backward manual_backward grad enable_grad set_grad_enabled requires_grad_ retain_grad zero_grad vjp jvp jacobian "
    "hessian checkpoint".split()
)
_TRAINS = Pattern(
    r"(?:^|_)(?:train|fit|learn|optimi[sz]e|fine_?tune|attack|adapt)(?:_|$)|optimizer|update_(?:param|weight|model)",
    re.I,
)
# framework's steps, and what everything else of a program is called from
_NOT_ALONE = Pattern(r"^(?:__\w+__|forward|training_step|main|run|cli|app|_main|start|experiment)$|_main$", re.I)
_COMPILED = Pattern(r"jit|script|compile|vmap|enable_grad")


def is_all_evaluation(script: Script, function: Function) -> bool:
    """Whether a function runs a model and surely has no use for autograd, neither in what it does nor in what it returns."""
    if function.is_async or function.name == "<lambda>" or function.yields or _NOT_ALONE.search(function.name):
        return False
    work = script.semantics.work.of_function(function)
    done = work.once | work.looped
    if FORWARD not in done or done & {BACKWARD, STEP, ZERO}:
        return False
    if any(_COMPILED.search(dotted_name(getattr(d, "callee", d)) or "") for d in function.decorators):
        return False
    if any(_needs_autograd(script, call) for inner in _with_inner(function) for call in inner.calls):
        return False
    if _switches_gradients(script, function) or evaluation.builds_model(script, function):
        return False
    return not evaluation.returns_to_training(script, function)


def stays_recorded(script: Script, call: Call) -> bool:
    """Whether something between a call and its function's head turns autograd on by itself."""
    return script.semantics.autograd.local(call.context, call.order) == autograd.ON


def trains_somehow(script: Script, frame: Context) -> bool:
    """Whether a loop calls anything that is named like training, also where it is not known what that does."""
    return any(
        call.attr in _USES_AUTOGRAD for call in script.semantics.loops.calls_of(frame) if call.context.within(frame)
    )


def _with_inner(function: Function) -> list[Function]:
    return [f for f in function.module.functions if f.inner.within(function.inner)]


def _needs_autograd(script: Script, call: Call) -> bool:
    attr = call.attr or ""
    if attr in _USES_AUTOGRAD:
        return True
    if attr in ("train", "eval"):
        return isinstance(call.callee, Name) or not _is_mode(script, call)
    if _TRAINS.search(attr):
        return True
    return any(isinstance(v, Object) and v.role in ("optimizer", "scaler") for v in each(script.value(call)))


def _is_mode(script: Script, call: Call) -> bool:
    """`model.train()`, `model.train(was_training)`"""
    receiver = call.receiver
    if receiver is None or len(call.args) > 1 or call.keywords:
        return False
    return all(
        not isinstance(v, Object) or v.role in ("module", "loss", "pretrained", "engine")
        for v in each(script.value(receiver))
    )


def _switches_gradients(script: Script, function: Function) -> bool:
    """`x.requires_grad = True`, `torch.zeros(3, requires_grad=True)`"""
    if any(a.context.within(function.inner) for a in script.module.attributes.get("requires_grad", ())):
        return True
    for inner in _with_inner(function):
        for call in inner.calls:
            given = call.keyword("requires_grad")
            if given is not None and not (isinstance(given, Constant) and given.value is False):
                return True
    return False

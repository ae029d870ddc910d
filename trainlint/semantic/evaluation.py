"""Evaluation loops: where a model runs on batch after batch without training, and whether autograd records it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainlint.semantic import autograd, switching
from trainlint.semantic.facts import Call, Class, Context, Expr, Function
from trainlint.semantic.loops import BatchLoop
from trainlint.semantic.values import Const, Items, Number, Object, Tensor, Text, Type, Unknown, Value, each
from trainlint.semantic.work import BACKWARD, FORWARD

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_DEEPEST = 5


def recorded_forward(script: Script, loop: BatchLoop) -> Call | None:
    """The first call in an evaluation loop through which a model runs with autograd on, None when there is none."""
    for call in script.semantics.loops.calls_of(loop.frame):
        if call.context.within(loop.frame) and _records(script, call, 0) and not is_construction(script, call):
            mode = script.semantics.autograd.mode(call.context, call.order)
            if mode == autograd.ON:
                return call
    return None


def _forwards(script: Script, call: Call, depth: int = 0) -> list[Call]:
    """The calls of models that a call ends in, itself if it is one."""
    if script.semantics.work.kind(call) == FORWARD or depth > _DEEPEST:
        return [call]
    return [
        forward
        for callee in script.inference.callgraph.callees(call)
        for inner in callee.function.calls
        if FORWARD in script.semantics.work.of_call(inner).once
        for forward in _forwards(script, inner, depth + 1)
    ]


def _records(script: Script, call: Call, depth: int) -> bool:
    """Whether a model runs through this call under no mode of the callee's own that turns autograd off."""
    if script.semantics.work.kind(call) == FORWARD:
        return not _inner_off(script, call) and not _has_nothing_to_train(script, call)
    if depth > _DEEPEST:
        return False
    for callee in script.inference.callgraph.callees(call):
        function = callee.function
        if FORWARD not in script.semantics.work.of_function(function).once:
            continue
        for inner in function.calls:
            if FORWARD in script.semantics.work.of_call(inner).once and _records(script, inner, depth + 1):
                if script.semantics.autograd.local(inner.context, inner.order) in (None, autograd.ON):
                    return True
    return False


def _inner_off(script: Script, call: Call) -> bool:
    """A module whose own `forward` (or the method that is called) turns autograd off."""
    for callee in script.inference.callgraph.callees(call):
        function = callee.function
        if script.semantics.autograd.local(function.inner, function.inner.record.order) == autograd.OFF:
            return True
    return False


def _has_nothing_to_train(script: Script, call: Call) -> bool:
    """A module of the project whose objects hold neither parameters nor other modules: autograd records nothing."""
    values = list(each(script.value(call.callee)))
    return bool(values) and all(
        isinstance(v, Object) and v.cls is not None and not _may_hold_parameters(script, v.cls) for v in values
    )


def _may_hold_parameters(script: Script, cls: Class) -> bool:
    for base in script.inference.bases(cls):
        if isinstance(base, str):
            if base not in ("torch.nn.Module", "torch.nn.modules.module.Module", "torch.nn.modules.Module", "object"):
                return True
            continue
        for bindings in base.attributes.values():
            for binding in bindings:
                if binding.how != "define" and binding.context.function is not None:
                    held = script.value(binding.value) if binding.value is not None else Unknown()
                    if not all(isinstance(v, (Const, Number, Text)) for v in each(held)):
                        return True
        if any((c.attr or "").startswith(("register_", "add_module")) for f in base.methods.values() for c in f.calls):
            return True
    return False


def feeds_training(script: Script, loop: BatchLoop) -> bool:
    """The loop is part of a training step: what it computes goes into a backward that follows outside of it."""
    if _backward_follows(script, loop.frame, loop.record.order, loop.frame):
        return True
    function = loop.frame.function
    return function is not None and returns_to_training(script, function)


def returns_to_training(script: Script, function: Function) -> bool:
    """Whether a function gives back a value with a graph to code that runs a backward afterwards, or that of a file which
    takes gradients with `torch.autograd.grad` somewhere else."""
    if not _returns_graph(script, function):
        return False
    taken = function.module.calls_by_attr.get("grad", ())
    if any(script.name_of(c.callee) == "torch.autograd.grad" for c in taken if c.context.function is not function):
        return True
    sites = script.inference.callgraph.callers(function)
    return any(_backward_follows(script, site.call.context, site.call.order, None) for site in sites)


def _backward_follows(script: Script, context: Context, order: int, inside: Context | None) -> bool:
    around = {id(f) for f in context.local_frames() if f.kind == "loop" and f is not inside}
    for call in script.semantics.loops.calls_of(context):
        if call.order <= order or (inside is not None and call.context.within(inside)):
            continue
        if BACKWARD not in script.semantics.work.of_call(call).once:
            continue
        loops = {id(f) for f in call.context.local_frames() if f.kind == "loop"}
        if loops <= around:
            return True
    return False


def _returns_graph(script: Script, function: Function) -> bool:
    return _holds_graph(script.inference.returned(function))


def _holds_graph(value: Value) -> bool:
    for one in each(value):
        if isinstance(one, Tensor) and one.graph is not False:
            return True
        if isinstance(one, Items) and any(_holds_graph(v) for v in one.elements or (one.element,)):
            return True
    return False


def is_frozen(script: Script, call: Call) -> bool:
    """All parameters of the models that a call runs are switched off somewhere in the program."""
    forwards = _forwards(script, call)
    return bool(forwards) and all(_is_switched_off(script, forward) for forward in forwards)


def _is_switched_off(script: Script, call: Call) -> bool:
    models = [m for m in (call.callee, call.receiver) if m is not None]
    names = {name for model in models if (name := _last_name(model))}
    built = {id(v.call) for m in models for v in each(script.value(m)) if isinstance(v, Object) and v.call is not None}
    for module in [script.module, *script.project.family(script.module.path)]:
        for switch in module.calls_by_attr.get("requires_grad_", ()):
            receiver = switch.receiver
            if receiver is not None and script.constant(switch.argument(0, "requires_grad")) is False:
                if _last_name(receiver) in names or _is_built_by(script, receiver, built):
                    return True
        for binding in switching.assignments(module):
            if script.constant(binding.value) is not False:
                continue
            for iterated in switching.iterated_around(binding):
                if iterated.attr in ("parameters", "named_parameters"):
                    owner = iterated.receiver
                    if owner is not None and (_last_name(owner) in names or _is_built_by(script, owner, built)):
                        return True
    return False


def _is_built_by(script: Script, expr: Expr, built: set[int]) -> bool:
    """Whether an expression holds the very object that one of these calls built, under whatever name."""
    return any(isinstance(v, Object) and id(v.call) in built for v in each(script.value(expr)))


def _last_name(expr: object) -> str:
    return getattr(expr, "id", None) or getattr(expr, "attr", None) or ""


def takes_gradients(script: Script, loop: BatchLoop) -> bool:
    """`torch.autograd.grad` in the loop: an attack, or the inner steps of a meta-learner."""
    return any(
        c.context.within(loop.frame)
        and c.attr in ("grad", "grad_and_value")
        and script.name_of(c.callee) in ("torch.autograd.grad", "torch.func.grad", "torch.func.grad_and_value")
        for c in script.semantics.loops.calls_of(loop.frame)
    )


def compares(script: Script, loop: BatchLoop) -> bool:
    """`torch.testing.assert_close` in a loop over no loader: it tries out whether two ways compute the same."""
    return loop.source != "loader" and any(
        c.context.within(loop.frame)
        and (script.name_of(c.callee) or "").startswith(("torch.testing.", "numpy.testing."))
        for c in script.semantics.loops.calls_of(loop.frame)
    )


def goes_to_numpy(script: Script, loop: BatchLoop) -> bool:
    """A result with a graph is turned into numpy without detach: that raises with autograd on, so it is off in fact."""
    for call in script.semantics.loops.calls_of(loop.frame):
        if call.attr == "numpy" and call.receiver is not None and call.context.within(loop.frame):
            for value in each(script.value(call.receiver)):
                if isinstance(value, Tensor) and value.graph is True and value.origin == "module":
                    return True
    return False


def is_construction(script: Script, call: Call) -> bool:
    """`Detector(config)`, which runs itself once to learn its strides."""
    return any(isinstance(value, Type) for value in each(script.value(call.callee)))


def builds_model(script: Script, function: Function) -> bool:
    """A smoke test: the function that runs the model also makes it, from nothing but its class."""
    for call in function.calls:
        for value in each(script.value(call)):
            if isinstance(value, Object) and value.role == "module" and value.call is call:
                return True
    return False

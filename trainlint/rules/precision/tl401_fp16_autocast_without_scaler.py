from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.patterns_on_use import Pattern
from trainlint.rules import describe
from trainlint.rules.precision import adding_a_scaler
from trainlint.rules.rule import Hit, Note, Rule
from trainlint.semantic import autograd, frameworks, scaling
from trainlint.semantic.facts import Call, Context, Function, With
from trainlint.semantic.precision import autocast_calls, autocast_dtype, is_enabled
from trainlint.semantic.values import Object, each
from trainlint.semantic.work import BACKWARD, FORWARD

if TYPE_CHECKING:
    from trainlint.patterns_on_use import Words
    from trainlint.semantic.script import Script

# whoever scales the loss in some way of its own: a scaler class of the project, apex, DeepSpeed, Accelerate ...
# A GradScaler that is imported under its own name and never used scales nothing.
_SCALES = Pattern(
    rb"(?m)^(?!\s*from\s+torch[\w.]*\s+import\s(?:(?!\bas\b)[^\n(\\])*$).*GradScaler"
    rb"|(?<!Grad)[Ss]caler\b|scale_loss|deepspeed|accelerat|fabric|loss_scale"
)
# of these, what may scale a loss without the word `scaler` standing in the training loop, or is a scaler of its own kind
_SCALES_UNSEEN = Pattern(
    rb"\w(?<!Grad)(?<!Standard)(?<!MinMax)(?<!Robust)(?<!MaxAbs)[Ss]caler\b|scale_loss|deepspeed|accelerat|fabric|loss_scale"
)


class Fp16AutocastWithoutScaler(Rule):
    """A training forward under float16 autocast, and a backward whose loss no GradScaler scales.

    ## Why is this bad?

    float16 has no numbers below 6e-8 (with full precision: below 6e-5). Small gradients become exactly zero, and the
    layers they belong to stop learning, without any error. `GradScaler` multiplies the loss before backward and divides
    the gradients before the step. `torch.autocast("cuda")` and `torch.cuda.amp.autocast()` use float16 unless told
    otherwise.

    ## Example

    ```python
    for images, target in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda"):
            loss = criterion(model(images), target)
        loss.backward()
        optimizer.step()
    ```

    ## Use instead

    ```python
    with torch.autocast("cuda", dtype=torch.bfloat16):   # Ampere and later: no scaler needed
    ```

    or

    ```python
    scaler = torch.amp.GradScaler("cuda")
    for images, target in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda"):
            loss = criterion(model(images), target)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    ```

    ## When it is silent

    bfloat16; a dtype that is not known; autocast on the CPU (bfloat16 by default); inference; a training loop that speaks of
    a scaler, itself or in what it calls; a program with a wrapper that scales (`NativeScaler`, `loss_scaler(...)`), or
    with a framework that brings one.

    ## Fix safety

    Unsafe: it changes what the script computes, which is the point. A GradScaler is made before the outermost loop that the
    optimizer outlives (on `self`, behind the optimizer, where that stands there), handed to a function that is called once per
    epoch, and gets all its calls: `scale`, `unscale_` before clipping, `step`, `update`. `enabled=` is that of the autocast. No
    fix for other devices than CUDA, several loops or callers, closures, `torch.autograd.grad`, or code spread over files.

    ## Measured by `trainlint verify`

    The share of gradients that are exactly zero, with and without a scaler.

    ## References

    - PyTorch, Automatic Mixed Precision package, "Gradient Scaling"
    """

    code = "TL401"
    name = "fp16-autocast-without-scaler"
    level = Level.ERROR
    claim = Claim.BEHAVIOUR
    message = "{call} trains in float16, and no GradScaler scales the loss"
    why = "gradients below 6e-8 become zero, and what they belong to silently stops learning"
    help = "scale the loss with torch.amp.GradScaler, or use dtype=torch.bfloat16, which needs none"
    triggers = ((b"autocast",),)

    def check(self, script: Script) -> Iterator[Hit]:
        calls = autocast_calls(script)
        elsewhere = bool(calls) and self._speaks(script, _SCALES)
        if elsewhere and self._speaks(script, _SCALES_UNSEEN):
            return
        for call in calls:
            if autocast_dtype(script, call) != "float16" or script.constant(call.keyword("enabled")) is False:
                continue
            backward = self._trains(script, call)
            if backward is None or (elsewhere and not self._surely_unscaled(script, call, backward)):
                continue
            notes = (Note(backward, "this backward runs on the unscaled loss"),)
            rewrite = adding_a_scaler.add(script, call, backward)
            yield Hit(call, {"call": describe.text(call)}, None, notes, rewrite=rewrite)

    def _speaks(self, script: Script, words: Words) -> bool:
        neighbours = script.project.neighbours
        return neighbours.any_speaks(neighbours.around(script.module.path), words)

    def _surely_unscaled(self, script: Script, call: Call, backward: Call) -> bool:
        """There are scalers in the program, but none where this autocast trains."""
        return is_enabled(script, call) is True and scaling.is_free_of_scalers(script, call, backward)

    def _trains(self, script: Script, call: Call) -> Call | None:
        """The backward that follows what runs under the autocast, None for inference."""
        place = _body(script, call)
        if place is None:
            return None
        frame, function = place
        if frameworks.in_lightning(script.inference, frame.cls):
            return None
        calls = script.semantics.loops.calls_of(frame)
        inside = [c for c in calls if c.context.within(frame)]
        work = script.semantics.work
        done = work.within(inside, frame)
        runs_model = FORWARD in done.once | done.looped or any(_is_loss(script, c) for c in inside)
        if not runs_model or script.semantics.autograd.mode(frame, call.order) == autograd.OFF:
            return None
        for candidate in calls:
            if work.kind(candidate) == BACKWARD and candidate.order > self._start(frame, call):
                return candidate
        return self._backward_of_callers(script, function) if function is not None else None

    def _start(self, frame: Context, call: Call) -> int:
        """Where what runs under the autocast begins."""
        record = frame.record
        return record.order if isinstance(record, With) else call.order

    def _backward_of_callers(self, script: Script, function: Function) -> Call | None:
        """`def compute_loss(...): with autocast(): ...; return loss`, whose caller runs backward."""
        work = script.semantics.work
        for site in script.inference.callgraph.callers(function):
            frame = site.call.context
            for candidate in script.semantics.loops.calls_of(frame):
                if candidate.order > site.call.order and BACKWARD in work.of_call(candidate).once:
                    return candidate
        return None


def _body(script: Script, call: Call) -> tuple[Context, Function | None] | None:
    """The frame of the code that runs under an autocast: the with block, or the function it decorates."""
    statement = call.statement
    if isinstance(statement, With) and any(item.value is call for item in statement.items):
        if not statement.body:
            return None
        frame = statement.body[0].context
        function = call.context.function
        if function is not None and function.yields:
            # a context manager of the project: what runs under it is what its users put there
            return _used_as_context(script, function)
        return frame, function
    for function in script.module.functions:
        if any(d is call for d in function.decorators):
            return function.inner, function
    return _bound_context(script, call)


def _used_as_context(script: Script, manager: Function) -> tuple[Context, Function | None] | None:
    for site in script.inference.callgraph.callers(manager):
        statement = site.call.statement
        if isinstance(statement, With) and statement.body:
            frame = statement.body[0].context
            return frame, frame.function
    return None


def _bound_context(script: Script, call: Call) -> tuple[Context, Function | None] | None:
    """`ctx = torch.autocast(...)` and later `with ctx:`"""
    for statement in script.module.withs:
        for item in statement.items:
            for value in each(script.value(item.value)):
                if isinstance(value, Object) and value.call is call and statement.body:
                    context = statement.body[0].context
                    return context, context.function
    return None


def _is_loss(script: Script, call: Call) -> bool:
    return any(isinstance(v, Object) and v.role == "loss" for v in each(script.value(call.callee)))

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Level
from trainlint.patterns_on_use import Pattern
from trainlint.rules import describe
from trainlint.rules.rule import Hit, Note, Rule
from trainlint.semantic.bindings import lookup
from trainlint.semantic.facts import Call, Comprehension, Expr, Name, Sequence, Starred
from trainlint.semantic.step import BACKWARD
from trainlint.semantic.values import External, Object, each
from trainlint.semantic.walk import expressions

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_HALF = frozenset({"torch.float16", "torch.half", "torch.HalfTensor", "torch.cuda.HalfTensor"})
_OPTIMIZERS = Pattern(rb"optim|Adam|SGD|Lion|Adafactor")
# master weights kept by somebody else
_MASTERS = Pattern(
    rb"FP16_Optimizer|\bapex\b|deepspeed|master_weights|master_params|MixedPrecisionOptimizer|Fp16Optimizer|bitsandbytes"
)


class ManualHalfTraining(Rule):
    """A model is cast to float16 and an optimizer then trains those float16 parameters.

    ## Why is this bad?

    float16 has 11 bits of mantissa: an update smaller than 1/2048 of the weight is rounded away, so that with usual
    learning rates weights stop moving. Adam's squared gradients underflow to zero and its epsilon of 1e-8 is zero in
    float16: the update becomes infinite. Nothing raises.

    ## Example

    ```python
    model = model.cuda().half()
    optimizer = torch.optim.Adam(model.parameters())
    ```

    ## Use instead

    ```python
    scaler = torch.amp.GradScaler("cuda")
    with torch.autocast("cuda", dtype=torch.float16):   # parameters stay float32
        loss = criterion(model(images), target)
    ```

    or bfloat16 weights with an optimizer that is meant for them.

    ## When it is silent

    Inference and frozen models; bfloat16; an optimizer over float32 copies of the weights; apex and DeepSpeed, which
    keep master weights; a copy that is only saved.

    ## Fix safety

    No fix: autocast and a scaler go to other lines.

    ## Measured by `trainlint verify`

    Nothing.

    ## References

    - PyTorch, Automatic Mixed Precision package: do not call half() on the model when using autocast
    - Micikevicius et al., "Mixed Precision Training", section 3.1
    """

    code = "TL405"
    name = "manual-half-training"
    level = Level.ERROR
    message = "{call} makes the optimizer train float16 parameters"
    why = "updates below 1/2048 of a weight are rounded away and Adam's epsilon is zero: no error, no learning"
    help = "keep the parameters in float32 and run the forward under torch.autocast, with a GradScaler"
    triggers = ((b"half",), (b"float16",))

    def check(self, script: Script) -> Iterator[Hit]:
        casts = [c for c in script.methods("half", "to", "type") if self._casts_module(script, c)]
        if not casts or script.semantics.program.says(script.module, _MASTERS):
            return
        optimizers = self._optimizers(script)
        if not optimizers or not self._trains(script):
            return
        for call in casts:
            assert call.receiver is not None
            for optimizer in optimizers:
                if self._comes_before(script, call, optimizer) and self._holds(script, optimizer, call.receiver):
                    yield Hit(
                        call, {"call": describe.text(call)}, None, (Note(optimizer, "this optimizer trains them"),)
                    )
                    break

    def _casts_module(self, script: Script, call: Call) -> bool:
        receiver = call.receiver
        if receiver is None or _is_copy(receiver):
            return False
        if call.attr != "half":
            given = [*call.args, *(k.value for k in call.keywords if k.name in ("dtype", "dst_type"))]
            if not any(all(isinstance(v, External) and v.name in _HALF for v in each(script.value(a))) for a in given):
                return False
        return any(isinstance(v, Object) and v.role == "module" for v in each(script.value(receiver)))

    def _optimizers(self, script: Script) -> list[Call]:
        found = []
        for module in script.semantics.program.modules(script.module, _OPTIMIZERS):
            found += [call for call, _ in script.beside(module).objects("optimizer")]
        return found

    def _trains(self, script: Script) -> bool:
        """A backward runs somewhere in the program."""
        semantics = script.semantics
        for module in semantics.program.modules(script.module, _BACKWARD):
            if any(semantics.work.kind(c) == BACKWARD for c in module.calls_by_attr.get("backward", ())):
                return True
        return False

    def _comes_before(self, script: Script, cast: Call, optimizer: Call) -> bool:
        """The model is cast before it trains, and not for evaluation or export."""
        for frame in cast.context.local_frames():
            if frame.kind == "branch" and frame.test is not None and any(_ASIDE.search(w) for w in _words(frame.test)):
                return False
        function = cast.context.function
        if function is optimizer.context.function and cast.context.module is optimizer.context.module:
            if cast.order < optimizer.order:
                return True
            work = script.semantics.work
            later = [c for c in script.semantics.loops.calls_of(cast.context) if c.order > cast.order]
            return any(BACKWARD in work.of_call(c).once | work.of_call(c).looped for c in later)
        callers = script.inference.callgraph.callers
        if function is not None and any(_before(s.call, optimizer) for s in callers(function)):
            return True
        building = optimizer.context.function
        return building is not None and any(_before(cast, s.call) for s in callers(building))

    def _holds(self, script: Script, optimizer: Call, module: Expr) -> bool:
        """The optimizer was given the parameters of the module themselves."""
        given = optimizer.argument(0, "params")
        if given is None or _copies(given, 0):
            return False
        identity = script.semantics.steps.identity
        cast = identity.of(module)
        for owner in identity.owners_of_parameters(given):
            held = identity.of(owner)
            if held.key == cast.key and not _is_copy(held.expr):
                return True
            if identity.same(held, cast) is True and not _is_copy(owner):
                return True
        return False


_BACKWARD = Pattern(rb"backward")
_ASIDE = Pattern(r"eval|test|infer|predict|export|demo|valid|resume", re.I)


def _before(first: Call, second: Call) -> bool:
    """One call stands before another in the same function."""
    same = first.context.function is second.context.function and first.context.module is second.context.module
    return same and first.order < second.order


def _words(test: Expr) -> set[str]:
    found = {getattr(e, "id", None) or getattr(e, "attr", None) for e in expressions(test)}
    return {w for w in found if isinstance(w, str)}


def _is_copy(expr: Expr) -> bool:
    """`copy.deepcopy(model)`, also with further calls on it: another module with the same values."""
    while isinstance(expr, Call):
        if expr.attr in ("deepcopy", "copy"):
            return True
        if expr.receiver is None:
            return False
        expr = expr.receiver
    return False


def _copies(given: Expr, depth: int) -> bool:
    """Parameters are copied on their way: `[p.detach().float() for p in model.parameters()]`."""
    if depth > 6:
        return False
    if isinstance(given, Starred):
        return _copies(given.value, depth + 1)
    if isinstance(given, Comprehension):
        if isinstance(given.element, Call):
            return True
        return _copies(given.generators[0].iter, depth + 1)
    if isinstance(given, Sequence):
        return any(_copies(e, depth + 1) for e in given.elements)
    if isinstance(given, Name):
        return any(
            b.how == "assign" and b.value is not None and not b.path and _copies(b.value, depth + 1)
            for b in lookup(given, given.id)[0]
        )
    return False

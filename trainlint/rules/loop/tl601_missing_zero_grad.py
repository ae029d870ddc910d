from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.patterns_on_use import Pattern
from trainlint.rules import rewrites
from trainlint.rules.rule import Hit, Note, Rewrite, Rule
from trainlint.semantic import frameworks, placement, scaling
from trainlint.semantic.contexts import dotted_name
from trainlint.semantic.facts import Attribute, Call, Evaluate, Statement
from trainlint.semantic.step import BACKWARD, OPAQUE, SCHEDULE, STEP, UPDATE, ZERO_GRAD, Event, Step, excludes

if TYPE_CHECKING:
    from trainlint.rewriting import Change, Site
    from trainlint.semantic.script import Script

_POST_HOOK = Pattern(rb"_post_hook")


class MissingZeroGrad(Rule):
    """A training loop that runs backward and steps the optimizer, and never clears the gradients.

    ## Why is this bad?

    `backward()` adds to `.grad`. Without `zero_grad()` every step uses the sum of the gradients of all steps so far: the
    update grows without bound and points to where the weights once were. Nothing fails, training merely goes wrong.

    ## Example

    ```python
    for images, target in loader:
        loss = criterion(model(images), target)
        loss.backward()
        optimizer.step()
    ```

    ## Use instead

    ```python
    for images, target in loader:
        optimizer.zero_grad()
        loss = criterion(model(images), target)
        loss.backward()
        optimizer.step()
    ```

    ## When it is silent

    Where gradients may be cleared by anything the loop calls: the optimizer, a module's `zero_grad()`, a helper, a
    closure, a scaler or trainer object, `p.grad = None`; where a call that cannot be followed is given the optimizer; for
    DeepSpeed's engine, for Lightning's automatic optimization and the Hugging Face Trainer, which clear by themselves.

    ## Fix safety

    Unsafe: it changes what the script computes, which is the point. `zero_grad()` is called before the first backward that
    follows the step before; with accumulation, after the step and under its condition. An `optimizer.zero_grad` that stands
    there without parentheses gets them. No fix where backward runs in another function that others call too, or under another
    condition that is no cadence.

    ## Measured by `trainlint verify`

    Whether any gradient is cleared between two steps.

    ## References

    - PyTorch, `torch.optim.Optimizer.zero_grad`; PyTorch tutorial "Zeroing out gradients"
    """

    code = "TL601"
    name = "missing-zero-grad"
    level = Level.ERROR
    claim = Claim.BEHAVIOUR
    message = "gradients are never cleared in this {loop}{where}"
    why = "each step uses the sum of the gradients of all steps before it"
    help = "call optimizer.zero_grad() once per step, before backward or after step"
    triggers = (
        (b"torch", b"for "),
        (b"torch", b"while "),
        (b"manual_backward",),
        (b"backward", b"for "),
        (b"backward", b"while "),
    )

    def check(self, script: Script) -> Iterator[Hit]:
        if frameworks.imports(script.module, "horovod") or script.project.neighbours.speaks(
            script.module.path, _POST_HOOK
        ):
            return
        for step in script.semantics.steps.of_module(script.module):
            manual = step.frame.kind != "loop"
            if manual and not self._is_manual_step(script, step):
                continue
            if step.of(OPAQUE) or self._is_owned(script, step):
                continue
            event = self._not_cleared(script, step)
            if event is None:
                continue
            backward = next(e for e in step.of(BACKWARD) if not excludes(e, event))
            where = (
                " on one of its branches"
                if any(f.kind == "branch" for f in event.conditions) and step.of(ZERO_GRAD)
                else ""
            )
            notes = (
                Note(backward.record, "adds to the gradients"),
                Note(event.record, "uses them, and nothing clears them"),
            )
            values = {"loop": "training step" if manual else "training loop", "where": where}
            yield Hit(step.record, values, None, notes, rewrite=_rewrite(script, step, event))

    def _is_manual_step(self, script: Script, step: Step) -> bool:
        """The `training_step` of a LightningModule that runs backward and steps by itself, and no hook of which clears."""
        function, cls = step.frame.function, step.frame.cls
        if function is None or cls is None or function.name != "training_step":
            return False
        if not frameworks.in_lightning(script.inference, cls):
            return False
        clears = [c for m in cls.methods.values() for c in m.calls if c.attr in ("zero_grad", "toggle_optimizer")]
        bases = [b for b in script.inference.bases(cls) if not isinstance(b, str) and b is not cls]
        return not clears and not bases

    def _is_owned(self, script: Script, step: Step) -> bool:
        cls = step.frame.cls
        return cls is not None and frameworks.class_framework(script.inference, cls) == "hf-trainer"

    def _not_cleared(self, script: Script, step: Step) -> Event | None:
        steps = script.semantics.steps
        for event in step.of(STEP):
            if event.by == "engine" or not event.sure:
                continue
            backwards = [b for b in step.of(BACKWARD) if not excludes(b, event)]
            if not backwards or any(b.by == "engine" or not b.sure for b in backwards):
                continue
            if all(excludes(z, event) or steps.clears(z, event) is False for z in step.of(ZERO_GRAD)):
                return event
        return None


def _rewrite(script: Script, step: Step, event: Event) -> Rewrite | None:
    """`event` is the optimizer step whose gradients nothing clears."""
    if event.record.context.module is not script.module or not _is_only_here(script, event):
        return None
    named = _named_not_called(step, event)
    if named is not None:
        return Rewrite(False, "Call `zero_grad()`", _call, at=named)
    first = _first_backward(step, event)
    if first is None:
        return None
    if [id(f) for f in first.frames if f.kind != "with"] == [id(f) for f in event.frames if f.kind != "with"]:
        place = placement.own_statement(first.record)
        if first.path == event.path and place is not None:
            name = placement.name_at(script, event.owner, (), place)
            return rewrites.together(f"Call `{name}.zero_grad()`", [_row(place, name)]) if name else None
        return None
    deeper = len(first.loops) > len(event.loops)
    if not deeper and not all(scaling.is_cadence(script, f, event) for f in scaling.extra_conditions(event, first)):
        return None
    if first.path != event.path and not (deeper or scaling.extra_conditions(event, first)):
        return None
    last = _behind(step, event)
    name = placement.name_at(script, event.owner, (), last) if last is not None else None
    if last is None or name is None:
        return None
    part = rewrites.row_behind(last, f"{name}.zero_grad()")
    return rewrites.together(f"Call `{name}.zero_grad()`", [part])


def _row(place: Statement, name: str) -> rewrites.Part:
    return rewrites.row_before(place, f"{name}.zero_grad()")


def _is_only_here(script: Script, event: Event) -> bool:
    """No other call enters the functions on the way: they may clear by themselves, or accumulate."""
    if isinstance(event.record, Call) and event.by == "optimizer" and event.record.args:
        return False  # a closure
    functions = {id(c.context.function): c.context.function for c in (*event.path[1:], event.record) if event.path}
    return all(f is None or len(script.inference.callgraph.callers(f)) == 1 for f in functions.values())


def _first_backward(step: Step, event: Event) -> Event | None:
    """The first backward since the optimizer step before, of this or another optimizer."""
    first: Event | None = None
    for other in step.events:
        if other is event:
            return first
        if other.kind == STEP and not excludes(other, event):
            first = None
        elif other.kind == BACKWARD and not excludes(other, event):
            first = first or other
    return None


def _behind(step: Step, event: Event) -> Statement | None:
    """The optimizer's step, or what updates the scaler or the schedule right after it."""
    own = placement.own_statement(event.record)
    if own is None:
        return None
    after = {id(placement.own_statement(e.record)) for e in step.of(UPDATE, SCHEDULE)}
    last = own
    for statement in own.block[own.index + 1 :]:
        if id(statement) not in after or not isinstance(statement, Evaluate):
            break
        last = statement
    return last


def _named_not_called(step: Step, event: Event) -> Attribute | None:
    """`optimizer.zero_grad` as a statement."""
    owner = dotted_name(event.owner) if event.owner is not None else None
    for access in step.frame.module.attributes.get("zero_grad", ()):
        statement = placement.own_statement(access)
        if isinstance(statement, Evaluate) and statement.value is access and access.context.within(step.frame):
            if owner is not None and dotted_name(access.value) == owner and not event.path:
                return access
    return None


def _call(site: Site) -> Iterable[Change]:
    return [site.insert(site.span(site.node)[1], "()")]

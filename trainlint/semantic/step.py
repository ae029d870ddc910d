"""A training step as an ordered list of events: clear gradients, forward, backward, unscale, clip, step, update, schedule.

    for step in script.semantics.steps.of_module(script.module):     # what is one step: see `of_module`
        for event in step.of(STEP):
            steps.subject(event)      # which optimizer
            event.conditions          # the `if` frames under which it runs
            event.path                # the calls that lead from the body to it, outermost first

Events come in the order in which they run, also across helper functions, methods of the project's own trainer or scaler
objects, and closures given to `optimizer.step(closure)`. A loop in the body counts once: `event.loops` names the loops
that stand between the body and the event. What cannot be followed but may touch gradients is an event too: OPAQUE.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

from trainlint.patterns_on_use import Pattern
from trainlint.records import NamedTuple
from trainlint.semantic import conventions
from trainlint.semantic.bindings import lookup
from trainlint.semantic.contexts import dotted_name
from trainlint.semantic.facts import (
    Assign,
    Attribute,
    Call,
    Compare,
    Constant,
    Context,
    Expr,
    Function,
    Module,
    Name,
    Record,
)
from trainlint.semantic.identity import Identity, Path, Subject
from trainlint.semantic.loops import BatchLoop, Loops, loop_frames
from trainlint.semantic.same import same
from trainlint.semantic.values import Const, External, Method, Object, Routine, Unknown, each
from trainlint.semantic.work import BACKWARD, FORWARD, STEP, Work
from trainlint.semantic.work import ZERO as ZERO_GRAD

if TYPE_CHECKING:
    from trainlint.semantic.inference import Inference

UNSCALE, CLIP, INSPECT, UPDATE, SCHEDULE, OPAQUE = "unscale", "clip", "inspect", "update", "schedule", "opaque"
TRAIN_MODE, EVAL_MODE, SOME_MODE = "train mode", "eval mode", "some mode"  # of a module; "some": by a value not known
__all__ = [
    "BACKWARD", "CLIP", "EVAL_MODE", "FORWARD", "INSPECT", "OPAQUE", "SCHEDULE", "SOME_MODE", "STEP", "TRAIN_MODE", "UNSCALE",
    "UPDATE", "ZERO_GRAD",
    "Event", "Step", "Steps", "excludes", "implies",
]  # fmt: skip

_GRAD = Pattern(rb"\.grad")
_MOST = 200  # events of one function
_MOST_CALLEES = 8  # functions that one call may enter
_DEEPEST_PATH = 12  # calls from a step's body to an event
_MOST_FILES = 40  # whose steps are looked through for one file, nearest first
_CLIPS = frozenset(
    {
        "clip_grad_norm_",
        "clip_grad_value_",
        "clip_grad_norm",
        "clip_grads_with_norm_",
        "clip_gradients",
        "clip_grad_value",
    }
)
_MEASURES = frozenset({"get_total_norm"})
_IN_PLACE = frozenset({"clamp_", "mul_", "div_", "clip_"})
_HARMLESS = frozenset({"isnan", "isinf", "isfinite", "detach_", "requires_grad_", "size", "dim", "numel", "append"})
_COLLECTIVE = ("torch.distributed.", "horovod.", "deepspeed.")
# names of calls that cannot be followed and may clear, fill or use gradients
_MAY_TRAIN = Pattern(
    r"zero_?grads?|(?:clear|reset|clean)_?grads?|optimi[sz]e|backward|train_?(?:on_)?(?:step|batch)|update_?(?:param|weight|model)|(?:run|do|forward)_?step|_step_and_",
    re.I,
)


class Event(NamedTuple):
    """One thing that happens in a step.

    `record`: the call (or, where gradients are set by hand, the assignment). `owner`: the expression of the object
    concerned, at the end of `path`: the optimizer (step, zero_grad, unscale), the module (forward, `model.zero_grad()`,
    clip), the scheduler, the scaler (update), the loss (backward), None when it cannot be named. `scaler`: that of
    `scaler.step(optimizer)` and `scaler.unscale_(optimizer)`. `by`: who does it: "optimizer", "scaler", "module", "engine"
    (DeepSpeed: its step clips, steps and clears), "accelerator", "fabric", "lightning", "loss", "hand", or "".
    `sure` is False where it is only one of several functions that a call may enter."""

    kind: str
    record: Call | Assign
    path: Path = ()
    frames: tuple[Context, ...] = ()
    owner: Expr | None = None
    scaler: Expr | None = None
    by: str = ""
    sure: bool = True

    @property
    def top(self) -> Call | Assign:
        """Where the body of the step leads to it: the outermost call, or the record itself."""
        return self.path[0] if self.path else self.record

    @property
    def conditions(self) -> tuple[Context, ...]:
        """The frames between the body and the event under which it may not run: branch, except, case."""
        return tuple(f for f in self.frames if f.kind in ("branch", "except", "case"))

    @property
    def loops(self) -> tuple[Context, ...]:
        """The loops between the body and the event, outermost first."""
        return tuple(f for f in self.frames if f.kind == "loop")

    @property
    def withs(self) -> tuple[Context, ...]:
        """The with blocks between the body and the event, outermost first. Those around the step: `step.frame.frames()`."""
        return tuple(f for f in self.frames if f.kind == "with")


class Step(NamedTuple):
    """The body of a loop, or of a function (`frame.kind`), and what happens in it, in order."""

    frame: Context
    events: tuple[Event, ...]

    def of(self, *kinds: str) -> list[Event]:
        return [e for e in self.events if e.kind in kinds]

    @property
    def record(self) -> Record:
        """The loop or the function."""
        record: Record = self.frame.record
        return record


class Steps:
    def __init__(self, inference: Inference, work: Work, loops: Loops) -> None:
        self.inference = inference
        self.work = work
        self.loops = loops
        self.identity = Identity(inference)
        self._grad_files: dict[str, bool] = {}

    # ------------------------------------------------------------------------------------------------ what to ask

    def of_loop(self, loop: BatchLoop | Context) -> Step:
        """What happens in one turn of a loop."""
        return self._of_frame(loop.frame if isinstance(loop, BatchLoop) else loop)

    def of_function(self, function: Function) -> Step:
        """What happens in one call of a function."""
        return self._of_frame(function.inner)

    def of_body(self, frame: Context) -> Step:
        """What happens in the body of a function or of a whole file."""
        return self._of_frame(frame)

    def of_module(self, module: Module) -> list[Step]:
        """The training steps of a file: its innermost loops that run a backward and an optimizer step, and functions that
        do both in no loop of their own and are called by nobody that is known. Helpers count where they are called from."""
        found: list[Step] | None = module.memo.get("steps")
        if found is None:
            found = module.memo["steps"] = list(self._units(module))
        return found

    def around(self, module: Module) -> list[Step]:
        """The training steps in this file and in those that import it."""
        return [step for one in self.inference.project.family(module.path) for step in self.of_module(one)]

    def through(self, module: Module) -> list[Step]:
        """The training steps, in this file or in those that import it, that run code of this file."""
        project = self.inference.project
        most = 1 if project.neighbours.is_library(module.path) else _MOST_FILES
        return [
            step
            for one in project.family(module.path, most=most)
            for step in self.of_module(one)
            if one is module or any(e.record.context.module is module for e in step.events)
        ]

    def subject(self, event: Event) -> Subject | None:
        """The object that an event concerns (see `Event.owner`)."""
        return self.identity.of(event.owner, event.path) if event.owner is not None else None

    def scaler(self, event: Event) -> Subject | None:
        """The scaler that an event goes through: of a step or unscale, or of the `scaler.scale(loss)` that a backward runs on."""
        if event.kind == BACKWARD:
            found = self.scaling_call(event)
            return (
                self.identity.of(found[0].receiver, found[1])
                if found is not None and found[0].receiver is not None
                else None
            )
        expr = event.owner if event.kind == UPDATE else event.scaler
        return self.identity.of(expr, event.path) if expr is not None else None

    def scaling_call(self, event: Event) -> tuple[Call, Path] | None:
        """The `scaler.scale(loss)` (or apex's `amp.scale_loss`) whose result a backward runs on, and where it stands."""
        return self._scaled(event.owner, event.path, 0) if event.owner is not None else None

    def same(self, a: Event, b: Event) -> bool | None:
        """Whether two events concern the same object; None when it cannot be told."""
        left, right = self.subject(a), self.subject(b)
        return None if left is None or right is None else self.identity.same(left, right)

    def reads_gradients(self, first: Event, last: Event) -> bool:
        """Whether a `.grad` is read between two events of one body (adversarial inputs, gradient surgery)."""
        for event in (first, last):
            for access in event.record.context.module.attributes.get("grad", ()):
                if access.context.function is event.record.context.function and not _is_autograd_grad(access):
                    start = first.record.order if first.record.context.module is access.context.module else -1
                    end = last.record.order if last.record.context.module is access.context.module else 1 << 60
                    if start < access.order < end:
                        return True
        return False

    def only_optimizer(self, step: Step) -> bool:
        """Whether all optimizer steps of a training step are of one optimizer."""
        steps = step.of(STEP)
        return all(self.same(steps[0], other) for other in steps[1:])

    def clears(self, clearing: Event, step: Event) -> bool | None:
        """Whether a zero_grad event clears the gradients that an optimizer step uses; None when it cannot be told."""
        if clearing.by == "engine" or step.by == "engine":
            return True
        optimizer, cleared = self.subject(step), self.subject(clearing)
        if optimizer is None or cleared is None:
            return None
        if clearing.by == "module":
            return self.identity.trains(optimizer, cleared)
        shorter = min(len(optimizer.key), len(cleared.key))
        if len(optimizer.key) != len(cleared.key) and optimizer.key[:shorter] == cleared.key[:shorter]:
            return None  # an optimizer of the project that holds another
        return self.identity.same(cleared, optimizer)

    # --------------------------------------------------------------------------------------------------- units

    def _units(self, module: Module) -> Iterator[Step]:
        training = []
        for frame in loop_frames(module):
            if hasattr(frame.record, "body"):
                step = self._of_frame(frame)
                if _trains(step):
                    training.append(step)
        for step in training:
            if not any(o is not step and o.frame.within(step.frame) for o in training):
                # a loop whose helpers hold the loop that trains is an epoch loop
                if self._is_one_turn(step):
                    yield step
        for function in module.functions:
            if not any(s.frame.within(function.inner) for s in training):
                step = self._of_frame(function.inner)
                if _trains(step) and self._is_one_turn(step) and not self._called_in_loop(function):
                    yield step

    def _is_one_turn(self, step: Step) -> bool:
        """No loop inside of it, in a helper, both runs backward and steps."""
        backward = {id(f) for e in step.of(BACKWARD) for f in e.loops}
        stepped = {id(f) for e in step.of(STEP) for f in e.loops}
        return not backward & stepped

    def _called_in_loop(self, function: Function) -> bool:
        return bool(self.inference.callgraph.callers(function))

    # -------------------------------------------------------------------------------------------------- events

    def _of_frame(self, frame: Context) -> Step:
        memo, key = frame.module.memo, ("step", id(frame))
        found: Step | None = memo.get(key)
        if found is None:
            found = memo[key] = Step(frame, tuple(self._events(frame)))
        return found

    def _events(self, frame: Context) -> list[Event]:
        """The events of a body, in order; `frames` of each are those inside of it."""
        calls = [c for c in self.loops.calls_of(frame) if c.context.within(frame)]
        closing = {id(c): _inside(c.context, frame) for c in calls}
        found: list[tuple[int, Event]] = []
        for call in calls:
            for event in self._of_call(call):
                found.append((call.order, event._replace(frames=closing[id(call)] + event.frames)))
            if len(found) > _MOST:
                break
        for statement in self._grad_assignments(frame):
            if statement.context.within(frame):
                found.append(
                    (statement.order, self._by_hand(statement)._replace(frames=_inside(statement.context, frame)))
                )
        found.sort(key=lambda pair: pair[0])
        return [event for _, event in found]

    def _of_function(self, function: Function) -> tuple[Event, ...]:
        solver, memo = self.inference.solver, function.module.memo
        return solver.solve(("events", id(function)), lambda: tuple(self._events(function.inner)), (), memo)  # type: ignore[no-any-return]

    def _entered(self, call: Call) -> list[Event]:
        """The events of the project's functions that a call enters."""
        alternatives = []
        for callee in self.inference.callgraph.callees(call)[:_MOST_CALLEES]:
            events = self._of_function(callee.function)
            if events:
                alternatives.append(events)
        sure = len(alternatives) == 1
        # a step stands a few calls deep; what is deeper is the inside of a library
        return [
            e._replace(path=(call, *e.path), sure=e.sure and sure)
            for events in alternatives
            for e in events
            if len(e.path) < _DEEPEST_PATH
        ][:_MOST]

    def _of_call(self, call: Call) -> list[Event]:
        attr = call.attr
        if attr is None:
            return self._entered(call)
        kind = self.work.kind(call)
        if kind == FORWARD:
            return [Event(FORWARD, call, owner=self._module_run(call), by="module")]
        if kind == BACKWARD:
            # distributed autograd keeps the gradients of each context apart, not in `.grad`
            apart = (self.inference.name_of(call.callee) or "").startswith("torch.distributed.autograd.")
            if attr not in ("backward", "manual_backward"):
                return self._scaled_by_wrapper(call)
            return [] if apart else [self._backward(call)]
        if kind == STEP:
            return [*self._entered(call), *self._step(call)]
        if kind == ZERO_GRAD:
            return self._entered(call) if self._is_own(call) else [self._zero(call)]
        known = self._known(call, attr)
        if known is not None:
            return [known]
        touched = self._touches_gradients(call)
        if touched is not None:
            return [touched]
        entered = self._entered(call)
        if entered or self.inference.callgraph.callees(call):
            return entered
        return [Event(OPAQUE, call)] if self._is_opaque(call, attr) else []

    def _known(self, call: Call, attr: str) -> Event | None:
        if isinstance(call.callee, Name):  # imported under another name
            full = self.inference.name_of(call.callee) or ""
            attr = full.rpartition(".")[2] if full.startswith("torch.nn.utils.") else attr
        if attr in _CLIPS or attr in _MEASURES or attr == "dispatch_clip_grad":
            if not any(isinstance(v, Routine) for v in each(self.inference.value(call.callee))):
                return self._clip(call, attr)
        if attr == "unscale_" and call.receiver is not None:
            return Event(UNSCALE, call, owner=call.argument(0, "optimizer"), scaler=call.receiver, by="scaler")
        if attr == "unscale_gradients":
            return Event(UNSCALE, call, owner=call.argument(0, "optimizer"), by="accelerator")
        receiver = call.receiver
        if receiver is None:
            return None
        if (attr == "eval" and not call.args) or attr == "train":
            return self._mode(call, attr, receiver)
        if attr == "update" and self.role(receiver) == "scaler":
            return Event(UPDATE, call, owner=receiver, by="scaler")
        if attr in ("step", "step_update") and self.role(receiver) == "scheduler":
            return Event(SCHEDULE, call, owner=receiver, by="scheduler")
        if attr == "backward" and self.role(receiver) in ("optimizer", "scaler"):
            return Event(BACKWARD, call, owner=call.argument(0, "loss"), by=self.role(receiver))
        return None

    def _module_run(self, call: Call) -> Expr:
        """`model` of `model(x)`, `model.generate(x)` and `model.forward(x)`."""
        callee = call.callee
        if isinstance(callee, Attribute):
            value = self.inference.value(callee)
            if any(isinstance(v, (Method, Routine)) and isinstance(v.owner, Object) for v in each(value)):
                return callee.value
        return callee

    def _mode(self, call: Call, attr: str, receiver: Expr) -> Event | None:
        """`model.train()`, `model.eval()`, `model.train(False)`; not the `train` of an object of the project."""
        for value in each(self.inference.value(call.callee)):
            if isinstance(value, Routine) and not (
                isinstance(value.owner, Object) and value.owner.role in ("module", "engine")
            ):
                return None
        given = call.argument(0, "mode")
        if attr == "train" and (
            len(call.args) > 1 or self.role(receiver) not in ("module", "engine", "loss", "pretrained", "")
        ):
            return None
        kind = EVAL_MODE
        if attr == "train":
            mode = True if given is None else self.inference.value(given)
            kind = (
                TRAIN_MODE
                if mode is True or (getattr(mode, "value", None) is True and not getattr(mode, "settable", False))
                else SOME_MODE
            )
            if getattr(mode, "value", None) is False and not getattr(mode, "settable", False):
                kind = EVAL_MODE
        return Event(kind, call, owner=receiver, by="module")

    def role(self, expr: Expr) -> str:
        """The role of an object, by its value or else by what the field calls such a thing; "" when not known."""
        value = self.inference.value(expr)
        for one in each(value):
            if isinstance(one, Object):
                return one.role
        if not isinstance(value, (Unknown, Method)):
            return ""
        last = (dotted_name(expr) or "").rpartition(".")[2]
        if conventions.SCHEDULER_NAME.search(last):
            return "scheduler"
        if conventions.SCALER_NAME.search(last):
            return "scaler"
        if conventions.OPTIMIZER_NAME.search(last):
            return "optimizer"
        return "module" if conventions.names_module(last) else ""

    def _is_own(self, call: Call) -> bool:
        """A `zero_grad` that the project wrote on an object of its own, not on a module or optimizer."""
        for value in each(self.inference.value(call.callee)):
            if isinstance(value, Routine):
                owner = value.owner
                if not (isinstance(owner, Object) and owner.role in ("module", "optimizer", "loss")):
                    return bool(self._of_function(value.function))
        return False

    def _backward(self, call: Call) -> Event:
        receiver = call.receiver
        assert receiver is not None
        if call.attr == "manual_backward":
            return Event(BACKWARD, call, owner=call.argument(0, "loss"), by="lightning")
        for value in each(self.inference.value(receiver)):
            if isinstance(value, Object) and value.role in ("accelerator", "fabric", "engine"):
                return Event(
                    BACKWARD, call, owner=call.argument(0, "loss") or call.argument(None, "tensor"), by=value.role
                )
        return Event(BACKWARD, call, owner=receiver, by="loss")

    def _scaled_by_wrapper(self, call: Call) -> list[Event]:
        """`loss_scaler(loss, optimizer, ...)` of a library: backward, unscale, step and update in one call."""
        loss, optimizer = call.argument(0, "loss"), call.argument(1, "optimizer")
        return [Event(BACKWARD, call, owner=loss, by="scaler"), Event(STEP, call, owner=optimizer, by="scaler")]

    def _step(self, call: Call) -> list[Event]:
        receiver = call.receiver
        role = self.role(receiver) if receiver is not None else ""
        if role == "scaler":
            return [Event(STEP, call, owner=call.argument(0, "optimizer"), scaler=receiver, by="scaler")]
        if role == "engine":
            return [Event(STEP, call, owner=receiver, by="engine"), Event(ZERO_GRAD, call, owner=receiver, by="engine")]
        return [Event(STEP, call, owner=receiver, by="optimizer")]

    def _zero(self, call: Call) -> Event:
        receiver = call.receiver
        role = self.role(receiver) if receiver is not None else ""
        by = "module" if role in ("module", "loss", "pretrained") else role if role in ("engine", "optimizer") else ""
        return Event(ZERO_GRAD, call, owner=receiver, by=by)

    def _clip(self, call: Call, attr: str) -> Event:
        kind = CLIP if attr not in _MEASURES else INSPECT
        receiver = call.receiver
        role = self.role(receiver) if receiver is not None else ""
        if role in ("accelerator", "fabric", "engine"):
            given = call.argument(0)
            owners = self.identity.owners_of_parameters(given) if given is not None else []
            return Event(kind, call, owner=owners[0] if owners else given, by=role)
        if attr == "clip_gradients":
            return Event(kind, call, owner=call.argument(0), by="lightning")
        if role == "module" or role == "optimizer":  # FSDP's model.clip_grad_norm_(max_norm)
            return Event(kind, call, owner=receiver, by=role)
        given = call.argument(0, "parameters")
        owners = self.identity.owners_of_parameters(given) if given is not None else []
        return Event(kind, call, owner=owners[0] if owners else None)

    # ----------------------------------------------------------------------------------------- gradients by hand

    def _speaks_of_gradients(self, path: str) -> bool:
        known = self._grad_files.get(path)
        if known is None:
            known = self._grad_files[path] = self.inference.project.neighbours.speaks(path, _GRAD)
        return known

    def _touches_gradients(self, call: Call) -> Event | None:
        """`p.grad.norm()`, `torch.norm(p.grad)`, `p.grad.zero_()`"""
        if not self._speaks_of_gradients(call.context.module.path):
            return None
        read = _grad_read(call)
        if read is None:
            return None
        attr = call.attr or ""
        if attr in _HARMLESS or (
            isinstance(call.callee, Name) and attr in ("print", "len", "isinstance", "hasattr", "getattr", "id", "type")
        ):
            return None
        if any(
            isinstance(v, (Routine, Method)) and isinstance(getattr(v, "owner", None), Object)
            for v in each(self.inference.value(call.callee))
        ):
            return None
        name = self.inference.name_of(call.callee) or ""
        if name.startswith(_COLLECTIVE) or attr in ("all_reduce", "register_hook"):
            return None
        owners = self.identity.owners_of_parameters(read.value)
        owner = owners[0] if owners else None
        by = "hand" if owner is None else self.role(owner) or "hand"
        if attr == "zero_" or (attr == "fill_" and call.args and self.inference.constant(call.args[0]) in (0, 0.0)):
            return Event(ZERO_GRAD, call, owner=owner or read.value, by=by)
        if attr in _IN_PLACE:
            return Event(CLIP, call, owner=owner, by="hand")
        return Event(INSPECT, call, owner=owner, by="hand")

    def _grad_assignments(self, frame: Context) -> list[Assign]:
        module = frame.module
        index: dict[int, list[Assign]] | None = module.memo.get("stored gradients")
        if index is None:
            index = module.memo["stored gradients"] = {}
            if self.inference.project.neighbours.speaks(module.path, _GRAD):
                for statement in module.statements:
                    if isinstance(statement, Assign) and any(
                        isinstance(t, Attribute) and t.attr == "grad" for t in statement.targets
                    ):
                        index.setdefault(id(statement.context.function), []).append(statement)
        return index.get(id(frame.function), [])

    def _by_hand(self, statement: Assign) -> Event:
        target = next(t for t in statement.targets if isinstance(t, Attribute) and t.attr == "grad")
        owners = self.identity.owners_of_parameters(target.value)
        owner = owners[0] if owners else target.value
        by = self.role(owner) if owners else "hand"
        value = statement.value
        cleared = (isinstance(value, Constant) and value.value is None) or (
            isinstance(value, Call) and value.attr in ("zeros_like", "zeros")
        )
        return Event(ZERO_GRAD if cleared and statement.op is None else CLIP, statement, owner=owner, by=by or "hand")

    # -------------------------------------------------------------------------------------------------- opaque

    def _is_opaque(self, call: Call, attr: str) -> bool:
        """A call that cannot be followed and is named, or given what it needs, to clear, fill or use gradients."""
        if attr == "optimizers":
            return False  # of a LightningModule: gives them, and does nothing
        telling = _may_train(attr)
        arguments = [*call.args, *(k.value for k in call.keywords)]
        named = [argument for argument in arguments if isinstance(argument, (Name, Attribute))]
        if not telling and not named:
            return False
        value = self.inference.value(call.callee)
        foreign = any(
            isinstance(v, Unknown)
            or (isinstance(v, Const) and v.value is None)  # a default, for which the caller gives a function
            or (isinstance(v, External) and not v.name.startswith(("torch.", "logging.", "print")) and "." in v.name)
            or (
                isinstance(v, Method)
                and isinstance(v.owner, Object)
                and v.owner.role in ("object", "lightning-trainer", "hf-trainer")
            )
            for v in each(value)
        )
        if not foreign or telling:
            return foreign
        return any(
            (isinstance(held, Object) and held.role == "optimizer")
            or (isinstance(held, Unknown) and _named_optimizer(argument))
            for argument in named
            for held in each(self.inference.value(argument))
        )

    # -------------------------------------------------------------------------------------------------- scaling

    def _scaled(self, expr: Expr, path: Path, depth: int) -> tuple[Call, Path] | None:
        if depth > 8:
            return None
        if isinstance(expr, Call):
            if expr.attr == "scale" and expr.receiver is not None and self.role(expr.receiver) in ("scaler", ""):
                return (expr, path)
            if expr.attr == "scale_loss":
                return (expr, path)
            receiver = expr.receiver
            return (
                self._scaled(receiver, path, depth + 1)
                if receiver is not None and expr.attr in ("mean", "sum", "to")
                else None
            )
        if isinstance(expr, Name):
            given = self.identity.argument(expr, path)
            if given is not None:
                return self._scaled(given[0], given[1], depth + 1)
            for binding in lookup(expr, expr.id)[0]:
                if binding.how in ("assign", "with") and binding.value is not None and not binding.path:
                    found = self._scaled(binding.value, path, depth + 1)
                    if found is not None:
                        return found
            return None
        for operand in getattr(expr, "operands", ()):
            if not isinstance(expr, Compare):
                found = self._scaled(operand, path, depth + 1)
                if found is not None:
                    return found
        return None


def implies(a: Event, b: Event) -> bool:
    """Whether b runs in every turn in which a runs, as far as conditions say: each condition of b is one of a's."""
    return all(any(_alike(x, y) for x in a.conditions) for y in b.conditions)


def excludes(a: Event, b: Event) -> bool:
    """Whether two events stand in different arms of one `if` (or of two that ask the same)."""
    return any(
        x.kind == y.kind == "branch"
        and x.test is not None
        and y.test is not None
        and x.negated != y.negated
        and same(x.test, y.test)
        for x in a.conditions
        for y in b.conditions
    )


def _alike(x: Context, y: Context) -> bool:
    if x is y:
        return True
    if x.kind != "branch" or y.kind != "branch" or x.test is None or y.test is None:
        return False
    return x.negated == y.negated and same(x.test, y.test)


def _named_optimizer(expr: Name | Attribute) -> bool:
    return conventions.OPTIMIZER_NAME.search(expr.id if isinstance(expr, Name) else expr.attr) is not None


def _is_autograd_grad(access: Attribute) -> bool:
    return dotted_name(access) in ("torch.autograd.grad", "autograd.grad")


def _trains(step: Step) -> bool:
    kinds = {e.kind for e in step.events}
    return BACKWARD in kinds and STEP in kinds


def _inside(context: Context, frame: Context) -> tuple[Context, ...]:
    """The frames between a body and a place in it, outermost first."""
    found: list[Context] = []
    current: Context | None = context
    while current is not None and current is not frame:
        found.append(current)
        current = current.parent
    return tuple(reversed(found))


def _grad_read(call: Call) -> Attribute | None:
    """The `p.grad` on which a call works: in what it is called on, or in its arguments."""
    stack: list[Expr] = [*call.args]
    if call.receiver is not None:
        stack.append(call.receiver)
    while stack:
        current = stack.pop()
        if isinstance(current, Attribute) and current.attr == "grad" and dotted_name(current) != "torch.autograd.grad":
            return current
        if isinstance(current, (Compare, Call)) and current is not call:
            # a call further in is an event of its own
            continue
        for part in current.parts:
            child = getattr(current, part)
            if isinstance(child, tuple):
                stack.extend(c for c in child if isinstance(c, Record))  # type: ignore[misc]
            elif isinstance(child, Record):
                stack.append(child)  # type: ignore[arg-type]
    return None


@cache
def _may_train(name: str) -> bool:
    return _MAY_TRAIN.search(name) is not None

"""Whether a model evaluates in training mode: eval() and train() calls before a place, in order, there and in its callers.

Lenient by design: any eval() that may concern the model and may have run counts, whatever conditions it stands under.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainlint.records import NamedTuple
from trainlint.semantic import frameworks
from trainlint.semantic.external import LOSS_CLASS
from trainlint.semantic.facts import Call, Compare, Constant, Context, Expr, Function, Name, With
from trainlint.semantic.identity import Path, Subject
from trainlint.semantic.step import BACKWARD, EVAL_MODE, FORWARD, SOME_MODE, TRAIN_MODE, Event
from trainlint.semantic.values import Object, Routine, Value, each

if TYPE_CHECKING:
    from trainlint.semantic.loops import BatchLoop
    from trainlint.semantic.script import Semantics

_DEEPEST = 6
_SETS_EVAL = (EVAL_MODE, SOME_MODE)


class _Verdict(NamedTuple):
    switched: bool  # something may put the model into eval mode
    trained: bool  # something trains the model, or puts it into training mode


class TrainingMode:
    def __init__(self, semantics: Semantics) -> None:
        self.semantics = semantics
        self.inference = semantics.inference
        self.steps = semantics.steps

    def evaluated_in_training_mode(self, loop: BatchLoop) -> list[Event]:
        """The forward passes of an evaluation loop whose model certainly is in training mode, one for each model."""
        found: list[Event] = []
        seen: set[object] = set()
        step = self.steps.of_loop(loop)
        for event in step.of(FORWARD):
            subject = self.steps.subject(event)
            if subject is None or subject.key in seen or not self._is_model(event):
                continue
            seen.add(subject.key)
            if self._trains_here(loop, event):
                found.append(event)
        return found

    def evaluation_passes(self, loop: BatchLoop) -> list[tuple[Event, Call]]:
        """For a loop that both trains and evaluates, by a flag or the name of a phase: the forward and the call that passes
        False, or another phase, where nothing switches the mode for it."""
        function = loop.frame.function
        step = self.steps.of_loop(loop)
        backwards = step.of(BACKWARD)
        if function is None or not backwards:
            return []
        flags = {self._flag(function, b) for b in backwards}
        if len(flags) != 1 or None in flags:
            return []
        flag = flags.pop()
        assert flag is not None
        name, trains = flag
        parameter = next((p for p in function.parameters if p.name == name), None)
        forward = next((e for e in step.of(FORWARD) if self._is_model(e)), None)
        if parameter is None or forward is None or forward.owner is None:
            return []
        own = self._before(function.inner, loop.frame, loop.record.order, loop.frame)
        if any(e.kind in (EVAL_MODE, SOME_MODE) for e in [*own, *step.events]):
            return []
        found: list[tuple[Event, Call]] = []
        for site in self.inference.callgraph.callers(function):
            given = site.argument(function, parameter)
            if not isinstance(given, Expr) or isinstance(given, Name):
                continue
            passed = self.inference.constant(given)
            if type(passed) is type(trains) and passed != trains:
                verdict = self._at(site.call.context, site.call.order, None, forward, (site.call,), 1)
                if verdict is not None and not verdict.switched and verdict.trained:
                    found.append((forward, site.call))
        return found

    def _flag(self, function: Function, backward: Event) -> tuple[str, bool | str] | None:
        """The parameter of a function under which its loop runs backward, and what it has to be: `if train: loss.backward()`,
        `if phase == "train": ...`."""
        for frame in backward.conditions:
            if frame.test is None or frame.negated:
                continue
            test, wanted = _tested(frame.test)
            if not isinstance(test, Name):
                continue
            path = backward.path
            while isinstance(test, Name) and test.context.function is not function:
                given = self.steps.identity.argument(test, path)
                if given is None or not path:
                    break
                test, path = given
            if (
                isinstance(test, Name)
                and test.context.function is function
                and any(p.name == test.id for p in function.parameters)
            ):
                return test.id, wanted
        return None

    def _is_model(self, event: Event) -> bool:
        values = list(each(self.inference.value(event.owner))) if event.owner is not None else []
        if any(isinstance(v, Object) and v.role in ("loss", "engine") for v in values):
            return False
        if any(self._is_loss(v) for v in values):
            return False
        if any(isinstance(v, Object) and v.role == "pretrained" for v in values):
            return False  # `from_pretrained` gives a model in eval mode
        if any(
            isinstance(v, Object)
            and v.call is not None
            and v.call.attr in ("from_pretrained", "load", "deepcopy", "AveragedModel")
            for v in values
        ):
            return False  # a saved or copied module keeps the mode it had
        return True

    def _is_loss(self, value: Value) -> bool:
        """A loss that the project defines as a module; not a model that gives its loss."""
        return (
            isinstance(value, Object)
            and value.cls is not None
            and LOSS_CLASS.search(value.cls.name) is not None
            and self.semantics.layers.depends_on_mode(value) is False
        )

    def _trains_here(self, loop: BatchLoop, event: Event) -> bool:
        frame = loop.frame
        place = frame.parent if frame.parent is not None else frame
        verdict = self._at(place, loop.record.order, frame, event, (), 0)
        return verdict is not None and not verdict.switched and verdict.trained

    # ------------------------------------------------------------------------------------- one place, then callers

    def _at(
        self, context: Context, order: int, inside: Context | None, event: Event, prefix: Path, depth: int
    ) -> _Verdict | None:
        """What happened to the model of `event` before a place. `prefix` leads from here to the event's own path."""
        function = context.function
        subject = self.steps.identity.of(event.owner, (*prefix, *event.path)) if event.owner is not None else None
        if subject is None:
            return None
        body = function.inner if function is not None else context.module.inner
        events = self._before(body, context, order, inside)
        switched = self._in_with(context) or (function is not None and self._decorated(function))
        trained = False
        for one in events:
            if one.kind in _SETS_EVAL and self._may_be(one, subject):
                switched = True
            elif one.kind == TRAIN_MODE and self._is(one, subject):
                trained = True
            elif one.kind == BACKWARD:
                trained = trained or self._feeds(events, one, subject)
        if switched or self._explicit(events, subject, inside):
            return _Verdict(True, trained)
        if self._switched_in_class(subject, context):
            return _Verdict(True, trained)
        known = self._is_built(subject, body)
        if function is None:
            return _Verdict(False, trained or known)
        if frameworks.hook_phase(self.inference, function) is not None or self._is_framework(function):
            return None
        sites = self.inference.callgraph.callers(function)
        if not sites or depth > _DEEPEST or len(sites) > 12:
            return _Verdict(False, trained or known) if not sites else None
        results = [
            self._at(site.call.context, site.call.order, None, event, (site.call, *prefix), depth + 1) for site in sites
        ]
        if any(r is None or r.switched for r in results):
            return _Verdict(True, trained)
        return _Verdict(False, trained or any(r.trained for r in results if r is not None))

    def _before(self, body: Context, context: Context, order: int, inside: Context | None) -> list[Event]:
        """The events of a function that can have run when a place is reached: before it, or in a loop around both."""
        loops = [f for f in context.local_frames() if f.kind == "loop"]
        found = []
        for event in self.steps.of_body(body).events:
            top = event.top
            if inside is not None and top.context.within(inside):
                if event.kind in _SETS_EVAL:
                    found.append(event)
                continue
            if top.order < order or any(top.context.within(f) for f in loops):
                if top.order != order:
                    found.append(event)
        return found

    def _explicit(self, events: list[Event], subject: Subject, inside: Context | None) -> bool:
        """`model.train()` straight before an evaluation loop and nothing that trains: statistics are collected, or dropout is wanted."""
        if inside is None or any(e.kind == BACKWARD for e in events):
            return False
        return any(e.kind == TRAIN_MODE and not e.path and self._is(e, subject) for e in events)

    def _feeds(self, events: list[Event], backward: Event, subject: Subject) -> bool:
        return any(e.kind == FORWARD and e.path[:1] == backward.path[:1] and self._is(e, subject) for e in events)

    def _is(self, event: Event, subject: Subject) -> bool:
        other = self.steps.subject(event)
        return other is not None and self.steps.identity.same(other, subject) is True

    def _may_be(self, event: Event, subject: Subject) -> bool:
        """Whether an eval() may concern a model: the same, unknown, a whole of which it is a part, or a member of a list."""
        other = self.steps.subject(event)
        if other is None or "each" in other.key or "each" in subject.key or "[]" in other.key:
            return True
        if subject.key[: len(other.key)] == other.key:
            return True
        return self.steps.identity.same(other, subject) is not False or self.steps.identity.holds(other, subject)

    def _is_built(self, subject: Subject, body: Context) -> bool:
        """The model is made in sight, so that no caller outside can have switched it."""
        return any(builder.context.within(body) for builder in subject.builders)

    # ------------------------------------------------------------------------------------------- other ways to switch

    def _in_with(self, context: Context) -> bool:
        """`with evaluating(model):`"""
        for frame in context.local_frames():
            if frame.kind == "with" and isinstance(frame.record, With):
                for item in frame.record.items:
                    if isinstance(item.value, Call) and self._enters_eval(item.value):
                        return True
        return False

    def _enters_eval(self, call: Call) -> bool:
        for value in each(self.inference.value(call)):
            if isinstance(value, Object) and value.cls is not None:
                for name in ("__enter__", "__init__"):
                    method = self.inference.method(value.cls, name)
                    if method is not None and self._sets_eval(method):
                        return True
        return any(self._sets_eval(c.function) for c in self.inference.callgraph.callees(call))

    def _sets_eval(self, function: Function) -> bool:
        return any(e.kind in _SETS_EVAL for e in self.steps.of_function(function).events)

    def _decorated(self, function: Function) -> bool:
        """A decorator of the project that switches to eval mode."""
        for decorator in function.decorators:
            callee: Expr = decorator.callee if isinstance(decorator, Call) else decorator
            for value in each(self.inference.value(callee)):
                if isinstance(value, Routine):
                    inner = [f for f in value.function.module.functions if f.inner.within(value.function.inner)]
                    if any(self._sets_eval(f) for f in inner):
                        return True
        return False

    def _switched_in_class(self, subject: Subject, context: Context) -> bool:
        """A model that an object keeps: any method of its class that only switches to eval, without training there."""
        if not subject.key or subject.key[0] != "self" or context.cls is None:
            return False
        for method in context.cls.methods.values():
            events = self.steps.of_function(method).events
            if any(e.kind in (BACKWARD, TRAIN_MODE) for e in events):
                continue
            if any(e.kind in _SETS_EVAL and self._may_be(e, subject) for e in events) and not self._loops(events):
                return True
        return False

    def _loops(self, events: tuple[Event, ...]) -> bool:
        return any(e.kind == FORWARD for e in events)

    def _is_framework(self, function: Function) -> bool:
        return function.cls is not None and frameworks.class_framework(self.inference, function.cls) is not None


def _tested(test: Expr) -> tuple[Expr, bool | str]:
    """What a condition asks about, and what it has to be."""
    if isinstance(test, Compare) and test.ops == ("==",):
        subject, value = test.operands
        if isinstance(value, Constant) and isinstance(value.value, str):
            return subject, value.value
    return test, True

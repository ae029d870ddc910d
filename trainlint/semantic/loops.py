"""Batch loops: the innermost loops whose body runs once per batch, and what they are for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.records import NamedTuple
from trainlint.semantic import walk
from trainlint.semantic.facts import (
    Binding,
    Call,
    Comprehension,
    Context,
    Expr,
    For,
    Function,
    Jump,
    Module,
    Name,
    Return,
    Sequence,
    Statement,
    While,
)
from trainlint.semantic.values import Batch, Items, Object, Tensor, Type, Unknown, Value, each
from trainlint.semantic.work import BACKWARD, FORWARD, STEP, Summary, Work

if TYPE_CHECKING:
    from trainlint.semantic.inference import Inference

LoopRecord = For | While | Comprehension


class BatchLoop(NamedTuple):
    """`phase`: "train" when a backward runs in it, "eval" when a model runs without, else "other".
    `source`: "loader" when it draws from a loader, "steps" when it is known by the work in it."""

    record: LoopRecord
    frame: Context
    phase: str
    source: str
    work: Summary


class Loops:
    def __init__(self, inference: Inference, work: Work) -> None:
        self.inference = inference
        self.work = work
        self._active: set[int] = set()

    def batch_loop(self, frame: Context) -> BatchLoop | None:
        """The batch loop whose body a loop frame is, None when it is another kind of loop."""
        memo, question = frame.module.memo, ("batch loop", id(frame))
        if question not in memo:
            key = id(frame)
            if key in self._active:
                return None
            self._active.add(key)
            try:
                memo[question] = self._classify(frame)
            finally:
                self._active.discard(key)
        return memo[question]  # type: ignore[no-any-return]

    def of_module(self, module: Module) -> list[BatchLoop]:
        """All batch loops of a file, in source order."""
        found = []
        for frame in loop_frames(module):
            loop = self.batch_loop(frame)
            if loop is not None:
                found.append(loop)
        return found

    def _classify(self, frame: Context) -> BatchLoop | None:
        record: LoopRecord = frame.record
        calls = self.calls_of(frame)
        work = self.work.within(calls, frame)
        everything = work.once | work.looped
        phase = "train" if BACKWARD in everything else "eval" if FORWARD in everything else "other"
        if self._draws_from_loader(record, frame):
            return BatchLoop(record, frame, phase, "loader", work)
        if isinstance(record, For) and everything & {BACKWARD, FORWARD} and self._draws_by_use(record):
            return BatchLoop(record, frame, phase, "loader", work)
        yielding = self._yields_to(frame)
        if yielding is not None:
            return BatchLoop(record, frame, yielding.phase, "loader", yielding.work)
        if isinstance(record, Comprehension) or self._waits_for_a_person(frame, calls):
            return None
        drawn = self._draws_from_working_generator(record, frame) if isinstance(record, For) else None
        if drawn is not None:
            return drawn
        if BACKWARD in work.once or STEP in work.once:
            return BatchLoop(record, frame, "train", "steps", work)
        if FORWARD in work.once and FORWARD not in work.looped and phase == "eval" and self._evaluates(frame, calls):
            return BatchLoop(record, frame, "eval", "steps", work)
        return None

    def calls_of(self, frame: Context) -> list[Call]:
        function: Function | None = frame.function
        return function.calls if function is not None else [c for c in frame.module.calls if c.context.function is None]

    def _waits_for_a_person(self, frame: Context, calls: list[Call]) -> bool:
        """`while True: text = input()`"""
        return any(c.attr == "input" and isinstance(c.callee, Name) and c.context.within(frame) for c in calls)

    # --------------------------------------------------------------------------------------------- from a loader

    def _draws_from_loader(self, record: LoopRecord, frame: Context) -> bool:
        if isinstance(record, For):
            return is_loader(self.inference, self.inference.value(record.iter))
        if isinstance(record, Comprehension):
            return is_loader(self.inference, self.inference.value(record.generators[0].iter))
        # while ...: batch = next(it)
        for call in self.calls_of(frame):
            if call.attr == "next" and call.args and call.context.within(frame):
                held = self.inference.value(call.args[0])
                if any(
                    isinstance(v, Object) and v.role == "iterator" and v.inner and is_loader(self.inference, v.inner[0])
                    for v in each(held)
                ):
                    return True
        return False

    def _draws_by_use(self, record: For) -> bool:
        """What is iterated is not known, but what it gives is moved to a device: it is a loader in all but name."""
        if not all(isinstance(v, Unknown) for v in each(self.inference.value(record.iter))):
            held = self.inference.element(self.inference.value(record.iter))
            parts = [p for v in each(held) for p in (v.elements or (v.element,) if isinstance(v, Items) else (v,))]
            if not any(isinstance(p, Unknown) for p in parts):
                return False
        return any(isinstance(self.inference.value(name), Batch) for name in _targets(record.target))

    def _yields_to(self, frame: Context) -> BatchLoop | None:
        """The batch loop that draws from this loop, when it is the inside of a generator: `yield` once per turn."""
        function = frame.function
        if function is None or not any(y.context.within(frame) for y in function.yields):
            return None
        for site in self.inference.callgraph.callers(function):
            for loop in site.call.context.module.loops:
                if isinstance(loop, For) and loop.body and _contains(loop.iter, site.call):
                    inner = next((f for f in loop.body[0].context.frames() if f.record is loop), None)
                    found = self.batch_loop(inner) if inner is not None else None
                    if found is not None:
                        return found
        return None

    def _draws_from_working_generator(self, record: For, frame: Context) -> BatchLoop | None:
        """`for loss in training_steps():`, where the generator does the work and yields once per step."""
        for call in (part for part in walk.inside(record.iter) if isinstance(part, Call)):
            for callee in self.inference.callgraph.callees(call):
                for one in callee.function.yields:
                    inner = next((f for f in one.context.local_frames() if f.kind == "loop"), None)
                    if inner is None or inner is frame:
                        continue
                    work = self.work.within(callee.function.calls, inner)
                    if BACKWARD in work.once:
                        return BatchLoop(record, frame, "train", "loader", work)
                    if FORWARD in work.once and self._draws_from_loader(inner.record, inner):
                        return BatchLoop(record, frame, "eval", "loader", work)
        return None

    # ------------------------------------------------------------------------------------- evaluation by content

    def _evaluates(self, frame: Context, calls: list[Call]) -> bool:
        """A loop that runs a model on new data in each turn; not one over layers, time steps, or its own output."""
        function = frame.function
        if function is not None and self._belongs_to_module(function):
            return False
        record = frame.record
        if isinstance(record, For):
            element = self.inference.element(self.inference.value(record.iter))
            if any(isinstance(v, Object) and v.role in ("module", "loss") for v in each(element)):
                return False
        for call in calls:
            if (
                call.context.within(frame)
                and FORWARD in self.work.of_call(call).once
                and not any(isinstance(v, Type) for v in each(self.inference.value(call.callee)))
                and self._on_new_data(call, frame)
            ):
                return True
        return False

    def _belongs_to_module(self, function: Function) -> bool:
        """Code of a model: a method of a Module, where loops are over layers and time steps."""
        cls = function.inner.cls
        return cls is not None and self.inference.role(cls) in ("module", "loss")

    def _on_new_data(self, call: Call, frame: Context) -> bool:
        """On a value that each turn makes anew, other than a model or what the same model gave in the turn before."""
        bound = {b.name for b in _bindings_in(frame)}
        model = walk.root(call.callee)
        if isinstance(model, Name) and any(b.name == model.id and _is_of_turn(b, bound) for b in _bindings_in(frame)):
            return False  # each turn has a model of its own: a loop over models
        results = {b.name for b in _bindings_in(frame) if b.value is not None and _contains(b.value, call)}
        for argument in [*call.args, *(k.value for k in call.keywords)]:
            if self._is_model(argument):
                continue
            for name in _names(argument):
                if name in results:
                    return False
                if name in bound:
                    return True
        return False

    def _is_model(self, expr: Expr) -> bool:
        values = list(each(self.inference.value(expr)))
        return all(isinstance(v, Object) and v.role in ("module", "engine", "pretrained") for v in values)


def is_loader(inference: Inference, value: Value, depth: int = 0) -> bool:
    """Whether iterating the value yields batches."""
    for one in each(value):
        if isinstance(one, Object):
            if one.role == "loader":
                return True
            if one.role == "iterator" and one.inner and depth < 4 and is_loader(inference, one.inner[0], depth + 1):
                return True
            if one.cls is not None and one.role == "object":
                # a prefetcher or wrapper of the project that yields batches
                if _holds_batch(inference.element(one)):
                    return True
        elif (isinstance(one, Items) and one.kind in ("iterator", "generator") and _holds_batch(one.element)) or (
            isinstance(one, Items)
            and one.kind in ("list", "tuple")
            and one.elements is None
            and isinstance(one.element, Batch)
        ):
            return True
    return False


def _holds_batch(value: Value, depth: int = 0) -> bool:
    for one in each(value):
        if isinstance(one, Batch):
            return True
        if isinstance(one, Tensor) and one.origin == "batch":
            return True
        if isinstance(one, Items) and depth < 2:
            parts = one.elements if one.elements is not None else (one.element,)
            if any(_holds_batch(p, depth + 1) for p in parts):
                return True
    return False


def has_one_turn(frame: Context) -> bool:
    """`for batch in loader: show(batch); break`: whatever happens, the first turn is the last one."""
    body: tuple[Statement, ...] = getattr(frame.record, "body", ())
    if not body or not (isinstance(body[-1], Return) or (isinstance(body[-1], Jump) and body[-1].kind == "break")):
        return False
    return not any(isinstance(s, Jump) and s.kind == "continue" for s in _statements_in(frame))


def _statements_in(frame: Context) -> Iterator[Statement]:
    """The statements of a loop's own turns, those of loops inside left out."""
    for statement in frame.module.statements:
        innermost = next((f for f in statement.context.frames() if f.kind == "loop"), None)
        if innermost is frame:
            yield statement


def loop_frames(module: Module) -> list[Context]:
    """The frames of all loops of a file: of `for` and `while` bodies, and of comprehensions."""
    known: list[Context] | None = module.memo.get("loop_frames")
    if known is not None:
        return known
    frames: dict[int, Context] = {}
    for record in [*module.statements, *module.calls]:
        for frame in record.context.frames():
            if id(frame) in frames:
                break
            frames[id(frame)] = frame
    found = sorted((f for f in frames.values() if f.kind == "loop"), key=lambda f: (f.record.order, f.depth))
    module.memo["loop_frames"] = found
    return found


def _is_of_turn(binding: Binding, bound: set[str]) -> bool:
    """Made in the turn, or of what the turn brings; not one of some models that are there all the time."""
    value = binding.value
    return binding.how != "assign" or value is None or isinstance(value, Call) or bool(_names(value) & bound)


def _bindings_in(frame: Context):  # type: ignore[no-untyped-def]
    scope = frame.function.locals if frame.function is not None else frame.module.names
    for bindings in scope.values():
        for binding in bindings:
            if binding.context.within(frame):
                yield binding


def _contains(expr: Expr, wanted: Expr) -> bool:
    return any(part is wanted for part in walk.inside(expr))


def _targets(target: Expr) -> list[Name]:
    """The names that a `for` binds."""
    found: list[Name] = []
    stack = [target]
    while stack:
        current = stack.pop()
        if isinstance(current, Name):
            found.append(current)
        elif isinstance(current, Sequence):
            stack.extend(current.elements)
    return found


def _names(expr: Expr) -> set[str]:
    """Plain names anywhere in an expression."""
    return {part.id for part in walk.inside(expr) if isinstance(part, Name)}

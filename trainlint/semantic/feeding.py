"""Where the batches of a loader go: the loops that draw them, what these are for, and how often they come round."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.patterns_on_use import Pattern
from trainlint.records import NamedTuple
from trainlint.semantic import loading
from trainlint.semantic.contexts import dotted_name, is_self
from trainlint.semantic.facts import (
    Assign,
    Attribute,
    Call,
    Class,
    Comprehension,
    Context,
    Expr,
    For,
    Function,
    Keyword,
    Module,
    Name,
    Return,
    Starred,
    While,
)
from trainlint.semantic.guards import OFF
from trainlint.semantic.values import Const, Items, Object, each
from trainlint.semantic.work import BACKWARD, FORWARD, STEP

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_MOST_MODULES = 60
_DEEPEST = 6
_NAMES_LOADER = Pattern(rb"DataLoader|NeighborLoader|WebLoader")  # ends of all names of loaders that can be read
_HELD_OUT = Pattern(
    r"(?:^|[^a-z])(?:val|valid|validation|validate|test|testing|eval|evaluation|dev|holdout|unseen)(?:[^a-z]|$|set|loader|data|iter|dl)",
    re.I,
)


class Feed(NamedTuple):
    """A place where batches are drawn. `frame`: the body of the loop that gets them, None outside of any loop.
    `loaders`: the calls that build what is drawn from; several where a function runs over one loader or another."""

    expr: Expr
    record: For | While | Comprehension | Call
    frame: Context | None
    phase: str  # "train", "eval", "other"
    loaders: tuple[Call, ...]
    module: Module
    begun: Context | None = None  # where the iterator is made that `next` draws from

    @property
    def outside(self) -> Context:
        """The place around the drawing loop: whenever it is reached, the loader is begun anew."""
        if self.begun is not None:
            return self.begun
        if self.frame is not None and self.frame.parent is not None:
            return self.frame.parent
        return self.expr.context


class Feeding:
    def __init__(self, script: Script) -> None:
        self.script = script  # any file of the project: it is only asked for values
        self.inference = script.inference
        self.semantics = script.semantics

    # ------------------------------------------------------------------------------------------------ the places

    def feeds(self, loader: Call) -> list[Feed]:
        """Every place in the program where batches of the loader that a call builds are drawn."""
        return [
            f
            for m in self.modules(loader.context.module)
            for f in self.of_module(m)
            if any(c is loader for c in f.loaders)
        ]

    def training(self, loader: Call) -> list[Feed]:
        """Those where a backward runs for the sake of training. Left out: of several loaders that one loop may get,
        those named as held-out data; loops over such data that take no optimizer step (attacks, saliency)."""
        found = []
        for feed in self.feeds(loader):
            if feed.phase != "train":
                continue
            if not (is_held_out(loader) and (len(feed.loaders) > 1 or not self._steps(feed))):
                found.append(feed)
        return found

    def _steps(self, feed: Feed) -> bool:
        if feed.frame is None:
            return True
        done = self.semantics.work.within(self.semantics.loops.calls_of(feed.frame), feed.frame)
        return STEP in done.once | done.looped

    def of_module(self, module: Module) -> list[Feed]:
        found: list[Feed] | None = module.memo.get("feeds")
        if found is None:
            module.memo["feeds"] = found = []
            found.extend(self._in_module(module))
        return found

    def _in_module(self, module: Module) -> Iterator[Feed]:
        for loop in module.loops:
            if isinstance(loop, For):
                yield from self._drawn(loop.iter, loop, loop.body[0].context, module)
        for comprehension in module.comprehensions:
            for generator in comprehension.generators:
                yield from self._drawn(generator.iter, comprehension, comprehension.element.context, module)
        for name in ("next", "__next__"):
            for call in module.calls_by_attr.get(name, ()):
                source = call.args[0] if call.args else call.receiver
                if source is None:
                    continue
                loaders = self._behind(source)
                if loaders:
                    hot = self.semantics.heat.hot(call)
                    frame = hot.loop.frame if hot is not None and hot.loop is not None else None
                    phase = hot.phase if hot is not None else "other"
                    yield Feed(source, call, frame, phase, loaders, module, self._begun(source))

    def _begun(self, source: Expr) -> Context | None:
        """Where `iter(loader)` stands; of several, which begin it again when it is exhausted, the first one."""
        held = each(self.inference.value(source))
        calls = [v.call for v in held if isinstance(v, Object) and v.role == "iterator" and v.call is not None]
        return min(calls, key=lambda call: (call.context.depth, call.order)).context if calls else None

    def _drawn(self, iterated: Expr, record: For | Comprehension, frame: Context, module: Module) -> Iterator[Feed]:
        loaders = self._behind(iterated)
        if loaders:
            yield Feed(iterated, record, frame, self._phase(frame), loaders, module)

    def _behind(self, expr: Expr) -> tuple[Call, ...]:
        found: dict[int, Call] = {}
        for loader in loading.loaders_behind(self.script, expr):
            if loader.call is not None:
                found[id(loader.call)] = loader.call
        return tuple(found.values())

    def _phase(self, frame: Context) -> str:
        loop = self.semantics.loops.batch_loop(frame)
        if loop is not None:
            return loop.phase
        done = self.semantics.work.within(self.semantics.loops.calls_of(frame), frame)
        everything = done.once | done.looped
        return "train" if BACKWARD in everything else "eval" if FORWARD in everything else "other"

    # ----------------------------------------------------------------------------------------------- the program

    def loaders(self, module: Module) -> list[tuple[Call, Object]]:
        """The readable loaders of the program that a file belongs to, whichever file builds them."""
        if not self.script.project.neighbours.connected_speak(module.path, _NAMES_LOADER):
            return []
        return [found for m in self.modules(module) for found in self._built_in(m)]

    def _built_in(self, module: Module) -> list[tuple[Call, Object]]:
        found: list[tuple[Call, Object]] | None = module.memo.get("loaders")
        if found is None:
            found = module.memo["loaders"] = []
            for call in module.calls:
                if not self._may_build(call):
                    continue
                for one in each(self.inference.value(call)):
                    if isinstance(one, Object) and one.role == "loader" and one.call is call:
                        if loading.is_readable(self.script, one):
                            found.append((call, one))
                        break
        return found

    def modules(self, module: Module) -> list[Module]:
        """The files of a program, seen from one of them: its importers, and what they hand loaders and datasets to."""
        found: list[Module] | None = module.memo.get("reached by loaders")
        if found is None:
            found = module.memo["reached by loaders"] = list(self.script.project.family(module.path))
            seen = {id(m) for m in found}
            for current in found:
                if len(found) > _MOST_MODULES:
                    break
                for further in self._handed_to(current):
                    if id(further) not in seen:
                        seen.add(id(further))
                        found.append(further)
        return found

    def _handed_to(self, module: Module) -> list[Module]:
        found: list[Module] | None = module.memo.get("handed loaders")
        if found is None:
            module.memo["handed loaders"] = found = []
            for cls in module.classes:
                found.extend(
                    b.module for b in self.inference.bases(cls) if isinstance(b, Class) and b.module is not module
                )
            for call in module.calls:
                if not self._may_hand_on(call):
                    continue
                if any(self._holds_loader(a) for a in [*call.args, *(k.value for k in call.keywords)]):
                    found.extend(f.module for f in self.script.callees(call) if f.module is not module)
        return found

    def _may_build(self, call: Call) -> bool:
        """Whether a call can build a loader; only the hooks of Lightning do in the code of a model."""
        cls = call.context.cls
        if cls is None or self.inference.role(cls) not in ("module", "loss"):
            return True
        return call.context.function is not None and call.context.function.name.endswith("dataloader")

    def _may_hand_on(self, call: Call) -> bool:
        """Whether a call can lead to another file: not in the code of a model, not to a function of the same file."""
        cls = call.context.cls
        if cls is not None and self.inference.role(cls) in ("module", "loss"):
            return False
        callee = call.callee
        if isinstance(callee, Name):
            bindings = call.context.module.names.get(callee.id)
            return bindings is not None and any(b.how != "define" for b in bindings)
        return isinstance(callee, Attribute) and not is_self(callee.value, call.context)

    def _holds_loader(self, expr: Expr) -> bool:
        if not isinstance(expr, (Name, Attribute, Call, Starred)):
            return False
        for value in each(self.inference.value(expr)):
            if isinstance(value, Object) and value.role in ("loader", "iterator", "dataset"):
                return True
            if isinstance(value, Items) and value.kind == "generator":
                return True
        return False

    # ---------------------------------------------------------------------------------------------------- repeats

    def around(self, context: Context) -> list[tuple[Context, tuple[Call, ...]]]:
        """The loops around a place, innermost first, through the callers; each with the calls on the way."""
        found: list[tuple[Context, tuple[Call, ...]]] = []
        self._around(context, (), set(), found)
        return found

    def _around(
        self, context: Context, calls: tuple[Call, ...], seen: set[int], found: list[tuple[Context, tuple[Call, ...]]]
    ) -> None:
        function: Function | None = None
        for frame in context.local_frames():
            if frame.kind == "loop":
                found.append((frame, calls))
            elif frame.kind == "function":
                function = frame.record
        if function is None or id(function) in seen or len(calls) >= _DEEPEST:
            return
        seen = seen | {id(function)}
        for site in self.inference.callgraph.callers(function):
            self._around(site.call.context, (*calls, site.call), seen, found)

    def epoch_loop(self, feed: Feed, loader: Call) -> Context | None:
        """The innermost loop that draws a loader again on every turn: around the drawing, not around the building."""
        built = {id(frame) for frame, _ in self.around(loader.context)}
        for frame, _ in self.around(feed.outside):
            if id(frame) not in built and frame is not feed.frame and not self.names_phases(frame):
                return frame
        return None

    def names_phases(self, frame: Context) -> bool:
        """`for phase in ["train", "val"]`: a turn for each loader."""
        iterated = getattr(frame.record, "iter", None)
        if iterated is None:
            return False
        for value in each(self.inference.value(iterated)):
            if isinstance(value, Items) and value.elements:
                return all(isinstance(e, Const) and isinstance(e.value, str) for e in value.elements)
        return False


def is_switched_off(script: Script, loader: Call) -> bool:
    """Built only when a flag is set that is off by default."""
    return any(script.semantics.guards.guard(f) == OFF for f in loader.context.local_frames() if f.kind == "branch")


def is_alternative(loader: Call, feed: Feed) -> bool:
    """Built under a condition, and the same loop gets another loader otherwise."""
    if len(feed.loaders) < 2:
        return False
    return any(f.kind == "branch" for f in loader.context.local_frames())


def is_held_out(loader: Call) -> bool:
    """Whether a loader is built under a name of validation or test data: its target, its dataset, or its function."""
    return any(_HELD_OUT.search(word) for word in _words(loader))


def is_for_training(loader: Call) -> bool:
    """Whether a loader is built under a name of training data."""
    return any("train" in word.lower() for word in _words(loader)) and not is_held_out(loader)


def _words(loader: Call) -> Iterator[str]:
    statement = loader.statement
    if isinstance(statement, Assign):
        for target in statement.targets:
            yield dotted_name(target) or ""
    elif isinstance(statement, Return) and loader.context.function is not None:
        yield loader.context.function.name
    dataset = loader.argument(0, "dataset")
    if dataset is not None:
        yield dotted_name(dataset) or ""
        if isinstance(dataset, Call):
            for part in [*dataset.args, *dataset.keywords]:
                value = part.value if isinstance(part, Keyword) else part
                text = getattr(value, "value", None)
                if isinstance(text, str):
                    yield text
                yield (dotted_name(value) or "") if isinstance(value, Expr) else ""

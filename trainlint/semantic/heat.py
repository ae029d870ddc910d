"""Hot code: what runs on every turn of a batch loop, in the loop itself or in anything it calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.records import NamedTuple
from trainlint.semantic import frameworks
from trainlint.semantic.facts import Call, Class, Context, Function, Record, WithItem
from trainlint.semantic.guards import OFF, QUIET, RARE, Guards
from trainlint.semantic.loops import BatchLoop, Loops, has_one_turn, is_loader
from trainlint.semantic.values import Object, each
from trainlint.semantic.work import BACKWARD, FORWARD, is_map

if TYPE_CHECKING:
    from trainlint.semantic.inference import Inference


class Hot(NamedTuple):
    """Why code is hot: the batch loop (None: a framework's own loop, or `map`, runs it), and the calls that lead there, nearest first.
    `flagged`: only when a flag that is off by default is set."""

    loop: BatchLoop | None
    calls: tuple[Call, ...]
    phase: str
    flagged: bool = False
    framework: str = ""


class Cold(NamedTuple):
    """Why code is not hot, for `--why`."""

    reason: str
    frame: Context | None = None


class Heat:
    def __init__(self, inference: Inference, loops: Loops, guards: Guards) -> None:
        self.inference = inference
        self.loops = loops
        self.guards = guards
        self._cold: dict[int, tuple[Function, Cold]] = {}  # as far as the question that is being answered goes
        self._active: set[int] = set()

    def hot(self, record: Record) -> Hot | None:
        """How a record is hot, None when it is not."""
        found = self.of(record.context)
        return found if isinstance(found, Hot) else None

    def of(self, context: Context) -> Hot | Cold:
        flagged = False
        for frame in context.frames():
            kind = frame.kind
            if kind == "loop":
                loop = self.loops.batch_loop(frame)
                if loop is not None and not has_one_turn(frame):
                    return Hot(loop, (), loop.phase, flagged)
            elif kind == "branch" or kind == "except":
                guard = self.guards.guard(frame)
                if guard in (RARE, QUIET):
                    return Cold("guarded", frame)
                if guard == OFF:
                    flagged = True
            elif kind == "function":
                inner = self.function(frame.record)
                if isinstance(inner, Hot):
                    return inner._replace(flagged=inner.flagged or flagged)
                return inner
            elif kind in ("class", "module"):
                break
        return Cold("not in a batch loop")

    def function(self, function: Function) -> Hot | Cold:
        """Whether a function is entered from hot code."""
        memo, question = function.module.memo, ("heat", id(function))
        found: Hot | Cold | None = memo.get(question)
        if found is not None:
            return found
        key = id(function)
        if key in self._cold:
            return self._cold[key][1]
        if key in self._active:
            return Cold("only called by itself")
        self._active.add(key)
        try:
            found = self._function(function)
        finally:
            self._active.discard(key)
        if isinstance(found, Hot):
            memo[question] = found
        else:
            # found while others are being asked: it may be hot through one of them, and that one is not hot through it
            self._cold[key] = (function, found)
        if not self._active:
            if isinstance(found, Cold):
                for other, cold in self._cold.values():  # nothing that leads here is hot
                    other.module.memo["heat", id(other)] = cold
            self._cold.clear()
        return found

    def _entered_by(self, cls: Class) -> Iterator[WithItem]:
        """The `with` items that enter an object of a class."""
        for module in self.inference.project.family(cls.module.path, (cls.name,)):
            for statement in module.withs:
                for item in statement.items:
                    if any(isinstance(v, Object) and v.cls is cls for v in each(self.inference.value(item.value))):
                        yield item

    def _function(self, function: Function) -> Hot | Cold:
        phase = frameworks.hook_phase(self.inference, function)
        if phase is not None:
            return Hot(None, (), phase, False, frameworks.hook_owner(self.inference, function))
        if function.name in self.inference.hot_functions or function.qualname in self.inference.hot_functions:
            return Hot(None, (), "train", False, "the configuration (hot-functions)")
        cold: Cold | None = None
        flagged: Hot | None = None
        if function.cls is not None and function.name in ("__enter__", "__exit__"):
            for item in self._entered_by(function.cls):
                found = self.of(item.context)
                if isinstance(found, Hot) and not found.flagged:
                    return found._replace(calls=(item.value, *found.calls)) if isinstance(item.value, Call) else found
        for site in self.inference.callgraph.callers(function):
            found = self._mapped(function, site.call) or self.of(site.call.context)
            if isinstance(found, Hot):
                hot = found._replace(calls=(site.call, *found.calls))
                if not hot.flagged:
                    return hot
                flagged = flagged or hot
            elif cold is None or found.reason == "guarded":
                cold = found
        return flagged or cold or Cold("no caller is known")

    def _mapped(self, function: Function, call: Call) -> Hot | None:
        """`list(map(step, loader))`: the function is the body of a batch loop."""
        if not is_map(call) or not is_loader(self.inference, self.inference.value(call.args[1])):
            return None
        done = self.loops.work.of_function(function)
        everything = done.once | done.looped
        return Hot(None, (), "train" if BACKWARD in everything else "eval" if FORWARD in everything else "other")

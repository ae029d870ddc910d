"""What `torch.compile` is given, where, and which code of the project therefore runs compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainlint.patterns_on_use import Pattern
from trainlint.records import NamedTuple
from trainlint.semantic import walk
from trainlint.semantic.contexts import dotted_name
from trainlint.semantic.facts import (
    Call,
    Compare,
    Comprehension,
    Constant,
    Context,
    Expr,
    For,
    Function,
    Module,
    Name,
    Record,
    While,
)
from trainlint.semantic.guards import OFF, QUIET, RARE
from trainlint.semantic.values import External, Object, each
from trainlint.semantic.work import BACKWARD, FORWARD, STEP

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

COMPILE = "torch.compile"
_SPEAKS = Pattern(rb"\bcompile\b")
_TEST = Pattern(r"[\\/](?:tests?[\\/]|test_[^\\/]*$|conftest)")
_NOT_TRACED = frozenset({"disable", "skip", "disallow_in_graph", "allow_in_graph", "ignore"})


class Compilation(NamedTuple):
    """`record`: the call, or the decorator; `target`: what is compiled, None for a decorated function."""

    record: Expr
    target: Expr | None
    function: Function | None


def compilations(script: Script, module: Module | None = None) -> list[Compilation]:
    """Calls of `torch.compile` with something to compile, and functions that it decorates."""
    module = module if module is not None else script.module
    known: list[Compilation] | None = module.memo.get("compilations")
    if known is None:
        known = module.memo["compilations"] = _compilations(script, module)
    return known


def _compilations(script: Script, module: Module) -> list[Compilation]:
    found: list[Compilation] = []
    decorators: set[int] = set()
    for function in module.functions:
        for decorator in function.decorators:
            named = decorator.callee if isinstance(decorator, Call) else decorator
            if _is_compile(script, named):
                decorators.add(id(decorator))
                found.append(Compilation(decorator, None, function))
    for call in module.calls:
        if (
            id(call) not in decorators
            and call.args
            and _may_be_compile(module, call)
            and _is_compile(script, call.callee)
        ):
            found.append(Compilation(call, call.args[0], None))
    return found


def _may_be_compile(module: Module, call: Call) -> bool:
    return call.attr == "compile" or (isinstance(call.callee, Name) and call.callee.id in module.names)


def _is_compile(script: Script, callee: Expr) -> bool:
    return any(isinstance(v, External) and v.name == COMPILE for v in each(script.value(callee)))


# ------------------------------------------------------------------------------------------------------- once or often


def repeated(script: Script, place: Compilation) -> Record | None:
    """The training or evaluation loop on each turn of which something new is compiled."""
    context = place.function.context if place.function is not None else place.record.context
    return _repeated(script, context, place, set())


def _repeated(script: Script, context: Context, place: Compilation, seen: set[int]) -> Record | None:
    for frame in context.local_frames():
        if frame.kind == "branch" and (
            script.semantics.guards.guard(frame) in (RARE, OFF, QUIET) or _asks_for_none(frame)
        ):
            return None
        if frame.kind in ("except", "case"):
            return None
        if frame.kind == "loop":
            record = frame.record
            if isinstance(record, Comprehension) or _draws_target(record, place):
                return None
            if _works(script, frame):
                return record  # type: ignore[no-any-return]
    function = context.function
    if function is None or id(function) in seen or function.name in ("__init__", "forward", "setup"):
        return None
    seen.add(id(function))
    hot = script.semantics.heat.function(function)
    loop = getattr(hot, "loop", None)
    return loop.record if loop is not None and not hot.flagged else None  # type: ignore[union-attr]


def _asks_for_none(frame: Context) -> bool:
    """`if self.fast is None:`, `if not hasattr(self, "fast"):`, `if key not in cache:`"""
    for part in walk.inside(frame.test) if frame.test is not None else ():
        if isinstance(part, Compare) and any(op in ("is", "is not", "in", "not in") for op in part.ops):
            return True
        if isinstance(part, Call) and part.attr == "hasattr":
            return True
    return False


def _draws_target(record: For | While, place: Compilation) -> bool:
    """A loop over the parts of a model, each compiled once: `for block in blocks: block = torch.compile(block)`."""
    if not isinstance(record, For) or place.target is None:
        return False
    drawn = {n.id for n in walk.inside(record.target) if isinstance(n, Name)}
    return any(isinstance(n, Name) and n.id in drawn for n in walk.inside(place.target))


def _works(script: Script, frame: Context) -> bool:
    """Whether a model runs in the loop: it is an epoch or a batch loop, not one over settings."""
    work = script.semantics.work.within(script.semantics.loops.calls_of(frame), frame)
    return bool((work.once | work.looped) & {FORWARD, BACKWARD, STEP})


# ------------------------------------------------------------------------------------------------------ compiled code


def compiled_functions(script: Script) -> dict[int, tuple[Function, Expr]]:
    """Functions of the project that `torch.compile` traces, by identity, with the place where that is said."""
    found: dict[int, tuple[Function, Expr]] | None = script.module.memo.get("compiled")
    if found is None:
        found = script.module.memo["compiled"] = _find(script)
    return found


def _find(script: Script) -> dict[int, tuple[Function, Expr]]:
    graph = script.inference.callgraph
    stack: list[tuple[Function, Expr]] = []
    for module in script.semantics.program.modules(script.module, _SPEAKS):
        if module is not script.module and _TEST.search(module.path):
            continue  # a test compiles whatever it is given
        for place in compilations(script, module):
            if place.function is not None:
                stack.append((place.function, place.record))
            elif place.target is not None:
                call = place.record
                assert isinstance(call, Call)
                for value in each(script.value(place.target)):
                    stack.extend((c.function, place.record) for c in graph.enters(value, call))
        for call in module.calls_by_attr.get("compile", ()):
            if call.receiver is not None:
                for value in each(script.value(call.receiver)):
                    if isinstance(value, Object) and value.role == "module":
                        stack.extend((c.function, call) for c in graph.enters(value, call))
    found: dict[int, tuple[Function, Expr]] = {}
    while stack:
        function, reason = stack.pop()
        if id(function) in found or _is_left_out(function):
            continue
        found[id(function)] = (function, reason)
        for call in function.calls:
            stack.extend((c.function, reason) for c in graph.callees(call))
    return found


def _is_left_out(function: Function) -> bool:
    """`@torch.compiler.disable`: the tracer goes around it."""
    for decorator in function.decorators:
        name = dotted_name(decorator.callee if isinstance(decorator, Call) else decorator) or ""
        if name.rpartition(".")[2] in _NOT_TRACED:
            return True
    return False


def is_traced(script: Script, context: Context) -> bool:
    """Whether a place is certain to be traced: no Python condition that is usually false stands around it."""
    for frame in context.local_frames():
        if frame.kind in ("except", "case"):
            return False
        if frame.kind == "branch" and frame.test is not None:
            if script.semantics.guards.guard(frame) in (RARE, OFF, QUIET) or _asks_tracer(frame.test):
                return False
    return True


def _asks_tracer(test: Expr) -> bool:
    for part in walk.inside(test):
        name = getattr(part, "attr", None) or getattr(part, "id", None)
        if name in ("is_compiling", "is_dynamo_compiling", "is_exporting", "is_scripting", "is_tracing", "training"):
            return True
        if isinstance(part, Constant) and part.value is None:
            return True
    return False

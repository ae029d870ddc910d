"""Which part of a script runs it, and may go under `if __name__ == "__main__":` so that worker processes do not run it.

A worker that is spawned imports the script. It needs the classes and functions of its dataset, and every global name
that these read; it must not start the run again.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from trainlint.semantic import loading, reading, walk
from trainlint.semantic.entry import is_main_test
from trainlint.semantic.facts import (
    Assign,
    Call,
    Case,
    Constant,
    Define,
    Evaluate,
    Function,
    Handler,
    If,
    Import,
    Module,
    Name,
    Operator,
    Statement,
)

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

# what a process that imports the script must not do again
_ONCE = ("set_start_method", "init_process_group", "spawn", "backward")
_CALLED_BY_LOADERS = ("__getitem__", "__getitems__", "__iter__", "__call__")


def run_of(script: Script, loader: Call) -> tuple[Statement, ...]:
    """The statements from where the run begins to the end of the file; none where they cannot all go under a guard."""
    module = script.module
    body = module.body
    if not _starts(script, loader):
        return ()
    used = [index for other, _ in script.objects("loader") if _may_have_workers(script, other)
            for index in _starts(script, other)]  # fmt: skip
    first = min(used)
    if any(_defines(statement) or _is_guard(statement) for statement in body[first:]):
        return ()
    start = max((i + 1 for i in range(first) if _defines(body[i]) or isinstance(body[i], Import)), default=0)
    while start < first and _is_plain(module, body[start]):
        start += 1
    needed = _read_by_workers(script, module)
    for name, bindings in module.names.items():
        if name in needed:
            start = max(start, *(_index(module, b.order) + 1 for b in bindings if b.context.function is None), 0)
    if start > first or _runs_before(script, module, start):
        return ()
    return body[start:]


def _may_have_workers(script: Script, loader: Call) -> bool:
    workers = loading.workers(script, loader)
    return workers is not None and workers.some


def _starts(script: Script, loader: Call) -> list[int]:
    """The statements of the file from which, without a guard, a loader is iterated."""
    return [
        _index(script.module, place.order)
        for use in loading.uses(script, loader)
        for place in script.semantics.entry.unguarded_starts(use.expr)
        if place.context.module is script.module
    ]


def _index(module: Module, order: int) -> int:
    """The place in the file of the top-level statement that something stands in."""
    return max(bisect_right([statement.order for statement in module.body], order) - 1, 0)


def _defines(statement: Statement) -> bool:
    """Whether it defines a class or function of the module, which a worker may have to find."""
    pending: list[object] = [statement]
    for current in pending:
        if isinstance(current, Define):
            return True
        if isinstance(current, (Statement, Handler, Case)):
            for part in current.parts:
                child = getattr(current, part)
                pending.extend(child if isinstance(child, tuple) else ())
    return False


def _is_guard(statement: Statement) -> bool:
    return isinstance(statement, If) and (
        is_main_test(statement.test)
        or any(isinstance(e, Name) and e.id == "__name__" for e in walk.inside(statement.test))
    )


def _is_plain(module: Module, statement: Statement) -> bool:
    """A docstring, or a name for a value that is written out, once: `EPOCHS = 20`."""
    value = getattr(statement, "value", None) if isinstance(statement, (Assign, Evaluate)) else None
    if value is None or not all(isinstance(e, (Constant, Operator)) for e in walk.inside(value)):
        return False
    targets = statement.targets if isinstance(statement, Assign) else ()
    return all(isinstance(t, Name) and len(module.names.get(t.id, ())) == 1 for t in targets)


def _read_by_workers(script: Script, module: Module) -> set[str]:
    """The names of the module that code which may run in worker processes reads: of datasets and transforms, and of
    functions that are handed on as values."""
    functions: dict[int, Function] = {}
    for loader, _ in script.objects("loader"):
        for function in reading.item_functions(script, loader):
            functions[id(function)] = function
    for cls in module.classes:
        if script.role(cls) not in ("module", "loss") and any(name in cls.methods for name in _CALLED_BY_LOADERS):
            functions.update((id(method), method) for method in cls.methods.values())
    called = {id(call.callee) for call in module.calls}
    handed = {name.id for name in walk.names_read(module) if id(name) not in called}
    functions.update((id(f), f) for f in module.functions if f.cls is None and f.name in handed)
    everything = {id(f) for f, _ in reading.entered(script, list(functions.values()))}
    return {name.id for name in walk.names_read(module) if any(id(f) in everything for f in _around(name))}


def _around(name: Name) -> list[Function]:
    """The functions around a name that is none of their own."""
    found: list[Function] = []
    for frame in name.context.frames():
        if frame.kind == "function":
            function: Function = frame.record
            if name.id in function.locals and name.id not in function.outer_names:
                return []
            found.append(function)
    return found


def _runs_before(script: Script, module: Module, start: int) -> bool:
    """Whether what stays outside would still do in a worker what may be done once only."""
    return any(
        place.context.module is module and _index(module, place.order) < start
        for name in _ONCE
        for call in module.calls_by_attr.get(name, ())
        for place in script.semantics.entry.unguarded_starts(call)
    )

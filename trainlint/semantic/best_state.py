"""Weights that are kept while the model trains on: whether it does, and where what was kept is used afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.semantic import walk
from trainlint.semantic.bindings import lookup
from trainlint.semantic.contexts import dotted_name, is_self
from trainlint.semantic.facts import Attribute, Call, Context, Expr, Jump, Mapping, Name, Return, Statement, Subscript
from trainlint.semantic.step import BACKWARD
from trainlint.semantic.values import Object, each

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_SAVES = frozenset({"save", "save_checkpoint", "save_model", "dump"})
_DEEPEST = 3


def trains_on(script: Script, model: Expr, statement: Statement) -> Context | None:
    """The outermost loop around a statement that goes on training a model that was there before the loop."""
    found: Context | None = None
    if _leaves(statement):
        return None
    for frame in statement.context.local_frames():
        if _trains(script, frame) and not _made_within(model, frame):
            found = frame
    return found


def trains_in_callers(script: Script, context: Context, depth: int = 0) -> bool:
    """Whether a function is called in a loop that trains."""
    if context.function is None or depth > _DEEPEST:
        return False
    for site in script.inference.callgraph.callers(context.function):
        if any(_trains(script, frame) for frame in site.call.context.local_frames()):
            return True
        if trains_in_callers(script, site.call.context, depth + 1):
            return True
    return False


def _trains(script: Script, frame: Context) -> bool:
    is_loop = frame.kind == "loop" and hasattr(frame.record, "body")
    return is_loop and bool(script.semantics.steps.of_loop(frame).of(BACKWARD))


def _leaves(statement: Statement) -> bool:
    """`best = net.state_dict(); break`: that is the end of the training."""
    rest = statement.block[statement.index + 1 :]
    return any(isinstance(s, Return) or (isinstance(s, Jump) and s.kind == "break") for s in rest)


def _made_within(model: Expr, frame: Context) -> bool:
    """Whether each turn of a loop makes its own model."""
    root = walk.root(model)
    if not isinstance(root, Name):
        return False
    return any(b.how != "augment" and b.context.within(frame) for b in lookup(root, root.id)[0])


def loaded_or_saved(script: Script, kept: str, statement: Statement, loop: Context | None) -> Expr | None:
    """Where `best` is loaded, saved or returned, at another place than right after it was kept."""
    if kept.startswith("self."):
        return _through_object(script, kept, statement)
    for use in _uses(script, kept, statement):
        if loop is not None and use.context.within(loop) and not _is_load(use):
            continue  # of what happens on each turn only a load is known to want the best
        return use
    return None


def read_after_training(script: Script, model: Expr, statement: Statement, kept: str) -> Expr | None:
    """Where a list of the weights of each turn, made before the loop, is read behind it."""
    loop = trains_on(script, model, statement)
    if loop is None or saved_at_once(statement, kept):
        return None
    function = statement.context.function
    bindings = function.locals.get(kept, []) if function is not None else script.module.names.get(kept, [])
    if not bindings or any(b.how != "assign" or b.context.within(loop) for b in bindings):
        return None
    for name in walk.names_read(script.module):
        if name.id == kept and name.context.function is function and name.order > statement.order:
            if not name.context.within(loop):
                return name
    return None


def _uses(script: Script, kept: str, statement: Statement) -> Iterator[Expr]:
    function = statement.context.function
    for attr in ("load_state_dict", *sorted(_SAVES)):
        for call in script.module.calls_by_attr.get(attr, ()):
            if call.context.function is function and not _on_the_spot(call, statement):
                if call.args and _holds(call.args[0], kept):
                    yield call
    for returned in function.returns if function is not None else ():
        if returned.value is not None and not _on_the_spot(returned, statement):
            found = [e for e in walk.inside(returned.value) if isinstance(e, Name) and e.id == kept]
            if found:
                yield found[0]


def _is_load(use: Expr) -> bool:
    return isinstance(use, Call) and use.attr == "load_state_dict"


def _on_the_spot(use: Expr | Statement, statement: Statement) -> bool:
    """Copied into another module, or written, right where it was kept."""
    own = use.statement if isinstance(use, Call) else use
    return getattr(own, "block", None) is statement.block or use.context.within(statement.context)


def _through_object(script: Script, kept: str, statement: Statement) -> Call | None:
    """`module.load_state_dict(self.best)` in the class, `net.load_state_dict(stopper.best)` anywhere in the program."""
    name, cls = kept.split(".")[1], statement.context.cls
    for module in script.project.family(script.path, words=(name,)):
        for attr in ("load_state_dict", *sorted(_SAVES)):
            for call in module.calls_by_attr.get(attr, ()):
                held = call.args[0] if call.args else None
                while isinstance(held, Subscript):
                    held = held.value
                if not isinstance(held, Attribute) or held.attr != name or _on_the_spot(call, statement):
                    continue
                if is_self(held.value, held.context):
                    if held.context.cls is cls:
                        return call
                elif any(isinstance(v, Object) and v.cls is cls for v in each(script.value(held.value))):
                    return call
    return None


def _holds(expr: Expr, kept: str) -> bool:
    """`best`, `best["weights"]`, `best.state_dict()`, `{"model": best}`"""
    if isinstance(expr, Mapping):
        return any(_holds(value, kept) for value in expr.values)
    if isinstance(expr, Call) and expr.attr == "state_dict" and expr.receiver is not None:
        expr = expr.receiver
    return name_of(expr) == kept


def saved_at_once(statement: Statement, kept: str) -> bool:
    """Whether what was kept is written to disk in the same block."""
    for other in statement.block[statement.index + 1 :]:
        for expr in walk.inside(other):
            if isinstance(expr, Call) and expr.attr in _SAVES and any(_holds(a, kept) for a in expr.args):
                return True
    return False


def name_of(expr: Expr) -> str | None:
    """`best`, `self.best`; `record["weights"]` and `self.record["weights"]` by the dictionary they lie in."""
    while isinstance(expr, Subscript):
        expr = expr.value
    return dotted_name(expr) if isinstance(expr, (Name, Attribute)) else None

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules import describe, rewrites
from trainlint.rules.rule import Hit, Rewrite, Rule
from trainlint.semantic import arguments, checkpoints, walk
from trainlint.semantic.facts import Assign, Call, Compare, Constant, Delete, Expr, Name, Subscript
from trainlint.semantic.values import Const, Object, each

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_OF_MODULES = ("eval", "train", "forward", "generate", "parameters")


class LoadWithoutMapLocation(Rule):
    """`torch.load` without `map_location` puts every tensor back on the device that it was saved from.

    ## Why is this bad?

    A checkpoint written on `cuda:0` is read back onto `cuda:0`: by every rank of a distributed run, which fills the first
    GPU with one copy per process; beside the model that is there already, which doubles the peak; and not at all on a
    machine without that GPU ("Attempting to deserialize object on a CUDA device").

    ## Example

    ```python
    model.load_state_dict(torch.load("last.pt"))
    ```

    ## Use instead

    ```python
    model.load_state_dict(torch.load("last.pt", map_location="cpu"))   # load_state_dict copies to where the model is
    ```

    ## When it is silent

    In programs that use no accelerator; where `map_location` is given or may be; for files whose tensors this program
    writes from the CPU. In a script that is not distributed it is advice.

    ## Fix safety

    Unsafe in general: tensors that are used as they were loaded are then on the CPU. Safe where all that happens to the
    loaded object is `load_state_dict`, and not one that the project wrote. No fix with `assign=True`, or for a whole module
    that is not moved afterwards: both would stay on the CPU.

    ## Measured by `trainlint verify`

    Peak device memory while loading.

    ## References

    - torch.load, "map_location"
    - PyTorch, "Getting Started with Distributed Data Parallel: Save and Load Checkpoints"
    """

    code = "TL904"
    name = "load-without-map-location"
    level = Level.ADVICE
    claim = Claim.MEMORY
    message = "{call} puts the tensors back on the device they were saved from{ranks}"
    why = "a copy of the checkpoint fills the GPU it came from, and a machine without that GPU cannot read it"
    help = 'pass map_location="cpu" (load_state_dict then copies to where the model is)'
    triggers = ((b"torch", b"load"),)

    def check(self, script: Script) -> Iterator[Hit]:
        if not script.uses_accelerator():
            return
        for call in script.calls(*checkpoints.LOADS):
            if not self._is_missing(script, call) or self._holds_cpu_tensors(script, call):
                continue
            ranks = script.semantics.ranks
            every = ranks.is_distributed(call.context) and ranks.restricted(call.context) is None
            level = Level.WARNING if every else Level.ADVICE
            values = {"call": describe.text(call), "ranks": ": every rank fills the same GPU" if every else ""}
            yield Hit(call, values, level, rewrite=self._rewrite(script, call))

    def _rewrite(self, script: Script, call: Call) -> Rewrite | None:
        if any(load.argument(2, "assign") is not None for load in _loading(call)):
            return None  # the tensors as they were loaded become the parameters
        if _runs_as_loaded(call):
            return None
        absent = arguments.given(script.inference, call, "map_location", 1) is None
        safe = _only_loaded(script, call)
        return rewrites.pass_option(call, "map_location", '"cpu"', position=1, over=(None,), absent=absent, safe=safe)

    def _is_missing(self, script: Script, call: Call) -> bool:
        held = arguments.given(script.inference, call, "map_location", 1)
        if held is None:
            return True
        return all(isinstance(v, Const) and v.value is None and not v.settable for v in each(held))

    def _holds_cpu_tensors(self, script: Script, call: Call) -> bool:
        path = call.argument(0, "f")
        if checkpoints.in_memory(script, path):
            return True
        written = checkpoints.own_saves(script, call)
        contents = [c.argument(0, "obj") for c in written]
        return bool(written) and all(c is not None and checkpoints.on_host(script, c) for c in contents)


def _only_loaded(script: Script, call: Call) -> bool:
    """Whether every use of what is loaded is `load_state_dict`, which copies to where the parameters are."""
    statement = call.statement
    loads = [c for c in call.context.module.calls_by_attr.get("load_state_dict", ()) if c.args and _copies(script, c)]
    if any(_under_keys(load.args[0]) is call for load in loads):
        return True
    if not isinstance(statement, Assign) or statement.value is not call or len(statement.targets) != 1:
        return False
    target = statement.targets[0]
    if not isinstance(target, Name):
        return False
    function, module = call.context.function, call.context.module
    scope = function.locals if function is not None else module.names
    if len([b for b in scope.get(target.id, ()) if b.how != "delete"]) != 1:
        return False
    harmless = {id(use) for load in loads for use in _named(load.args[0])}
    for other in module.statements:
        if isinstance(other, Delete):
            harmless.update(id(t) for t in other.targets)
    expressions = walk.of_module(module)
    harmless.update(id(o) for e in expressions if isinstance(e, Compare) and e.ops == ("in",) for o in e.operands[1:])
    uses = [
        e
        for e in expressions
        if isinstance(e, Name) and e.id == target.id and e is not target and (function is None or _is_inside(e, call))
    ]
    return bool(uses) and all(id(use) in harmless for use in uses)


def _runs_as_loaded(call: Call) -> bool:
    """Whether a whole module is loaded and used without a move: it would then stay on the CPU."""
    statement = call.statement
    names = {t.id for t in statement.targets if isinstance(t, Name)} if isinstance(statement, Assign) else set()
    calls = call.context.module.calls
    own = [c for c in calls if isinstance(c.receiver, Name) and c.receiver.id in names]
    used = any(c.attr in _OF_MODULES for c in own) or any(
        isinstance(c.callee, Name) and c.callee.id in names for c in calls
    )
    return used and not any(c.attr in ("to", "cuda") for c in own)


def _loading(call: Call) -> Iterator[Call]:
    """The `load_state_dict` calls that get what a call has loaded, or may get it."""
    statement = call.statement
    names = {t.id for t in statement.targets if isinstance(t, Name)} if isinstance(statement, Assign) else set()
    for load in call.context.module.calls_by_attr.get("load_state_dict", ()):
        for found in _named(load.args[0]) if load.args else ():
            if found is call or (isinstance(found, Name) and found.id in names):
                yield load


def _copies(script: Script, load: Call) -> bool:
    """Not `assign=True`, which puts the loaded tensors in the place of the parameters, nor a class of the project that
    may keep them as they are."""
    if load.unpacks or load.argument(2, "assign") is not None or load.receiver is None:
        return False
    return not any(
        isinstance(v, Object) and v.cls is not None and script.inference.method(v.cls, "load_state_dict") is not None
        for v in each(script.value(load.receiver))
    )


def _is_inside(expr: Expr, call: Call) -> bool:
    return any(f.kind == "function" and f.record is call.context.function for f in expr.context.frames())


def _named(expr: Expr) -> Iterator[Expr]:
    """What is loaded from: `checkpoint` of `checkpoint["model"]`; both of `checkpoint.get("model", checkpoint)`."""
    found = _under_keys(expr)
    yield found
    while found is not expr and isinstance(expr, (Subscript, Call)):
        if isinstance(expr, Call):
            yield from (_under_keys(a) for a in expr.args[1:])
            expr = expr.receiver or found
        else:
            expr = expr.value


def _under_keys(expr: Expr) -> Expr:
    """`checkpoint` of `checkpoint["model"]` and `checkpoint.get("model")`"""
    while True:
        if isinstance(expr, Subscript) and isinstance(expr.index, Constant):
            expr = expr.value
        elif isinstance(expr, Call) and expr.attr == "get" and expr.receiver is not None and expr.args:
            expr = expr.receiver
        else:
            return expr

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules import describe, rewrites
from trainlint.rules.rule import Hit, Rewrite, Rule
from trainlint.semantic import arguments, checkpoints, walk
from trainlint.semantic.facts import Assign, Call, Constant, Expr, Name, Subscript
from trainlint.semantic.values import Const, each

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


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
    loaded object is `load_state_dict`.

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
            yield Hit(call, values, level, rewrite=self._rewrite(call))

    def _rewrite(self, call: Call) -> Rewrite | None:
        if call.unpacks or len(call.args) > 1:
            return None
        return rewrites.pass_keyword("map_location", '"cpu"', safe=_only_loaded(call))

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


def _only_loaded(call: Call) -> bool:
    """Whether every use of what is loaded is `load_state_dict`, which copies to where the parameters are."""
    statement = call.statement
    loads = [c for c in call.context.module.calls_by_attr.get("load_state_dict", ()) if c.args]
    if any(_under_keys(load.args[0]) is call for load in loads):
        return True
    if not isinstance(statement, Assign) or statement.value is not call or len(statement.targets) != 1:
        return False
    target = statement.targets[0]
    function = call.context.function
    if not isinstance(target, Name) or function is None or len(function.locals.get(target.id, ())) != 1:
        return False
    uses = [
        e
        for e in walk.of_module(call.context.module)
        if isinstance(e, Name) and e.id == target.id and e is not target and _is_inside(e, call)
    ]
    loaded = {id(_under_keys(load.args[0])) for load in loads}
    return bool(uses) and all(id(use) in loaded for use in uses)


def _is_inside(expr: Expr, call: Call) -> bool:
    return any(f.kind == "function" and f.record is call.context.function for f in expr.context.frames())


def _under_keys(expr: Expr) -> Expr:
    """`checkpoint` of `checkpoint["model"]`"""
    while isinstance(expr, Subscript) and isinstance(expr.index, Constant):
        expr = expr.value
    return expr

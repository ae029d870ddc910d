from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules import describe, rewrites
from trainlint.rules.rule import Hit, Note, Rule
from trainlint.semantic import walk
from trainlint.semantic.contexts import dotted_name
from trainlint.semantic.facts import Assign, Attribute, Call, Context, Expr, Mapping, Name, Sequence, Subscript
from trainlint.semantic.step import BACKWARD

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_SHALLOW = frozenset({"copy", "dict", "OrderedDict"})


class BestStateAliasesModel(Rule):
    """`best = model.state_dict()` kept in memory while the model trains on.

    ## Why is this bad?

    `state_dict()` does not copy: its tensors are the weights of the model. Each further step changes them, so the "best"
    weights that are loaded at the end are the last ones. A shallow copy of the dictionary is no better.

    ## Example

    ```python
    if val_loss < best_loss:
        best_loss, best_state = val_loss, model.state_dict()
    ...
    model.load_state_dict(best_state)
    ```

    ## Use instead

    ```python
    if val_loss < best_loss:
        best_loss, best_state = val_loss, copy.deepcopy(model.state_dict())
    ```

    ## When it is silent

    A deep copy, or a dictionary of clones; saved to disk at once; loaded at once into another module; kept after training
    has ended.

    ## Fix safety

    Unsafe: the model that comes out is another one, which is the point; and it needs memory for the copy.

    ## Measured by `trainlint verify`

    Whether the kept tensors share storage with the parameters.

    ## References

    - PyTorch, `torch.nn.Module.state_dict`; "Saving and Loading Models" (warning on `best_model_state`)
    """

    code = "TL614"
    name = "best-state-aliases-model"
    level = Level.ERROR
    claim = Claim.BEHAVIOUR
    message = "{call} is kept without a copy, and training goes on changing it"
    why = "the weights loaded later are the last ones, not the best ones"
    help = "keep copy.deepcopy(model.state_dict()), or save it to disk at once"
    triggers = ((b"state_dict", b"load_state_dict"), (b"state_dict(", b"torch"))

    def check(self, script: Script) -> Iterator[Hit]:
        for call in script.methods("state_dict"):
            if (
                call.args
                or call.keywords
                or not isinstance(call.statement, Assign)
                or not self._is_module(script, call)
            ):
                continue
            kept = self._target(call.statement, call)
            if (
                kept is None
                or not self._under_condition(call.context)
                or not self._in_training(script, call.context, 0)
            ):
                continue
            load = self._loaded_later(script, call, kept)
            if load is not None:
                notes = (Note(load, "loaded here"),)
                yield Hit(call, {"call": describe.text(call)}, None, notes, rewrite=rewrites.deep_copy(script, call))

    def _is_module(self, script: Script, call: Call) -> bool:
        assert call.receiver is not None
        return script.semantics.steps.role(call.receiver) in ("module", "pretrained", "")

    def _target(self, statement: Assign, call: Call) -> str | None:
        """The name that keeps the dictionary as it is: alone, in a tuple, as an item of a dict, or shallowly copied."""
        if statement.value is None or len(statement.targets) != 1:
            return None
        target = statement.targets[0]
        if (
            isinstance(target, Sequence)
            and isinstance(statement.value, Sequence)
            and len(target.elements) == len(statement.value.elements)
        ):
            for name, value in zip(target.elements, statement.value.elements, strict=False):
                if self._holds(value, call):
                    return _name(name)
            return None
        return _name(target) if self._holds(statement.value, call) else None

    def _holds(self, value: Expr, call: Call) -> bool:
        if value is call:
            return True
        if isinstance(value, Mapping):
            return any(self._holds(v, call) for v in value.values)
        if isinstance(value, Call) and value.attr in _SHALLOW:
            return value.receiver is call or any(a is call for a in value.args)
        return False

    def _under_condition(self, context: Context) -> bool:
        return any(f.kind == "branch" for f in context.local_frames())

    def _in_training(self, script: Script, context: Context, depth: int) -> bool:
        """In a loop that trains, or in something that one calls."""
        for frame in context.local_frames():
            if frame.kind == "loop" and hasattr(frame.record, "body"):
                if script.semantics.steps.of_loop(frame).of(BACKWARD):
                    return True
        if context.function is None or depth > 3:
            return False
        return any(
            self._in_training(script, s.call.context, depth + 1)
            for s in script.inference.callgraph.callers(context.function)
        )

    def _loaded_later(self, script: Script, call: Call, kept: str) -> Call | None:
        """`load_state_dict(best)`, at another place than right after."""
        own = kept.startswith("self.")
        saved = self._saved_at_once(call, kept)
        for load in script.module.calls_by_attr.get("load_state_dict", ()):
            if saved or not load.args or _name(load.args[0]) != kept:
                continue
            if own:
                if load.context.cls is not call.context.cls:
                    continue
            elif load.context.function is not call.context.function:
                continue
            if load.statement.block is call.statement.block or load.context.within(call.context):
                continue  # copied into another module on the spot
            return load
        return None

    def _saved_at_once(self, call: Call, kept: str) -> bool:
        for other in call.statement.block[call.statement.index + 1 :]:
            for expr in walk.inside(other):
                if (
                    isinstance(expr, Call)
                    and expr.attr in ("save", "save_checkpoint", "dump")
                    and any(_name(a) == kept for a in expr.args)
                ):
                    return True
        return False


def _name(expr: Expr) -> str | None:
    """`best`, `self.best`; `record["weights"]` and `self.record["weights"]` by the dictionary they lie in."""
    while isinstance(expr, Subscript):
        expr = expr.value
    return dotted_name(expr) if isinstance(expr, (Name, Attribute)) else None

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules import describe, rewrites
from trainlint.rules.rule import Hit, Note, Rule
from trainlint.semantic import best_state
from trainlint.semantic.facts import (
    Assign,
    Binding,
    Call,
    Compare,
    Constant,
    Context,
    Evaluate,
    Expr,
    Mapping,
    Name,
    Sequence,
    Statement,
)
from trainlint.semantic.values import Object, each

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_SHALLOW = frozenset({"copy", "dict", "OrderedDict"})


class BestStateAliasesModel(Rule):
    """`best = model.state_dict()` (or `best = model`) kept in memory while the model trains on.

    ## Why is this bad?

    `state_dict()` does not copy: its tensors are the weights of the model. Each further step changes them, so the "best"
    weights that are loaded at the end are the last ones. A shallow copy of the dictionary is no better, and
    `best_model = model` is a second name for the model that trains on.

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
    has ended, or where training ends right then; a model that each turn of the loop makes anew.

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
    triggers = ((b"state_dict", b"load_state_dict"), (b"state_dict(", b"torch"), (b"best", b"if "))

    def check(self, script: Script) -> Iterator[Hit]:
        for call in script.methods("state_dict"):
            if call.args or call.keywords or call.receiver is None:
                continue
            if script.semantics.steps.role(call.receiver) not in ("module", "pretrained", ""):
                continue
            kept = self._target(call.statement, call) if isinstance(call.statement, Assign) else _updated(call)
            use = self._use(script, call.receiver, call.statement, kept) if kept is not None else None
            if use is None and (gathered := _appended(call)) is not None:
                use = best_state.read_after_training(script, call.receiver, call.statement, gathered)
            if use is not None:
                notes = (Note(use, _word(use)),)
                yield Hit(call, {"call": describe.text(call)}, None, notes, rewrite=rewrites.deep_copy(script, call))
        for statement in script.module.statements:
            name = self._second_name(script, statement)
            if name is None:
                continue
            assert isinstance(statement, Assign) and isinstance(statement.value, Name)
            model = statement.value
            use = self._use(script, model, statement, name)
            if use is not None and not self._is_rebound(script, statement, name):
                notes = (Note(use, _word(use)),)
                yield Hit(model, {"call": describe.text(model)}, None, notes, rewrite=rewrites.deep_copy(script, model))

    def _second_name(self, script: Script, statement: Statement) -> str | None:
        """`best_model = model`"""
        if not isinstance(statement, Assign) or not isinstance(statement.value, Name) or len(statement.targets) != 1:
            return None
        target = statement.targets[0]
        if not isinstance(target, Name) or "best" not in target.id or not self._is_better(statement.context):
            return None
        return target.id if self._is_module(script, statement.value) else None

    def _use(self, script: Script, model: Expr, statement: Statement, kept: str) -> Expr | None:
        if not any(f.kind == "branch" for f in statement.context.local_frames()):
            return None
        loop = best_state.trains_on(script, model, statement)
        if loop is None and not best_state.trains_in_callers(script, statement.context):
            return None
        if best_state.saved_at_once(statement, kept):
            return None
        return best_state.loaded_or_saved(script, kept, statement, loop)

    def _is_better(self, context: Context) -> bool:
        """Under `if acc > best_acc:`."""
        for frame in context.local_frames():
            if frame.kind == "branch" and isinstance(frame.test, Compare):
                return frame.test.ops in (("<",), (">",), ("<=",), (">=",))
        return False

    def _is_module(self, script: Script, expr: Expr) -> bool:
        return all(isinstance(v, Object) and v.role == "module" for v in each(script.value(expr)))

    def _is_rebound(self, script: Script, statement: Assign, name: str) -> bool:
        """Whether the name also gets a copy, or another model, elsewhere."""
        function = statement.context.function
        bindings = function.locals.get(name, []) if function is not None else script.module.names.get(name, [])
        return any(
            b.statement is not statement and not (b.how == "assign" and isinstance(_bound(b), (Constant, Name)))
            for b in bindings
        )

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
                    return best_state.name_of(name)
            return None
        return best_state.name_of(target) if self._holds(statement.value, call) else None

    def _holds(self, value: Expr, call: Call) -> bool:
        if value is call:
            return True
        if isinstance(value, Mapping):
            return any(self._holds(v, call) for v in value.values)
        if isinstance(value, Sequence):
            return any(self._holds(v, call) for v in value.elements)
        if isinstance(value, Call) and value.attr in _SHALLOW:
            return value.receiver is call or any(a is call for a in value.args)
        return False


def _updated(call: Call) -> str | None:
    """`best.update(loss=loss, weights=model.state_dict())`"""
    outer = call.statement.value if isinstance(call.statement, Evaluate) else None
    if isinstance(outer, Call) and outer.attr == "update" and outer.receiver is not None:
        given = [k.value for k in outer.keywords] + [v for a in outer.args if isinstance(a, Mapping) for v in a.values]
        return best_state.name_of(outer.receiver) if any(g is call for g in given) else None
    return None


def _appended(call: Call) -> str | None:
    """`snapshots.append(model.state_dict())`"""
    outer = call.statement.value if isinstance(call.statement, Evaluate) else None
    if isinstance(outer, Call) and outer.attr == "append" and isinstance(outer.receiver, Name):
        return outer.receiver.id if len(outer.args) == 1 and outer.args[0] is call else None
    return None


def _bound(binding: Binding) -> Expr | None:
    """What a name gets: `None` for `best` in `loss, best = 1.0, None`."""
    value = binding.value
    for step in binding.path:
        if step is None or not isinstance(value, Sequence) or step >= len(value.elements):
            return None
        value = value.elements[step]
    return value


def _word(use: Expr) -> str:
    if not isinstance(use, Call):
        return "used here"
    return "loaded here" if use.attr == "load_state_dict" else "saved here"

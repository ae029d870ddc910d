from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.patterns_on_use import Pattern
from trainlint.rules import describe
from trainlint.rules.rule import Hit, Note, Rule
from trainlint.semantic import frameworks
from trainlint.semantic.facts import Call, Compare, Constant, Context, Evaluate, Expr, For
from trainlint.semantic.identity import Path, Subject
from trainlint.semantic.step import BACKWARD, STEP
from trainlint.semantic.values import Object, each

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_HOOKS = ("register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook", "register_backward_hook")
# loops that start training anew on each turn
_ANEW = Pattern(
    r"fold|task|seed|trial|restart|client|round|phase|stage|cycle|session|generation|population|ensemble|member|config|domain|"
    r"(?:^|_)(?:lr|lrs|rate|rates|run|runs|exp|experiment|experiments|split|splits|level|layer|param|params|model|models|net|nets)(?:_|$)",
    re.I,
)
_RESETS = frozenset(
    "load_state_dict reset_parameters init_weights initialize_weights deepcopy reset_weights reset set_weights weight_reset".split()
)

# callers of a helper that are followed: one before the loop, and the one in it
_FEW = 3


class OptimizerRebuiltInLoop(Rule):
    """An optimizer is constructed, or a hook registered, on every turn of the epoch or batch loop.

    ## Why is this bad?

    Momentum, Adam's averages and step counts live in the optimizer. A new one starts from nothing: Adam's bias correction
    makes its first steps as large as the learning rate, each epoch anew, and momentum never builds up. A scheduler that
    holds the old optimizer drives nothing. Hooks registered again and again all run, so each step is slower than the last.

    ## Example

    ```python
    for epoch in range(epochs):
        optimizer = torch.optim.Adam(model.parameters(), lr=lr * 0.9 ** epoch)
        for images, target in loader:
            ...
    ```

    ## Use instead

    ```python
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    for epoch in range(epochs):
        ...
    ```

    ## When it is silent

    Where training starts anew: per fold, task, restart or client, a model built or reset in the same loop, a loop around
    the epochs; under a condition; optimizers of other things than a model's weights; hooks whose handle is kept.

    ## Fix safety

    No fix: where the optimizer belongs depends on what else changes.

    ## Measured by `trainlint verify`

    The number of steps that the state of the optimizer has seen.

    ## References

    - PyTorch, `torch.optim`, "How to adjust learning rate"
    """

    code = "TL608"
    name = "optimizer-rebuilt-in-loop"
    level = Level.ERROR
    claim = Claim.BEHAVIOUR
    message = "{call} runs on every {turn}: {lost}"
    why = "a new optimizer has no momentum and no averages: its state is lost on each turn"
    help = "build it once before the loop; change the rate with a scheduler or in optimizer.param_groups"
    triggers = ((b"torch", b"optim"), (b"register_",))

    def check(self, script: Script) -> Iterator[Hit]:
        for call, _ in script.objects("optimizer"):
            found = self._rebuilding_loop(script, call)
            if found is not None:
                loop, batches = found
                values = {
                    "call": describe.text(call),
                    "turn": "batch" if batches else "epoch",
                    "lost": "what the optimizer has gathered is lost each time",
                }
                yield Hit(call, values, None, (Note(loop.record, "in this loop"),))
        for call in script.methods(*_HOOKS):
            if isinstance(call.statement, Evaluate) and call.statement.value is call:
                around = self._loop_around(script, call)
                if around is not None and not self._new_in(script, call.receiver, around[1], around[0]):
                    loop = around[0]
                    step = script.semantics.steps.of_loop(loop)
                    turn = "batch" if not any(e.loops for e in step.of(STEP)) else "epoch"
                    values = {"call": describe.text(call), "turn": turn, "lost": "the hooks pile up"}
                    yield Hit(
                        call,
                        values,
                        None,
                        (Note(loop.record, "in this loop"),),
                        why="all hooks registered so far run in each forward, so steps get slower and slower",
                        help="register it once before the loop, or keep the handle and remove() it",
                    )

    def _rebuilding_loop(self, script: Script, call: Call) -> tuple[Context, bool] | None:
        given = call.argument(0, "params")
        found = self._loop_around(script, call)
        if given is None or found is None:
            return None
        loop, path = found
        owners = script.semantics.steps.identity.owners_of_parameters(given)
        if not owners or any(self._new_in(script, owner, path, loop) for owner in owners):
            return None
        step = script.semantics.steps.of_loop(loop)
        updates = step.of(STEP)
        used = [e for e in updates if self._is_built_by(script.semantics.steps.subject(e), call)]
        if not used or any(len(e.loops) > 1 for e in used):
            return None
        return loop, not used[0].loops

    def _is_built_by(self, subject: Subject | None, call: Call) -> bool:
        return subject is not None and any(b is call for b in subject.builders)

    # --------------------------------------------------------------------------------------------------- the loop

    def _loop_around(self, script: Script, call: Call, path: Path = ()) -> tuple[Context, Path] | None:
        """The loop around a call, in its function or that of one of its few callers, if it is one over epochs or batches."""
        for frame in call.context.frames():
            if frame.kind in ("branch", "except", "case") and not self._is_choice(frame):
                return None
            if frame.kind == "loop" and hasattr(frame.record, "body"):
                if self._over_layers(frame):
                    continue
                return (frame, path) if self._trains(script, frame) else None
            if frame.kind == "function":
                sites = script.inference.callgraph.callers(frame.record)
                if (
                    len(sites) > _FEW
                    or len(path) > 3
                    or _ANEW.search(frame.record.name)
                    or frame.record.name == "__init__"
                ):
                    return None
                if frameworks.in_lightning(script.inference, frame.cls):
                    return None
                around = (self._loop_around(script, s.call, (s.call, *path)) for s in sites)
                return next((found for found in around if found is not None), None)
        return None

    def _is_choice(self, frame: Context) -> bool:
        """`if args.optimizer == "sgd":`: which one, not when."""
        test = frame.test
        return isinstance(test, Compare) and any(
            isinstance(o, Constant) and isinstance(o.value, str) for o in test.operands
        )

    def _over_layers(self, frame: Context) -> bool:
        iterated = getattr(frame.record, "iter", None)
        return isinstance(iterated, Call) and iterated.attr in (
            "modules",
            "named_modules",
            "children",
            "named_children",
            "items",
            "values",
        )

    def _trains(self, script: Script, frame: Context) -> bool:
        """An epoch loop or a batch loop: nothing in it starts training anew, and what trains lies at most one loop deeper."""
        record = frame.record
        if isinstance(record, For) and _ANEW.search(f"{describe.text(record.target)} {self._iterated(record.iter)}"):
            return False
        step = script.semantics.steps.of_loop(frame)
        if not step.of(BACKWARD) or not step.of(STEP) or any(len(e.loops) > 1 for e in step.of(STEP)):
            return False
        calls = [c for c in script.semantics.loops.calls_of(frame) if c.context.within(frame)]
        return not any(c.attr in _RESETS for c in calls)

    def _iterated(self, expr: Expr) -> str:
        return "" if isinstance(expr, Call) and expr.attr == "range" else describe.text(expr)

    def _new_in(self, script: Script, owner: Expr | None, path: Path, loop: Context) -> bool:
        """The module is another one on each turn: bound or built inside of the loop, or by the loop itself."""
        if owner is None:
            return True
        subject = script.semantics.steps.identity.of(owner, path)
        if any(b.context.within(loop) for b in subject.builders) or "each" in subject.key:
            return True
        for value in each(script.value(subject.expr)):
            if isinstance(value, Object) and value.call is not None and value.call.context.within(loop):
                return True
        base = subject.expr
        while hasattr(base, "value") and not hasattr(base, "id"):
            attribute = getattr(base, "attr", None)
            cls = base.context.cls
            if attribute is not None and cls is not None:
                if any(b.context.within(loop) for b in cls.attributes.get(attribute, ())):
                    return True
            base = base.value
        if isinstance(base, Call):
            return base.context.within(loop)
        name = getattr(base, "id", None)
        function = base.context.function
        scope = function.locals if function is not None else base.context.module.names
        return any(b.context.within(loop) for b in scope.get(name, ())) if name else True

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.patterns_on_use import Pattern
from trainlint.rules import describe
from trainlint.rules.loop import mode_rewrites
from trainlint.rules.rule import Hit, Note, Rule
from trainlint.semantic import evaluation, walk
from trainlint.semantic.facts import Call, Comprehension, Expr, For, Name, Subscript, While
from trainlint.semantic.loops import BatchLoop
from trainlint.semantic.step import OPAQUE, STEP, Event
from trainlint.semantic.values import UNKNOWN, Batch, Tensor

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_SMOKE_TEST = Pattern(
    r"^_?test_|^main_test$|^demo$|^benchmark|bench|profile|sanity|smoke|update_bn|calibrat|recalib|warm_?up|precise_bn",
    re.I,
)
_MONTE_CARLO = Pattern(r"mc_?drop|monte_?carlo|uncertain|bayes|stochastic|ensemble_dropout", re.I)


class MissingEvalMode(Rule):
    """An evaluation loop runs a model that nothing has put into eval mode.

    ## Why is this bad?

    In training mode Dropout drops and BatchNorm normalises with the statistics of the batch, and updates its running
    averages with evaluation data. The score depends on the batch size and on chance, and the model that is saved
    afterwards has seen the test set. `torch.no_grad()` does not change the mode.

    ## Example

    ```python
    def test(model, loader):
        with torch.no_grad():
            for images, target in loader:
                correct += (model(images).argmax(1) == target).sum()
    ```

    ## Use instead

    ```python
    def test(model, loader):
        model.eval()
        with torch.no_grad():
            ...
    ```

    ## When it is silent

    Where any caller, decorator, context manager or helper may call `eval()` or `train(False)` on the model; where its
    callers cannot be seen; models from `from_pretrained`, which come in eval mode; hooks that a framework runs in eval
    mode; Monte Carlo dropout; a `train()` straight before the loop. A model without layers that depend on the mode is
    only advice, one whose layers cannot be seen a warning.

    ## Fix safety

    Unsafe: the numbers change, and the training loop must switch back. `eval()` is called before the loop, or before the
    `with torch.no_grad():` that it begins; `train()` behind it where training would go on in eval mode. No fix for a loop that
    trains and evaluates by a flag, nor where the model has no name at that place,
    or may be None there.

    ## Measured by `trainlint verify`

    The mode of the model in the evaluation loop, and the change of its running statistics.

    ## References

    - PyTorch, `torch.nn.Module.eval`; "Autograd mechanics: Evaluation Mode"
    """

    code = "TL604"
    name = "missing-eval-mode"
    level = Level.ERROR
    claim = Claim.BEHAVIOUR
    message = "this evaluation loop runs {model} in training mode: nothing calls {model}.eval(){layers}"
    why = "Dropout stays on and BatchNorm uses, and learns from, the evaluation data"
    help = "call {model}.eval() before the loop, and {model}.train() before training goes on"
    triggers = (
        (b"torch", b"for "),
        (b"torch", b"while "),
        (b".eval(", b"for "),
        (b"backward", b"for "),
        (b"backward", b"while "),
    )

    def check(self, script: Script) -> Iterator[Hit]:
        loops = script.batch_loops()
        for loop in loops:
            if loop.phase == "train":
                for event, call in script.semantics.training_mode.evaluation_passes(loop)[:1]:
                    yield self._hit(script, loop, event, call)
                continue
            if loop.phase != "eval" or self._is_silent(script, loop):
                continue
            if any(o.frame is not loop.frame and loop.frame.within(o.frame) and o.phase == "eval" for o in loops):
                continue  # the outer loop is reported
            for event in script.semantics.training_mode.evaluated_in_training_mode(loop):
                if event.owner is None or _MONTE_CARLO.search(describe.text(event.owner)):
                    continue
                yield self._hit(script, loop, event)
                break

    def _hit(self, script: Script, loop: BatchLoop, event: Event, entry: Call | None = None) -> Hit:
        assert event.owner is not None
        subject = script.semantics.steps.subject(event)
        value = script.value(subject.expr) if subject is not None else UNKNOWN
        depends = script.semantics.layers.depends_on_mode(value)
        if depends is None:
            depends = script.semantics.layers.depends_on_mode(script.value(event.owner))
        level = {True: Level.ERROR, None: Level.WARNING, False: Level.ADVICE}[depends]
        layers = {True: "", None: "", False: " (it has no layer that minds)"}[depends]
        values = {"model": describe.text(event.owner), "layers": layers}
        notes = [Note(event.record, "the model runs here")]
        if entry is not None:
            notes.append(Note(entry, "called from here for an evaluation"))
        rewrite = mode_rewrites.evaluate(script, loop, event) if entry is None else None
        return Hit(loop.record, values, level, tuple(notes), rewrite=rewrite)

    def _is_silent(self, script: Script, loop: BatchLoop) -> bool:
        function = loop.frame.function
        if isinstance(loop.record, (Comprehension, While)) and loop.source != "loader":
            return True
        if evaluation.compares(script, loop) or (loop.source != "loader" and evaluation.takes_gradients(script, loop)):
            return True
        if isinstance(loop.record, For) and loop.source != "loader" and self._is_one_batch(script, loop.record):
            return True
        names = [f.name for f in (function,) if f is not None] + [
            f.record.name for f in loop.frame.frames() if f.kind == "class"
        ]
        if any(_SMOKE_TEST.search(n) or _MONTE_CARLO.search(n) for n in names):
            return True
        if (
            function is not None
            and loop.source == "steps"
            and evaluation.builds_model(script, function)
            and function.name.startswith("test")
        ):
            return True
        step = script.semantics.steps.of_loop(loop)
        if step.of(STEP, OPAQUE) or self._acts(script, loop):
            return True
        return evaluation.feeds_training(script, loop)

    def _is_one_batch(self, script: Script, loop: For) -> bool:
        """A loop over the rows of a tensor: sampling, not evaluation."""
        if self._are_rows(script, loop.iter):
            return True
        if not isinstance(loop.target, Name):
            return False
        return any(
            isinstance(e, Subscript)
            and isinstance(e.index, Name)
            and e.index.id == loop.target.id
            and isinstance(script.value(e.value), (Tensor, Batch))
            for statement in loop.body
            for e in walk.inside(statement)
        )

    def _are_rows(self, script: Script, iterated: Expr) -> bool:
        if isinstance(iterated, Call) and iterated.attr in ("zip", "enumerate"):
            return all(self._are_rows(script, a) for a in iterated.args)
        return isinstance(script.value(iterated), (Tensor, Batch))

    def _acts(self, script: Script, loop: BatchLoop) -> bool:
        """A policy in an environment, or a decoder that feeds on its own output: `state = env.step(action)`."""
        if loop.source == "loader":
            return False
        calls = [c for c in script.semantics.loops.calls_of(loop.frame) if c.context.within(loop.frame)]
        return any(
            c.attr in ("step", "reset", "multinomial", "push", "sample_action", "select_action", "backward")
            for c in calls
        )

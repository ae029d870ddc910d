from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.patterns_on_use import Pattern
from trainlint.rules import describe
from trainlint.rules.memory import no_grad
from trainlint.rules.rule import Hit, Note, Rewrite, Rule
from trainlint.semantic import environments, evaluation
from trainlint.semantic.facts import Call, Comprehension
from trainlint.semantic.loops import BatchLoop
from trainlint.semantic.step import OPAQUE

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_SMOKE_TEST = Pattern(r"^_?test(?:_|$)|^main_test$|^demo$|^benchmark", re.I)


class MissingNoGrad(Rule):
    """An evaluation loop runs a model with autograd on.

    ## Why is this bad?

    Autograd keeps the activations of every layer for a backward that never comes. Until the result is dropped they take as
    much memory as in training, so validation runs out of memory where training fits, and every forward costs the extra
    bookkeeping. `model.eval()` does not turn autograd off.

    ## Example

    ```python
    def validate(model, loader):
        model.eval()
        for images, target in loader:
            correct += (model(images).argmax(1) == target).sum()
    ```

    ## Use instead

    ```python
    @torch.no_grad()
    def validate(model, loader):
        ...
    ```

    ## When it is silent

    Where any caller, decorator (also one made in the project), enclosing block or callee turns autograd off; where the loop
    also trains, or its results go into a backward or `autograd.grad`; where the model is frozen or one of Flax; for
    single forwards outside a loop, smoke tests of a model file, and hooks that a framework runs without autograd.

    ## Fix safety

    Unsafe: it changes what happens to tensors that are used after the loop. A function that does nothing but evaluate is
    decorated, otherwise the loop is put under `with torch.no_grad():`. None in a generator, which would leave autograd
    off for whoever draws from it; and none where a function that is not named after evaluation gives back what has a
    graph, keeps it on `self`, or goes on computing with it: it may be a part of a loss. Never `inference_mode`, whose
    tensors cannot enter autograd later.

    ## Measured by `trainlint verify`

    Peak memory of the evaluation with and without the graph.

    ## References

    - PyTorch, "Autograd mechanics: Locally disabling gradient computation"
    """

    code = "TL201"
    name = "missing-no-grad"
    level = Level.WARNING
    claim = Claim.MEMORY
    message = "this evaluation loop runs {call} with autograd on"
    why = "activations are kept for a backward that never comes; eval() does not turn that off"
    help = "decorate the function with @torch.no_grad(), or put the loop under `with torch.no_grad():`"
    triggers = (
        (b"torch", b"for "),
        (b"torch", b"while "),
        (b".eval(", b"for "),
        (b"backward", b"for "),
        (b"backward", b"while "),
    )

    def check(self, script: Script) -> Iterator[Hit]:
        if any(name.partition(".")[0] == "flax" for i in script.module.imports for name in i.modules):
            return  # its models are functions of their parameters, and JAX's
        for loop in script.batch_loops():
            if loop.phase != "eval" or self._is_silent(script, loop):
                continue
            call = evaluation.recorded_forward(script, loop)
            if call is None or evaluation.is_frozen(script, call) or self._may_train(script, loop):
                continue
            record = loop.record
            if any(
                other.frame is not loop.frame and loop.frame.within(other.frame) and other.phase == "eval"
                for other in script.batch_loops()
            ):
                continue  # the outer loop is reported
            # At the model, not at the loop: that is the line which takes the memory, and the one people know.
            notes = (Note(record, "in this loop"),)
            yield Hit(call, {"call": describe.text(call)}, None, notes, rewrite=self._rewrite(script, loop, call))

    def _may_train(self, script: Script, loop: BatchLoop) -> bool:
        """`update(loss, optimizer)`, which cannot be followed."""
        return bool(script.semantics.steps.of_loop(loop).of(OPAQUE))

    def _rewrite(self, script: Script, loop: BatchLoop, call: Call) -> Rewrite | None:
        found = no_grad.around(script, loop.record, call)
        if found is None:
            return None
        message, edit = found
        return Rewrite(False, message, lambda site: edit(site, ()))

    def _is_silent(self, script: Script, loop: BatchLoop) -> bool:
        function = loop.frame.function
        if function is not None and loop.source == "steps":
            if _SMOKE_TEST.search(function.name) and evaluation.builds_model(script, function):
                return True
        if loop.source == "steps" and environments.plays(loop.frame):
            return True  # each step of a rollout frees the graph of the one before
        if evaluation.takes_gradients(script, loop) or evaluation.compares(script, loop):
            return True
        if isinstance(loop.record, Comprehension) and loop.source != "loader":
            return True
        return evaluation.feeds_training(script, loop) or evaluation.goes_to_numpy(script, loop)

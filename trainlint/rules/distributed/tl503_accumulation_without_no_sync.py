from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.patterns_on_use import Pattern
from trainlint.rules import describe
from trainlint.rules.rule import Hit, Note, Rule
from trainlint.semantic.communication import REPLICATED
from trainlint.semantic.facts import Call
from trainlint.semantic.scaling import extra_conditions, is_cadence
from trainlint.semantic.step import BACKWARD, FORWARD, STEP, Event, Step, excludes
from trainlint.semantic.values import each

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

# whoever holds back the reduction, in one way or another
_HOLDS_BACK = Pattern(
    rb"no_sync|require_backward_grad_sync|set_requires_gradient_sync|set_is_last_backward|accelerator\.accumulate|register_comm_hook|deepspeed"
)


class AccumulationWithoutNoSync(Rule):
    """Gradient accumulation under DistributedDataParallel where every micro-batch's backward reduces the gradients.

    ## Why is this bad?

    Each backward sends all gradients between all ranks, although only the sum of the last micro-batch is used. With 8
    micro-batches per step, 7 of 8 reductions are wasted. The result is the same.

    ## Example

    ```python
    for i, (x, y) in enumerate(loader):
        loss = criterion(model(x), y) / accumulation
        loss.backward()
        if (i + 1) % accumulation == 0:
            optimizer.step()
            optimizer.zero_grad()
    ```

    ## Use instead

    ```python
    for i, (x, y) in enumerate(loader):
        last = (i + 1) % accumulation == 0
        with nullcontext() if last else model.no_sync():
            loss = criterion(model(x), y) / accumulation
            loss.backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()
    ```

    The forward belongs inside of the block, too.

    ## When it is silent

    `no_sync()` or another way to hold back the reduction anywhere in the program; Accelerate's `accumulate()`;
    DeepSpeed; Lightning; a model that is not known to be wrapped.

    ## Fix safety

    No fix: the condition of the last micro-batch has to move.

    ## Measured by `trainlint verify`

    Time of a step with `no_sync()` against without, under `torchrun`.

    ## References

    - torch.nn.parallel.DistributedDataParallel.no_sync
    """

    code = "TL503"
    name = "accumulation-without-no-sync"
    level = Level.WARNING
    claim = Claim.TIME
    message = "{call} reduces the gradients over all ranks on every micro-batch"
    why = "only the last micro-batch of a step has to: the other reductions are wasted"
    help = "run forward and backward of all but the last micro-batch under `with model.no_sync():`"
    triggers = ((b"backward",), (b"step",))

    def check(self, script: Script) -> Iterator[Hit]:
        if script.semantics.program.says(script.module, _HOLDS_BACK):
            return
        seen: set[int] = set()
        for step in script.semantics.steps.of_module(script.module):
            if not self._is_wrapped(script, step):
                continue
            for event in step.of(BACKWARD):
                stepped = self._accumulates(script, step, event)
                record = event.record if event.record.context.module is script.module else event.top
                if stepped is not None and not seen & {id(record), id(event.top)}:
                    seen |= {id(record), id(event.top)}
                    assert isinstance(record, Call)
                    yield Hit(
                        record,
                        {"call": describe.text(record)},
                        None,
                        (Note(stepped.record, "the optimizer steps here"),),
                    )

    def _is_wrapped(self, script: Script, step: Step) -> bool:
        wraps = script.semantics.communication.wraps
        for event in step.of(FORWARD):
            if isinstance(event.record, Call) and any(
                wraps(v, REPLICATED) for v in each(script.value(event.record.callee))
            ):
                return True
        return False

    def _accumulates(self, script: Script, step: Step, backward: Event) -> Event | None:
        """The step that uses the gradients of several runs of a backward."""
        if backward.by not in ("loss", "scaler", "optimizer"):
            return None
        steps = [e for e in step.of(STEP) if not excludes(e, backward) and e.by in ("optimizer", "scaler")]
        if not steps:
            return None
        micro = [f for f in backward.loops if not any(f in e.loops for e in steps)]
        if micro:
            forward = any(micro[-1] in e.loops for e in step.of(FORWARD))
            return steps[-1] if forward else None
        for event in steps:
            if not any(is_cadence(script, f, event) for f in extra_conditions(event, backward)):
                return None
        return steps[-1]

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Level
from trainlint.rules import describe
from trainlint.rules.rule import Hit, Note, Rule
from trainlint.semantic.facts import Call
from trainlint.semantic.loss_value import averages
from trainlint.semantic.micro_batches import accumulations

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class AccumulationWithoutLossScaling(Rule):
    """Gradients of several micro-batches add up, and the loss is not divided by their number.

    ## Why is this bad?

    A mean loss gives the gradient of a mean. Four of them added are four times the gradient of the large batch: the
    effective learning rate, and what a clipping limit means, change with the number of micro-batches.

    ## Example

    ```python
    for i, (images, target) in enumerate(loader):
        loss = criterion(model(images), target)
        loss.backward()
        if (i + 1) % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
    ```

    ## Use instead

    ```python
        loss = criterion(model(images), target) / 4
        loss.backward()
    ```

    ## When it is silent

    A loss that is summed, weighted, normalised by tokens, or multiplied or divided by anything before backward; gradients
    that are scaled by hand; contrastive losses; an optimizer that merely steps less often than another (`n_critic`);
    Accelerate, Fabric, Lightning and DeepSpeed, which divide by themselves.

    ## Fix safety

    No fix: the learning rate may have been chosen for the sum.

    ## Measured by `trainlint verify`

    Not measured.

    ## References

    - PyTorch, Automatic Mixed Precision examples, "Gradient accumulation"
    """

    code = "TL606"
    name = "accumulation-without-loss-scaling"
    level = Level.WARNING
    message = "{call} accumulates gradients of a mean loss without dividing it"
    why = "the update is as many times too large as there are micro-batches"
    help = "divide the loss by the number of micro-batches before backward"
    triggers = ((b"backward",),)

    def check(self, script: Script) -> Iterator[Hit]:
        reported: set[int] = set()
        for found in accumulations(script):
            for backward in found.backwards:
                record = backward.record
                if record.context.module is not script.module or id(record) in reported or not isinstance(record, Call):
                    continue
                if averages(script, backward):
                    reported.add(id(record))
                    notes = (Note(found.update.record, "the optimizer steps only after several of them"),)
                    yield Hit(record, {"call": describe.text(record)}, None, notes)

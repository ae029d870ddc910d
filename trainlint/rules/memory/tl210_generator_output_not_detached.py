from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules import describe, rewrites
from trainlint.rules.rule import Hit, Note, Rule
from trainlint.semantic import adversarial

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class GeneratorOutputNotDetached(Rule):
    """The discriminator's step runs on generator output that still has its graph.

    ## Why is this bad?

    Backward goes on through the whole generator and fills gradients that nobody uses: about as much work and memory
    as the generator's own step. The generator's gradients must then be cleared before its step, or they are added to
    it.

    ## Example

    ```python
    fake = generator(noise)
    loss_d = criterion(discriminator(fake), zeros) + criterion(discriminator(real), ones)
    loss_d.backward()
    optimizer_d.step()
    ```

    ## Use instead

    ```python
    loss_d = criterion(discriminator(fake.detach()), zeros) + criterion(discriminator(real), ones)
    ```

    ## When it is silent

    Where the output is detached or made under `no_grad`, where one optimizer trains both networks, in gradient penalties,
    which need the gradient of the input, and where the generator has stepped before: that backward raises (TL613).

    ## Fix safety

    Safe (`.detach()`) only where the generator's gradients are cleared before its own backward, else unsafe: they
    were part of its step. None where the argument brings in more than the generator's output, where it is not known to
    be a tensor, and where the same call also serves the generator's step.

    ## Measured by `trainlint verify`

    Peak memory of the discriminator's step with and without `.detach()`.

    ## References

    - PyTorch tutorial, "DCGAN": `netD(fake.detach())`
    """

    code = "TL210"
    name = "generator-output-not-detached"
    level = Level.WARNING
    claim = Claim.MEMORY
    message = "{outer} runs on the output of {inner} with its graph, but only {optimizer} steps"
    why = "backward goes through {inner} as well, and fills gradients that this step does not use"
    help = "pass it detached (`.detach()`), or make it under torch.no_grad() when only this step needs it"
    triggers = ((b"torch",), (b"backward",))

    def check(self, script: Script) -> Iterator[Hit]:
        seen: set[int] = set()
        for found in adversarial.wasted_graphs(script):
            if found.outer.context.module is script.module and id(found.outer) not in seen:
                seen.add(id(found.outer))
                inner = describe.text(found.inner.callee)
                yield Hit(
                    found.outer,
                    {"outer": describe.text(found.outer), "inner": inner, "optimizer": describe.text(found.optimizer)},
                    notes=(
                        Note(found.inner, "made here, with its graph"),
                        Note(found.backward, "this backward goes through both"),
                    ),
                    rewrite=rewrites.detach(found.argument, safe=found.cleared) if found.argument is not None else None,
                    why=f"backward goes through {inner} as well, and fills gradients that this step does not use",
                )

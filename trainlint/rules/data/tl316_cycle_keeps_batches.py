from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules import describe
from trainlint.rules.rule import Hit, Rule
from trainlint.semantic.values import Object, each

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class CycleKeepsBatches(Rule):
    """`itertools.cycle(loader)`.

    ## Why is this bad?

    `cycle` keeps every element of the first pass in a list and then replays that list. Over a loader this means: all
    batches stay in memory (in shared memory, where workers made them), and from the second pass on the model sees the
    very same batches, neither shuffled nor augmented anew.

    ## Example

    ```python
    batches = itertools.cycle(loader)
    ```

    ## Use instead

    ```python
    def forever(loader):
        while True:
            yield from loader


    batches = forever(loader)
    ```

    ## When it is silent

    `cycle` over anything but a loader, and functions of the project that are called `cycle`.

    ## Fix safety

    No fix: the data that later passes see changes, as is meant.

    ## Measured by `trainlint verify`

    Growth of memory per step, and whether the second pass repeats the batches of the first.

    ## References

    - Python, itertools.cycle: "saves a copy of each element"
    - pytorch/pytorch#23900
    """

    code = "TL316"
    name = "cycle-keeps-batches"
    level = Level.WARNING
    claim = Claim.MEMORY
    message = "{call} keeps every batch of the first pass and replays it"
    why = "memory grows by the whole dataset, and later passes are neither shuffled nor augmented anew"
    help = "iterate the loader again instead: `while True: yield from loader`"
    triggers = ((b"cycle",),)

    def check(self, script: Script) -> Iterator[Hit]:
        for call in script.calls("itertools.cycle"):
            if call.args and any(
                isinstance(v, Object) and v.role == "loader" for v in each(script.value(call.args[0]))
            ):
                yield Hit(call, {"call": describe.text(call)})

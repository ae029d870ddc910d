from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules import describe
from trainlint.rules.rule import Hit, Note, Rule
from trainlint.semantic import compiled
from trainlint.semantic.facts import Record

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class CompileInLoop(Rule):
    """`torch.compile(...)` of a new function or module on each turn of a loop.

    ## Why is this bad?

    Compilation happens at the first call of what `torch.compile` gives back, and takes seconds to minutes. A new object on
    every epoch or step is compiled anew, and after `recompile_limit` times the code runs uncompiled.

    ## Example

    ```python
    for epoch in range(epochs):
        fast = torch.compile(model)
        train_epoch(fast, loader)
    ```

    ## Use instead

    ```python
    fast = torch.compile(model)
    for epoch in range(epochs):
        train_epoch(fast, loader)
    ```

    ## When it is silent

    Before the loop; under a condition that makes it rare, or for what is not there yet (`if self.fast is None`); loops over
    the parts of a model, each of which is compiled once.

    ## Fix safety

    No fix.

    ## Measured by `trainlint verify`

    Step time, and the compilations counted by `torch._dynamo`.

    ## References

    - torch.compile, "Recompilation"
    """

    code = "TL701"
    name = "compile-in-loop"
    level = Level.ADVICE
    claim = Claim.TIME
    message = "{call} makes something new to compile on every turn of {loop}"
    why = "each new object is compiled again at its first call"
    help = "compile once, before the loop"
    triggers = ((b"compile",),)

    def check(self, script: Script) -> Iterator[Hit]:
        for place in compiled.compilations(script):
            loop = compiled.repeated(script, place)
            if loop is not None:
                notes: tuple[Note, ...] = (Note(loop, "the loop is here"),) if isinstance(loop, Record) else ()
                hot = script.hot(place.record)
                name = describe.loop_name(hot.loop, hot) if hot is not None else "a loop"
                yield Hit(place.record, {"call": describe.text(place.record), "loop": name}, None, notes)

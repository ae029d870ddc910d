from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Level
from trainlint.rules import describe, rewrites
from trainlint.rules.rule import Hit, Note, Rule
from trainlint.semantic import landing, transfers

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class AsyncCopyToHostRace(Rule):
    """A copy to the host with `non_blocking=True`, read before it is known to have arrived.

    ## Why is this bad?

    Work on the device waits for a copy by itself; the host does not. `.to("cpu", non_blocking=True)` comes back at
    once, and what is read may be whatever lay in that memory before. It goes right on a quiet machine and wrong on a
    busy one, without an error.

    ## Example

    ```python
    scores = model(images).to("cpu", non_blocking=True)
    table = scores.numpy()
    ```

    ## Use instead

    ```python
    scores = model(images).to("cpu")
    ```

    Or copy into pinned memory, record a `torch.cuda.Event`, and wait for it before the read.

    ## When it is silent

    Where `synchronize()` or an event stands between copy and read, and for copies to the device.

    ## Fix safety

    Safe: `non_blocking` goes, and the copy waits.

    ## Measured by `trainlint verify`

    Nothing: whether the race is lost depends on the machine.

    ## References

    - PyTorch tutorial, "A guide on good usage of non_blocking and pin_memory()": "Other copy directions (GPU -> CPU)"
    """

    code = "TL112"
    name = "async-copy-to-host-race"
    level = Level.ERROR
    message = "{call} is read by {read} before the copy is known to be done"
    why = "the host does not wait for the device, so it can read what lay in that memory before"
    help = "drop non_blocking=True, or call torch.cuda.synchronize() (or wait for an event) before the read"
    triggers = ((b"non_blocking",), (b".to(", b"cpu", b"True"), (b".copy_(", b"True"))

    def check(self, script: Script) -> Iterator[Hit]:
        for race in landing.races(script):
            notes = (Note(race.read, "read here"),)
            values = {"call": describe.text(race.copy), "read": describe.text(race.read)}
            position = transfers.non_blocking_position(script, race.copy)
            rewrite = rewrites.drop_option(race.copy, "non_blocking", position, "False", safe=True)
            yield Hit(race.copy, values, notes=notes, rewrite=rewrite)

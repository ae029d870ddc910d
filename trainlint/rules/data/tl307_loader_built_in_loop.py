from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules.rule import Hit, Note, Rule
from trainlint.semantic import loading, rebuilding
from trainlint.semantic.facts import Comprehension, For, While

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class LoaderBuiltInLoop(Rule):
    """A DataLoader is built anew on every turn of the epoch or batch loop, always over the same data.

    ## Why is this bad?

    Each new loader starts its workers again, copies the dataset to them, and waits for the first batches;
    `persistent_workers` cannot help a loader that lives for one pass.

    ## Example

    ```python
    for epoch in range(epochs):
        loader = DataLoader(dataset, batch_size=64, shuffle=True, num_workers=4)
        for batch in loader:
            train_step(batch)
    ```

    ## Use instead

    ```python
    loader = DataLoader(dataset, batch_size=64, shuffle=True, num_workers=4, persistent_workers=True)
    for epoch in range(epochs):
        for batch in loader:
            train_step(batch)
    ```

    ## When it is silent

    Where the dataset, its sampler or another argument may differ from turn to turn: folds, tasks, a curriculum, a
    replay memory; where each turn is a run of its own, with a new model; where a condition makes it rare.

    ## Fix safety

    No fix: the loader moves out of the loop, perhaps out of the function.

    ## Measured by `trainlint verify`

    The time until the first batch of each epoch.

    ## References

    - torch.utils.data, "Multi-process data loading"
    """

    code = "TL307"
    name = "loader-built-in-loop"
    level = Level.WARNING
    claim = Claim.LOADER
    message = "this loader is built again on every turn of {loop}"
    why = "its workers start, import and copy the dataset each time, and the first batches are waited for"
    help = "build it once, before the loop"
    near = (b"Loader",)

    def check(self, script: Script) -> Iterator[Hit]:
        for call, _ in loading.loaders(script):
            frame = rebuilding.loop_that_rebuilds(script, call)
            if frame is None:
                continue
            record = frame.record
            batch = script.semantics.loops.batch_loop(frame) is not None
            notes = (
                (Note(record, "built on every turn of this loop"),)
                if isinstance(record, (For, While, Comprehension))
                else ()
            )
            yield Hit(call, {"loop": "the batch loop" if batch else "the epoch loop"}, None, notes)

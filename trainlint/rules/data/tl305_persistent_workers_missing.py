from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules.rule import Hit, Note, Rule
from trainlint.semantic import loading, reading
from trainlint.semantic.facts import For, While

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class PersistentWorkersMissing(Rule):
    """A loader with workers is iterated epoch after epoch, and its workers end with each of them.

    ## Why is this bad?

    At the end of a pass the worker processes are stopped, and started again at the beginning of the next:
    interpreter, imports, a copy of the dataset, the first batches. Where processes are spawned (Windows, macOS) that
    takes seconds per worker, with an idle device. `persistent_workers=True` keeps them.

    ## Example

    ```python
    loader = DataLoader(images, batch_size=64, num_workers=8)
    for epoch in range(90):
        for batch in loader:
            ...
    ```

    ## Use instead

    ```python
    loader = DataLoader(images, batch_size=64, num_workers=8, persistent_workers=True)
    ```

    ## When it is silent

    One pass; workers that may be none (then the option raises); options that cannot be seen; the Hugging Face Trainer.

    ## Fix safety

    Unsafe: a dataset that the main process changes between epochs is not copied to the workers again.

    ## Measured by `trainlint verify`

    The time until the first batch of the second epoch, with and without.

    ## References

    - torch.utils.data.DataLoader, `persistent_workers`
    """

    code = "TL305"
    name = "persistent-workers-missing"
    level = Level.ADVICE
    claim = Claim.LOADER
    message = "the workers of this loader are started anew for every epoch"
    why = "each start copies the dataset to new processes and waits for their first batches"
    help = "pass persistent_workers=True"

    def check(self, script: Script) -> Iterator[Hit]:
        for call, _ in loading.loaders(script):
            workers = loading.workers(script, call)
            if workers is None or workers.lowest < 1 or reading.in_hf_trainer(script, call):
                continue
            if not loading.falsy(loading.option(script, call, "persistent_workers")):
                continue
            for feed in script.feeding.feeds(call):
                frame = script.feeding.epoch_loop(feed, call)
                if frame is not None and isinstance(frame.record, (For, While)):
                    yield Hit(call, {}, None, (Note(frame.record, "it is iterated on every turn of this loop"),))
                    break

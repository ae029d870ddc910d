from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules.rule import Hit, Note, Rule
from trainlint.semantic import loading, reading
from trainlint.semantic.feeding import is_switched_off

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class LoaderWithoutWorkers(Rule):
    """A training DataLoader that reads in the main process: `num_workers` is missing or 0.

    ## Why is this bad?

    With `num_workers=0` the process that queues work for the device also decodes, augments and collates every batch.
    The device waits for all of it, on every step. Workers prepare the next batches while the present one is trained on.

    ## Example

    ```python
    loader = DataLoader(images, batch_size=64, shuffle=True)
    for batch in loader:
        train_step(batch)
    ```

    ## Use instead

    ```python
    loader = DataLoader(images, batch_size=64, shuffle=True, num_workers=min(8, os.cpu_count() or 1))
    ```

    ## When it is silent

    Evaluation loaders; a count that comes from the command line, a caller or a condition and may be positive; options
    that cannot be seen; the Hugging Face Trainer. Datasets that are in memory already (`TensorDataset`, an item of a
    list) and programs that never use an accelerator get advice.

    ## Fix safety

    Unsafe: workers draw from random streams of their own, and what the dataset holds must survive the way to them. No
    fix where it would make TL301, TL302 or TL306 report.

    ## Measured by `trainlint verify`

    The time a step waits for data, with and without workers.

    ## References

    - PyTorch, Performance Tuning Guide, "Enable asynchronous data loading and augmentation"
    - torch.utils.data, "Single- and Multi-process Data Loading"
    """

    code = "TL303"
    name = "loader-without-workers"
    level = Level.WARNING
    claim = Claim.LOADER
    message = "this training loader has no workers{how}: every step waits while the main process prepares its batch"
    why = "decoding and collating run between the steps, and the device idles meanwhile"
    help = "give it workers: num_workers=min(8, os.cpu_count() or 1)"

    def check(self, script: Script) -> Iterator[Hit]:
        for call, _ in loading.loaders(script):
            workers = loading.workers(script, call)
            if workers is None or workers.some or reading.in_hf_trainer(script, call):
                continue
            feeds = script.feeding.training(call)
            if not feeds and not reading.trains_in_lightning(script, call):
                continue
            light = reading.is_in_memory(script, call) or not script.uses_accelerator() or is_switched_off(script, call)
            notes = tuple(Note(f.expr, "its batches are trained on here") for f in feeds[:1])
            yield Hit(call, {"how": self._how(workers)}, Level.ADVICE if light else None, notes)

    def _how(self, workers: loading.Workers) -> str:
        return " unless somebody asks for them" if workers.settable else ""

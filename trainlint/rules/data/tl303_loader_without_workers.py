from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules import rewrites
from trainlint.rules.data.supposing import new_codes
from trainlint.rules.rule import Hit, Note, Rewrite, Rule
from trainlint.semantic import loading, reading
from trainlint.semantic.facts import Call
from trainlint.semantic.feeding import is_switched_off
from trainlint.semantic.values import Number

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_ABOUT_WORKERS = ("TL301", "TL302", "TL305", "TL306", "TL313", "TL314", "TL318", "TL319", "TL320", "TL322")


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

    Unsafe: workers draw from random streams of their own, and what the dataset holds must survive the way to them.
    `num_workers=min(8, os.cpu_count() or 1)` is passed, and `persistent_workers=True` with it where TL305 would ask for
    it. No fix where it would make another rule report (TL301, TL302, TL306, TL313, TL314, TL318, TL319, TL320, TL322),
    where the data lies in memory, or where the number comes from a variable or from options.

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
    near = (b"Loader",)

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
            level = Level.ADVICE if light else None
            yield Hit(call, {"how": self._how(workers)}, level, notes, rewrite=self._rewrite(script, call))

    def _rewrite(self, script: Script, call: Call) -> Rewrite | None:
        if reading.is_in_memory(script, call):
            return None  # there is nothing to prepare that would be worth a worker
        count = rewrites.name_for(script, "os.cpu_count", call)
        if count is None and not rewrites.is_free(script, "os", call):
            return None
        place = loading.position("num_workers")

        def absent(name: str) -> bool:
            return loading.option(script, call, name) is None

        options = [
            rewrites.Option(
                "num_workers", f"min(8, {count or 'os.cpu_count'}() or 1)", place, (0,), absent("num_workers")
            )
        ]
        more = new_codes(script, call, "num_workers", Number("int"), _ABOUT_WORKERS)
        if "TL305" in more:  # drawn from epoch after epoch
            options.append(rewrites.Option("persistent_workers", "True", None, (False,), absent("persistent_workers")))
        if more - {"TL305"}:
            return None
        return rewrites.pass_options(call, options, safe=False, needs="os" if count is None else None)

    def _how(self, workers: loading.Workers) -> str:
        return " unless somebody asks for them" if workers.settable else ""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules import rewrites
from trainlint.rules.rule import Hit, Note, Rewrite, Rule
from trainlint.semantic import loading, reading, told_datasets
from trainlint.semantic.contexts import dotted_name
from trainlint.semantic.facts import Call, Constant, Expr, For, Operator, While
from trainlint.semantic.values import Const, each

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

    One pass; workers that may be none (then the option raises); options that cannot be seen; the Hugging Face Trainer; a
    dataset that the main process is seen to change between epochs (`dataset.set_epoch(epoch)`).

    ## Fix safety

    Unsafe: a dataset that the main process changes between epochs is not copied to the workers again. Where the number of
    workers may be set to 0, `persistent_workers=args.workers > 0` is written. No fix where the options come from a dict, or
    the number from an expression that may be 0.

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
    near = (b"Loader",)

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
                    if told_datasets.is_told(script, call):
                        break
                    notes = (Note(frame.record, "it is iterated on every turn of this loop"),)
                    yield Hit(call, {}, None, notes, rewrite=self._rewrite(script, call, workers))
                    break

    def _rewrite(self, script: Script, call: Call, workers: loading.Workers) -> Rewrite | None:
        """Where somebody may ask for no workers, the option must follow: with none it raises."""
        given = call.argument(loading.position("num_workers"), "num_workers")
        held = loading.option(script, call, "num_workers")
        value = "True"
        fixed = held is not None and all(isinstance(c, Const) for c in each(held)) and not workers.settable
        if not fixed and (given is None or not _counts_processors(script, given)):
            name = dotted_name(given) if given is not None else None
            if name is None:
                return None
            value = f"{name} > 0"
        absent = loading.option(script, call, "persistent_workers") is None
        return rewrites.pass_option(call, "persistent_workers", value, over=(False,), absent=absent, safe=False)


def _counts_processors(script: Script, expr: Expr) -> bool:
    """`os.cpu_count()`, `min(8, os.cpu_count() or 1)`: at least one. A difference or a quotient may be none."""
    if isinstance(expr, Call):
        name = script.name_of(expr.callee)
        if name in ("os.cpu_count", "multiprocessing.cpu_count", "os.process_cpu_count"):
            return True
        return expr.attr in ("min", "max") and all(_counts_processors(script, a) for a in expr.args)
    if isinstance(expr, Operator):
        return expr.op == "or" and any(_counts_processors(script, o) for o in expr.operands)
    return isinstance(expr, Constant) and isinstance(expr.value, int) and expr.value > 0

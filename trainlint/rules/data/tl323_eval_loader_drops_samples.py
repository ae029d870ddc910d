from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules.rule import Hit, Note, Rule
from trainlint.semantic import loading, reading

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class EvalLoaderDropsSamples(Rule):
    """`drop_last=True` on a validation or test loader.

    ## Why is this bad?

    The last, smaller batch is never evaluated: with 1,000 samples and a batch size of 64 that is 40 of them, and
    always the same ones, since evaluation loaders are not shuffled. Scores of runs with different batch sizes cannot
    be compared.

    ## Example

    ```python
    val_loader = DataLoader(val_set, batch_size=64, drop_last=True)
    ```

    ## Use instead

    ```python
    val_loader = DataLoader(val_set, batch_size=64)
    ```

    ## When it is silent

    Loaders that are trained on, also by other callers of the same function; a value that is not known or depends on the
    split.

    ## Fix safety

    Unsafe: the last batch is smaller, and a mean over batches weighs it as much as the others.

    ## Measured by `trainlint verify`

    Not measured: the number of samples that are left out follows from the sizes.

    ## References

    - torch.utils.data.DataLoader: `drop_last`
    """

    code = "TL323"
    name = "eval-loader-drops-samples"
    level = Level.ADVICE
    claim = Claim.NONE
    message = "drop_last=True on an evaluation loader: its last samples are never evaluated"
    why = "the score leaves out up to batch_size - 1 samples, always the same ones"
    help = "leave drop_last out"

    def check(self, script: Script) -> Iterator[Hit]:
        for call, _ in loading.loaders(script):
            if not loading.truthy(loading.option(script, call, "drop_last")):
                continue
            feeds = script.feeding.feeds(call)
            if any(f.phase == "train" for f in feeds):
                feeds = []
            evaluated = [f for f in feeds if f.phase == "eval"]
            if evaluated:
                yield Hit(call, {}, None, (Note(evaluated[0].expr, "evaluated here"),))
            elif not feeds and reading.lightning_phase(script, call) == "eval":
                yield Hit(call, {})

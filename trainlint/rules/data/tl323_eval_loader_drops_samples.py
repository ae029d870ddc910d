from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules import rewrites
from trainlint.rules.rule import Hit, Note, Rewrite, Rule
from trainlint.semantic import loading, reading
from trainlint.semantic.facts import Call
from trainlint.semantic.feeding import is_for_training

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_POSITION = 8  # of `drop_last` among the arguments of a DataLoader


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

    Loaders that are trained on, also by other callers of the same function, or that are named so; a value that is not
    known or depends on the split.

    ## Fix safety

    Unsafe: `drop_last=True` goes; the last batch is then smaller, and a mean over batches weighs it as much as the
    others. No fix where the value comes from a variable or from options.

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
    near = (b"Loader",)

    def check(self, script: Script) -> Iterator[Hit]:
        for call, _ in loading.loaders(script):
            if not loading.truthy(loading.option(script, call, "drop_last")):
                continue
            if is_for_training(call):
                continue  # by another library than torch
            feeds = script.feeding.feeds(call)
            if any(f.phase == "train" for f in feeds):
                feeds = []
            evaluated = [f for f in feeds if f.phase == "eval"]
            if evaluated:
                yield Hit(call, {}, None, (Note(evaluated[0].expr, "evaluated here"),), rewrite=self._rewrite(call))
            elif not feeds and reading.lightning_phase(script, call) == "eval":
                yield Hit(call, {}, rewrite=self._rewrite(call))

    def _rewrite(self, call: Call) -> Rewrite | None:
        return rewrites.drop_option(call, "drop_last", _POSITION, "False", safe=False)

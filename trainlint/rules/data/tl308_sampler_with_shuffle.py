from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules import rewrites
from trainlint.rules.rule import Hit, Rewrite, Rule
from trainlint.semantic import loading
from trainlint.semantic.facts import Call
from trainlint.semantic.values import Const, Number, Object, Value, each

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


_NEUTRAL = {"shuffle": "False", "drop_last": "False", "batch_size": "1"}


class SamplerWithShuffle(Rule):
    """Options of a DataLoader that exclude each other: a sampler and `shuffle=True`, a batch sampler and a batch size.

    ## Why is this bad?

    It raises a ValueError when the loader is built: `sampler` and `shuffle` both say in which order items come,
    `batch_sampler` says that and the batch size, and an IterableDataset has an order of its own.

    ## Example

    ```python
    loader = DataLoader(images, batch_size=64, shuffle=True, sampler=WeightedRandomSampler(weights, n))
    ```

    ## Use instead

    ```python
    loader = DataLoader(images, batch_size=64, sampler=WeightedRandomSampler(weights, n))
    ```

    ## When it is silent

    Values that are not known, or that only one way of a condition gives (`shuffle=sampler is None`); `batch_size=1`
    beside a batch sampler, and `shuffle=False` anywhere, which are accepted.

    ## Fix safety

    Safe: it removes the option that the sampler replaces, and code that only raised runs.

    ## Measured by `trainlint verify`

    The loader is built.

    ## References

    - torch.utils.data.DataLoader: `sampler`, `batch_sampler` (checked on torch 2.13)
    """

    code = "TL308"
    name = "sampler-with-shuffle"
    level = Level.ERROR
    claim = Claim.BEHAVIOUR
    message = "{first} and {second} exclude each other: this loader raises when it is built"
    why = "two options say in which order items come"
    help = "drop {drop}"
    near = (b"Loader",)

    def check(self, script: Script) -> Iterator[Hit]:
        for call, _ in loading.loaders(script):
            clash = self._clash(script, call)
            if clash is not None:
                first, second, drop = clash
                why = (
                    "the stream decides its own order"
                    if first == "an IterableDataset"
                    else "both say in which order items come"
                )
                option = drop.partition("=")[0].partition(" ")[0]
                rewrite = self._rewrite(call, option)
                yield Hit(call, {"first": first, "second": second, "drop": drop}, why=why, rewrite=rewrite)

    def _rewrite(self, call: Call, option: str) -> Rewrite | None:
        """None where either of two can go, or where the option comes from somewhere else."""
        if call.keyword(option) is not None:
            return rewrites.drop_arguments([option], safe=True)
        value = call.argument(loading.position(option), option)
        if value is None or option not in _NEUTRAL:
            return None
        return rewrites.write(value, _NEUTRAL[option], safe=True)

    def _clash(self, script: Script, call: Call) -> tuple[str, str, str] | None:
        def given(name: str) -> Value | None:
            return loading.option(script, call, name, sure=True)

        shuffled = _true(given("shuffle"))
        if shuffled and _is_object(given("sampler")):
            return "sampler=", "shuffle=True", "shuffle=True"
        if _is_object(given("batch_sampler")):
            if _is_object(given("sampler")):
                return "batch_sampler=", "sampler=", "one of them"
            if shuffled:
                return "batch_sampler=", "shuffle=True", "shuffle=True"
            if _true(given("drop_last")):
                return "batch_sampler=", "drop_last=True", "drop_last (it belongs to the batch sampler)"
            if _other_size(given("batch_size")):
                return "batch_sampler=", "batch_size=", "batch_size (it belongs to the batch sampler)"
        if shuffled:
            found = loading.datasets(script, call)
            if found and all(d.cls is not None and loading.is_iterable_style(script, d) for d in found):
                return "an IterableDataset", "shuffle=True", "shuffle=True and mix in the dataset"
        return None


def _true(value: Value | None) -> bool:
    return value is not None and all(isinstance(v, Const) and v.value is True and not v.settable for v in each(value))


def _is_object(value: Value | None) -> bool:
    """A sampler on every way; not one that may be None."""
    return value is not None and all(
        isinstance(v, Object) and v.role in ("sampler", "object") and bool(v.name) for v in each(value)
    )


def _other_size(value: Value | None) -> bool:
    if value is None:
        return False
    return all(
        (isinstance(v, Const) and v.value != 1 and (v.value is not None or not v.settable))
        or (isinstance(v, Number) and v.kind == "int")
        for v in each(value)
    )

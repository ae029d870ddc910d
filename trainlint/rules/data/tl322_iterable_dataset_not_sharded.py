from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules.rule import Hit, Note, Rule
from trainlint.semantic import frameworks, loading, sharding
from trainlint.semantic.facts import Call
from trainlint.semantic.values import Const, Number, each

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class IterableDatasetNotSharded(Rule):
    """An IterableDataset is read by several workers or ranks, and nothing in it asks which of them it is.

    ## Why is this bad?

    Each worker gets a copy of the dataset and iterates all of it. With four workers every sample arrives four times,
    and an "epoch" is four epochs; the same for ranks. Nothing warns.

    ## Example

    ```python
    class Lines(IterableDataset):
        def __iter__(self):
            for line in open(self.path):
                yield parse(line)

    loader = DataLoader(Lines(path), num_workers=4)
    ```

    ## Use instead

    ```python
        def __iter__(self):
            worker = get_worker_info()
            first, every = (0, 1) if worker is None else (worker.id, worker.num_workers)
            for line in itertools.islice(open(self.path), first, None, every):
                yield parse(line)
    ```

    ## When it is silent

    One worker on one rank; sharding in a helper, in a `worker_init_fn` or by webdataset or Hugging Face datasets; a
    dataset that wraps another stream; endless random streams.

    ## Fix safety

    No fix: how the data can be split is for the author to say.

    ## Measured by `trainlint verify`

    The samples that two workers yield.

    ## References

    - torch.utils.data.IterableDataset, the examples on splitting the workload
    """

    code = "TL322"
    name = "iterable-dataset-not-sharded"
    level = Level.ERROR
    claim = Claim.BEHAVIOUR
    message = "every {reader} that reads this IterableDataset yields all of it"
    why = "each sample arrives once per reader, and an epoch is as many epochs"
    help = "ask get_worker_info() (and the rank) in __iter__, and yield only the own part"
    triggers = ((b"__iter__",),)
    near = (b"Loader",)

    def check(self, script: Script) -> Iterator[Hit]:
        seen: set[int] = set()
        for loader, _ in script.feeding.loaders(script.module):
            reader = self._readers(script, loader)
            if reader is None or not loading.falsy(loading.option(script, loader, "worker_init_fn")):
                continue
            for dataset in loading.datasets(script, loader):
                if dataset.cls is None or not loading.is_iterable_style(script, dataset):
                    continue
                method = script.inference.method(dataset.cls, "__iter__")
                if method is None or method.module is not script.module or id(method) in seen:
                    continue
                if not sharding.splits_itself(script, dataset.cls, method):
                    seen.add(id(method))
                    why = f"each sample arrives once per {reader}, and an epoch is as many epochs"
                    yield Hit(
                        method, {"reader": reader}, None, (Note(loader, f"read by several {reader}s here"),), why=why
                    )

    def _readers(self, script: Script, loader: Call) -> str | None:
        """ "worker" or "rank", where there are several of them."""
        value = loading.option(script, loader, "num_workers")
        if value is not None:
            counts = list(each(value))
            if any(
                (isinstance(v, Const) and isinstance(v.value, int) and v.value > 1) or isinstance(v, Number)
                for v in counts
            ):
                return "worker"
        for feed in script.feeding.training(loader):
            if any(frameworks.is_prepared(drawn) for drawn in loading.loaders_behind(script, feed.expr)):
                return None
            if sharding.wraps_model(script, feed) is not None:
                return "rank"
        return None

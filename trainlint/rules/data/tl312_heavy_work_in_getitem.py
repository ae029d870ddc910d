from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules import describe
from trainlint.rules.rule import Hit, Note, Rule
from trainlint.semantic import item_work, reading
from trainlint.semantic.facts import Call

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class HeavyWorkInGetitem(Rule):
    """A whole table is read, a transform pipeline or a model is built, for every item or batch that a loader reads.

    ## Why is this bad?

    `__getitem__` runs once per item. Work that is the same for all items then costs as many times: parsing a table to
    take one row, opening an archive to read one entry, building objects that could be kept.

    ## Example

    ```python
    class Plates(Dataset):
        def __getitem__(self, index):
            row = pd.read_csv(self.path).iloc[index]
            return self.read(row)
    ```

    ## Use instead

    ```python
    class Plates(Dataset):
        def __init__(self, path):
            self.table = pd.read_csv(path)

        def __getitem__(self, index):
            return self.read(self.table.iloc[index])
    ```

    HDF5 files and databases: open them on first use in `__getitem__` and keep the handle, so that each worker has its
    own.

    ## When it is silent

    A file of its own for each item; work under a condition (`if self.file is None`), or whose result is kept on the
    dataset.

    ## Fix safety

    No fix.

    ## Measured by `trainlint verify`

    The time that one item takes.

    ## References

    - PyTorch, Performance Tuning Guide, "Enable asynchronous data loading and augmentation"
    """

    code = "TL312"
    name = "heavy-work-in-getitem"
    level = Level.ADVICE
    claim = Claim.LOADER
    message = "{call} {what} for every {unit} that is read"
    why = "the same work is done again each time, in every worker"
    help = "do it once, in __init__ (files: on first use in each worker), and keep the result"
    triggers = (
        (b"read_",),
        (b"load",),
        (b"File",),
        (b"Compose",),
        (b"models",),
        (b"from_pretrained",),
        (b"create_model",),
        (b"genfromtxt",),
        (b"open",),
    )
    near = (b"Loader",)

    def check(self, script: Script) -> Iterator[Hit]:
        seen: set[int] = set()
        for loader, _ in script.feeding.loaders(script.module):
            for function, calls in reading.entered(script, reading.item_functions(script, loader)):
                if function.module is not script.module or self._guarded(calls):
                    continue
                for call in function.calls:
                    what = item_work.heavy(script, call, function) if id(call) not in seen else None
                    if what is not None:
                        seen.add(id(call))
                        unit = "item" if self._per_item(calls, call) else "batch"
                        notes = [Note(c, "called from here") for c in reversed(calls)]
                        notes.append(Note(loader, "the loader is built here"))
                        values = {"call": describe.text(call), "what": what, "unit": unit}
                        yield Hit(call, values, None, tuple(notes))

    def _guarded(self, calls: tuple[Call, ...]) -> bool:
        return any(item_work.is_conditional(c) for c in calls)

    def _per_item(self, calls: tuple[Call, ...], call: Call) -> bool:
        first = calls[0] if calls else call
        function = first.context.function
        return function is None or function.name in ("__getitem__", "__call__", "forward")

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules.rule import Hit, Note, Rule
from trainlint.semantic import loading, python_objects

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class PythonObjectsInDataset(Rule):
    """A dataset with workers keeps a list or dict of Python objects that it read from a file.

    ## Why is this bad?

    Forked workers share the memory of the main process until a page is written to. Reading a Python object writes to
    it: its reference count. So page after page is copied into every worker, and memory grows over the epoch towards
    the size of the list times the number of workers, as if it leaked.

    ## Example

    ```python
    class Captions(Dataset):
        def __init__(self, path):
            with open(path) as file:
                self.records = json.load(file)
    ```

    ## Use instead

    numpy or torch arrays (one object, whatever it holds), strings packed into one byte array with offsets, a memory
    map, Arrow tables (`datasets`), or a file per item.

    ## When it is silent

    No workers; arrays and tensors; what is not known to come from a file.

    ## Fix safety

    No fix: the data needs another shape.

    ## Measured by `trainlint verify`

    Growth of the workers' private memory over an epoch.

    ## References

    - pytorch/pytorch#13246
    - Yuxin Wu, "Demystify RAM Usage in Multi-Process Data Loaders"
    """

    code = "TL314"
    name = "python-objects-in-dataset"
    level = Level.ADVICE
    claim = Claim.MEMORY
    message = "this dataset keeps Python objects read from a file: each worker comes to hold a copy of them"
    why = "reading an object writes its reference count, so shared pages are copied into every worker over the epoch"
    help = "keep arrays instead: numpy, torch, packed bytes with offsets, Arrow, a memory map"
    triggers = ((b"self",),)
    near = (b"Loader",)

    def check(self, script: Script) -> Iterator[Hit]:
        seen: set[int] = set()
        for loader, _ in script.feeding.loaders(script.module):
            workers = loading.workers(script, loader)
            if workers is None or not workers.some:
                continue
            for dataset in loading.datasets(script, loader):
                if dataset.cls is None:
                    continue
                for value in python_objects.kept(script, dataset.cls):
                    if value.context.module is script.module and id(value) not in seen:
                        seen.add(id(value))
                        yield Hit(value, {}, None, (Note(loader, "read by the workers of this loader"),))

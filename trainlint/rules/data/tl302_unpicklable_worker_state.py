from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules.rule import Hit, Note, Rule
from trainlint.semantic import loading, picklable, reading
from trainlint.semantic.facts import Call, Expr, Record

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class UnpicklableWorkerState(Rule):
    """A loader with workers gets what cannot be sent to them: a lambda, nested function, generator or open handle.

    ## Why is this bad?

    Where workers are spawned (Windows, macOS) or come from a fork server (Linux from Python 3.14), dataset, collate
    function and `worker_init_fn` travel to them as a pickle. Lambdas and nested functions have no name to pickle,
    files and database connections no meaning in another process: the run dies at the first batch. Where workers are
    forked, a handle that was opened before is shared: all of them move the same file position and read each other's
    bytes.

    ## Example

    ```python
    class Scans(Dataset):
        def __init__(self, path):
            self.file = h5py.File(path)

    loader = DataLoader(Scans(path), num_workers=4, collate_fn=lambda rows: rows)
    ```

    ## Use instead

    ```python
    def keep(rows):
        return rows


    class Scans(Dataset):
        def __init__(self, path):
            self.path, self.file = path, None

        def __getitem__(self, index):
            if self.file is None:  # once in each worker
                self.file = h5py.File(self.path)
            return self.file["scan"][index]

    loader = DataLoader(Scans(path), num_workers=4, collate_fn=keep)
    ```

    ## When it is silent

    No workers; a start method that the script chooses to be fork (lambdas only); a class with its own `__getstate__`; a
    handle that is closed and dropped before the workers start.

    ## Fix safety

    No fix: the function needs a name, or the handle another place.

    ## Measured by `trainlint verify`

    One batch with workers started by spawn.

    ## References

    - torch.utils.data, "Platform-specific behaviors"
    - Python, pickle, "What can be pickled and unpickled?"
    """

    code = "TL302"
    name = "unpicklable-worker-state"
    level = Level.ERROR
    claim = Claim.BEHAVIOUR
    message = "{what} cannot be sent to worker processes"
    why = "under spawn (Windows, macOS) and forkserver (Linux, Python 3.14) the run dies when the workers start"
    help = "define functions at module level, and open files on first use in __getitem__"
    triggers = ((b"lambda",), (b"def ",), (b"self",))
    near = (b"Loader",)

    def check(self, script: Script) -> Iterator[Hit]:
        seen: set[int] = set()
        for call, _ in script.feeding.loaders(script.module):
            workers = loading.workers(script, call)
            if workers is None or not workers.some:
                continue
            for record, what in self._found(script, call):
                if record.context.module is script.module and id(record) not in seen:
                    seen.add(id(record))
                    notes = () if record is call else (Note(call, "the loader with workers is built here"),)
                    shared = what not in ("a lambda", "a nested function", "a generator")
                    why = (
                        "forked workers share its position and mix up what they read; spawned ones do not start"
                        if shared
                        else None
                    )
                    help = (
                        "keep the path, and open it on first use in __getitem__"
                        if shared
                        else "define it at module level (functools.partial for arguments)"
                        if what != "a generator"
                        else "make the generator in __iter__"
                    )
                    yield Hit(record, {"what": what}, None, notes, why=why, help=help)

    def _found(self, script: Script, call: Call) -> Iterator[tuple[Record, str]]:
        if not self._forks(script, call):
            for name in ("collate_fn", "worker_init_fn"):
                given = call.argument(loading.position(name), name)
                if given is not None:
                    yield from self._callables(script, given)
                else:
                    what = picklable.unpicklable_function(loading.option(script, call, name))
                    if what is not None:
                        yield call, what
        for dataset in loading.datasets(script, call):
            if not self._forks(script, call):
                for transform in reading.transforms(script, dataset):
                    yield from self._callables(script, transform)
            if dataset.cls is not None:
                yield from picklable.unpicklable_attributes(script, dataset.cls)

    def _callables(self, script: Script, given: Expr) -> Iterator[tuple[Record, str]]:
        for part in reading.parts(script, given):
            what = picklable.unpicklable_function(script.value(part))
            if what is not None:
                yield part, what

    def _forks(self, script: Script, call: Call) -> bool:
        settings = script.settings
        if settings is not None and tuple(settings.target_platform) == ("linux",) and settings.python < (3, 14):
            return True
        return (
            script.constant(call.argument(loading.position("multiprocessing_context"), "multiprocessing_context"))
            == "fork"
        )

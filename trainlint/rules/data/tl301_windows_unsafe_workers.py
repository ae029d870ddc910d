from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules.rule import Hit, Note, Rewrite, Rule
from trainlint.semantic import loading, main_guard
from trainlint.semantic.facts import Call, Statement
from trainlint.semantic.values import Object, Routine, Type, constant, each

if TYPE_CHECKING:
    from trainlint.rewriting import Change, Site
    from trainlint.semantic.script import Script


class WindowsUnsafeWorkers(Rule):
    """A DataLoader with workers is iterated by module-level code that no `if __name__ == "__main__":` guards.

    ## Why is this bad?

    Where processes start by spawn (Windows, macOS) or forkserver (Linux from Python 3.14), every worker imports the script
    again. Without the guard it then runs the whole training again, which starts workers of its own: the run dies with "An
    attempt has been made to start a new process before the current process has finished its bootstrapping phase", or with
    BrokenPipeError.

    ## Example

    ```python
    loader = DataLoader(dataset, num_workers=4)
    for batch in loader:
        train_step(batch)
    ```

    ## Use instead

    ```python
    def main():
        loader = DataLoader(dataset, num_workers=4)
        for batch in loader:
            train_step(batch)


    if __name__ == "__main__":
        main()
    ```

    ## When it is silent

    `num_workers=0 if os.name == "nt" else n`; loaders iterated only from under the guard; a module that other files
    import; a start method that the script chooses itself; `target-platform = ["linux"]` with Python before 3.14. In a
    notebook only a dataset or collate function that is defined in the notebook is flagged: workers cannot import it.

    ## Fix safety

    Unsafe: the script, imported, no longer runs. What runs it, from behind the last import and definition to the end of
    the file, goes under `if __name__ == "__main__":`; names stay names of the module, so functions still find them. No fix
    where a definition or a guard follows later, where workers need a name from there, or where what stays outside would
    still train, start processes or set a start method.

    ## Measured by `trainlint verify`

    One batch with workers started by spawn.

    ## References

    - torch.utils.data, "Platform-specific behaviors"
    - Python, multiprocessing, "Safe importing of main module"
    """

    code = "TL301"
    name = "windows-unsafe-workers"
    level = Level.ERROR
    claim = Claim.BEHAVIOUR
    message = "workers of this loader start from module-level code without a main guard"
    why = "under spawn (Windows, macOS) and forkserver (Linux, Python 3.14) each worker runs the script again and the run dies"
    help = 'move the code into main() and call it under `if __name__ == "__main__":`'
    triggers = ((b"num_workers",), (b"DataLoader",))

    def check(self, script: Script) -> Iterator[Hit]:
        start = self._start_method(script)
        if start == "fork":
            return
        notebook = script.path.endswith(".ipynb")
        for call, _ in script.objects("loader"):
            workers = loading.workers(script, call)
            if workers is None or not workers.some or loading.depends_on_platform(script, call):
                continue
            context = loading.option(script, call, "multiprocessing_context")
            given = constant(context) if context is not None else start
            if given not in ("spawn", "forkserver", None):
                continue  # the script decides over the platform
            if notebook:
                if self._defined_here(script, call):
                    yield Hit(
                        call,
                        {},
                        why="worker processes cannot import what a notebook defines, so they die where processes are spawned",
                        help="move the dataset and collate function into a .py file and import them",
                    )
                continue
            note = self._unguarded_use(script, call)
            if note is not None:
                yield Hit(call, {}, None, (note,), rewrite=self._rewrite(script, call))

    def _rewrite(self, script: Script, call: Call) -> Rewrite | None:
        run = main_guard.run_of(script, call)
        if not run:
            return None
        return Rewrite(False, "Put the run under a main guard", lambda site: _guarded(site, run))

    def _start_method(self, script: Script) -> str | None:
        """What the script chooses for all its processes, "fork" where no target platform spawns, None where it spawns."""
        for module in script.project.family(script.module.path):
            for call in module.calls_by_attr.get("set_start_method", ()):
                method = script.constant(call.argument(0, "method"))
                return method if isinstance(method, str) else "fork"  # not known: silent
        settings = script.settings
        if settings is not None and tuple(settings.target_platform) == ("linux",) and settings.python < (3, 14):
            return "fork"
        return None

    def _unguarded_use(self, script: Script, call: Call) -> Note | None:
        for use in loading.uses(script, call):
            place = script.semantics.entry.unguarded(use.context)
            if place is None:
                continue
            starter = place.module
            if script.project.neighbours.importers(starter.path):
                continue  # a module that is only imported
            return Note(use.expr, "iterated here, which runs when the file is imported")
        return None

    def _defined_here(self, script: Script, call: Call) -> bool:
        for name in ("dataset", "collate_fn", "worker_init_fn"):
            value = loading.option(script, call, name)
            for one in each(value) if value is not None else ():
                if isinstance(one, Object) and one.cls is not None and one.cls.module is script.module:
                    return True
                if isinstance(one, Routine) and one.function.module is script.module:
                    return True
                if isinstance(one, Type) and one.cls.module is script.module:
                    return True
        return False


def _guarded(site: Site, run: tuple[Statement, ...]) -> Iterable[Change]:
    from trainlint import blocks

    return blocks.put_under_guard(site, run)

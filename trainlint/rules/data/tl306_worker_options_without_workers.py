from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules import rewrites
from trainlint.rules.rule import Hit, Rule
from trainlint.semantic import loading
from trainlint.semantic.facts import Call
from trainlint.semantic.values import Const, Items, Number, Object, Text, Value, each

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_OPTIONS = ("persistent_workers", "prefetch_factor", "multiprocessing_context", "timeout")


class WorkerOptionsWithoutWorkers(Rule):
    """A loader without workers gets an option that only workers can have.

    ## Why is this bad?

    It raises. `persistent_workers=True`, `prefetch_factor` and `multiprocessing_context` with `num_workers=0` are a
    ValueError when the loader is built, `timeout` an AssertionError when it is first iterated.

    ## Example

    ```python
    loader = DataLoader(images, batch_size=64, persistent_workers=True)
    ```

    ## Use instead

    ```python
    loader = DataLoader(images, batch_size=64, num_workers=4, persistent_workers=True)
    ```

    ## When it is silent

    A number of workers from the command line or a caller, which may be positive; options set only under a condition;
    the values that mean "off": `persistent_workers=False`, `prefetch_factor=None`, `timeout=0`,
    `multiprocessing_context=None`.

    ## Fix safety

    Safe: it removes the option, and code that only raised runs.

    ## Measured by `trainlint verify`

    The loader is built and iterated once.

    ## References

    - torch.utils.data.DataLoader: `prefetch_factor`, `persistent_workers`, `timeout` (checked on torch 2.13)
    """

    code = "TL306"
    name = "worker-options-without-workers"
    level = Level.ERROR
    claim = Claim.BEHAVIOUR
    message = "{options} without workers: this loader raises {when}"
    why = "the option only means something to worker processes, and torch refuses it without them"
    help = "set num_workers to at least 1, or drop the option"
    near = (b"Loader",)

    def check(self, script: Script) -> Iterator[Hit]:
        for call, _ in loading.loaders(script):
            if not self._has_no_workers(script, call):
                continue
            given = [name for name in _OPTIONS if _is_on(loading.option(script, call, name, sure=True))]
            if given:
                when = "when it is iterated" if given == ["timeout"] else "when it is built"
                rewrite = rewrites.drop_arguments(given, safe=True)
                yield Hit(call, {"options": " and ".join(given), "when": when}, rewrite=rewrite)

    def _has_no_workers(self, script: Script, call: Call) -> bool:
        workers = loading.workers(script, call)
        if workers is None or workers.some:
            return False
        return not workers.settable or not _asked_outside(script, call)


def _asked_outside(script: Script, call: Call) -> bool:
    """A default of 0 that the command line or a configuration may change; not a parameter with known callers."""
    given = call.argument(loading.position("num_workers"), "num_workers")
    if given is None:
        return True
    for binding in loading.definitions(script, given):
        if binding.how == "parameter" and binding.context.function is not None:
            return not script.inference.callgraph.callers(binding.context.function)
    return True


def _is_on(value: Value | None) -> bool:
    if value is None:
        return False
    for one in each(value):
        if isinstance(one, Const):
            if not one.value:
                return False
        elif not (isinstance(one, (Text, Object, Items)) or (isinstance(one, Number) and one.kind in ("int", "float"))):
            return False
    return True

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules.rule import Hit, Note, Rule
from trainlint.semantic import loading, reading
from trainlint.semantic.contexts import is_self
from trainlint.semantic.facts import Attribute, Binding, Call, Class, Expr, Function
from trainlint.semantic.values import Object

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_MAKERS = {
    "numpy.random.default_rng": "a numpy generator",
    "numpy.random.RandomState": "a numpy generator",
    "numpy.random.Generator": "a numpy generator",
    "random.Random": "a random.Random",
    "torch.Generator": "a torch.Generator",
}
_SEEDS = frozenset({"manual_seed", "seed", "set_state", "setstate"})


class GeneratorCopiedIntoWorkers(Rule):
    """A dataset makes a random generator in `__init__` and draws from it in `__getitem__`, in several workers.

    ## Why is this bad?

    Each worker gets a copy of the dataset, and with it a copy of the generator in the same state. All of them draw
    the same numbers: with eight workers, eight items in a row are augmented alike. And since workers are copied anew
    for each epoch, every epoch repeats the first. The global generators of torch, random and numpy are seeded per
    worker (numpy's from torch 1.9 on); one that is kept on the dataset is not.

    ## Example

    ```python
    class Crops(Dataset):
        def __init__(self, clips, seed):
            self.clips = clips
            self.rng = np.random.default_rng(seed)

        def __getitem__(self, index):
            start = self.rng.integers(1000)
            return self.clips[index][start : start + 1000]
    ```

    ## Use instead

    ```python
        def __getitem__(self, index):
            if self.rng is None:  # once in each worker
                self.rng = np.random.default_rng(torch.initial_seed())
    ```

    or reseed `get_worker_info().dataset.rng` in a `worker_init_fn`.

    ## When it is silent

    No workers; a `worker_init_fn`; a generator that is made or seeded again outside of `__init__`, or drawn from only
    there.

    ## Fix safety

    No fix: which seed is meant is for the author to say.

    ## Measured by `trainlint verify`

    The first draws of two workers.

    ## References

    - torch.utils.data, "Randomness in multi-process data loading"
    - pytorch/pytorch#5059
    """

    code = "TL318"
    name = "generator-copied-into-workers"
    level = Level.ERROR
    claim = Claim.BEHAVIOUR
    message = "every worker gets a copy of {what}, and all of them draw the same numbers"
    why = "items of different workers are augmented alike, and each epoch repeats the first"
    help = "make it on first use in __getitem__, seeded by torch.initial_seed(), or reseed it in worker_init_fn"
    triggers = ((b"default_rng",), (b"RandomState",), (b"Random",), (b"Generator",))
    near = (b"Loader",)

    def check(self, script: Script) -> Iterator[Hit]:
        seen: set[int] = set()
        for loader, _ in script.feeding.loaders(script.module):
            workers = loading.workers(script, loader)
            if (
                workers is None
                or not workers.some
                or not loading.falsy(loading.option(script, loader, "worker_init_fn"))
            ):
                continue
            for dataset in loading.datasets(script, loader):
                if dataset.cls is None:
                    continue
                for binding, what, drawn in self._shared(script, dataset, dataset.cls):
                    value = binding.value
                    if value is not None and value.context.module is script.module and id(value) not in seen:
                        seen.add(id(value))
                        notes = (
                            Note(drawn, "drawn from here, in each worker"),
                            Note(loader, "the loader with workers"),
                        )
                        yield Hit(value, {"what": what}, None, notes)

    def _shared(self, script: Script, dataset: Object, cls: Class) -> Iterator[tuple[Binding, str, Attribute]]:
        starts = [
            m for n in ("__getitem__", "__getitems__", "__iter__") if (m := script.inference.method(cls, n)) is not None
        ]
        functions = [f for f, _ in reading.entered(script, starts)]
        if any(c.attr == "get_worker_info" for f in functions for c in f.calls):
            return
        for base in script.inference.bases(cls):
            if isinstance(base, str):
                continue
            for name, bindings in base.attributes.items():
                made = [(b, w) for b in bindings if (w := _made(script, b)) is not None]
                if len(made) != 1 or len(bindings) != 1:
                    continue  # set again elsewhere
                drawn = _drawn(name, functions)
                if drawn is not None:
                    yield made[0][0], made[0][1], drawn


def _made(script: Script, binding: Binding) -> str | None:
    function = binding.context.function
    if function is None or function.name != "__init__" or binding.value is None or binding.how != "assign":
        return None
    return _maker(script, binding.value)


def _maker(script: Script, expr: Expr) -> str | None:
    if not isinstance(expr, Call):
        return None
    name = script.name_of(expr.callee)
    if name in _MAKERS:
        return _MAKERS[name]
    if expr.attr in _SEEDS and expr.receiver is not None:
        return _maker(script, expr.receiver)
    return None


def _drawn(name: str, functions: list[Function]) -> Attribute | None:
    """The first place in these functions that reads the generator; None where one of them seeds it again."""
    found: Attribute | None = None
    for function in functions:
        for access in function.module.attributes.get(name, ()):
            if access.context.function is not function or not is_self(access.value, access.context):
                continue
            for call in function.calls:
                if call.receiver is access and call.attr in _SEEDS:
                    return None
            found = found or access
    return found

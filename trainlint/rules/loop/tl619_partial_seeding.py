from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Level
from trainlint.patterns_on_use import Pattern
from trainlint.rules.rule import Hit, Note, Rule
from trainlint.semantic.contexts import dotted_name
from trainlint.semantic.facts import Attribute, Call, Expr, Module, Name
from trainlint.semantic.values import External, each

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_SEEDS = {
    "torch.manual_seed": "torch",
    "torch.random.manual_seed": "torch",
    "torch.seed": "torch",
    "torch.random.seed": "torch",
    "numpy.random.seed": "numpy",
    "random.seed": "random",
}
_ALL = Pattern(r"(?:^|[._])(?:seed_everything|set_seed|seed_all|set_random_seed|set_determinism|fix_seed)s?$")
_RANDOM_TEXT = Pattern(rb"random|seed")
# what draws from the global streams
_NUMPY = Pattern(
    r"^numpy\.random\.(?:rand|randn|randint|random|random_sample|choice|shuffle|permutation|uniform|normal|beta|binomial|poisson|"
    r"exponential|gamma|standard_normal|multivariate_normal|dirichlet|laplace|triangular|ranf|sample)$"
)
_RANDOM = Pattern(
    r"^random\.(?:random|randint|randrange|choice|choices|shuffle|sample|uniform|gauss|normalvariate|betavariate|expovariate|triangular|getrandbits)$"
)
_TORCH = Pattern(
    r"^torch\.(?:rand|randn|randint|randperm|normal|bernoulli|multinomial|rand_like|randn_like|randint_like)$"
    r"|^torch\.nn\.(?:Linear|Conv\d?d?|Embedding|LSTM|GRU|Dropout\d?d?)"
)


class PartialSeeding(Rule):
    """A script that seeds one source of random numbers, and draws from another.

    ## Why is this bad?

    torch, numpy and Python's random each have a stream of their own. What is drawn from the one that was not seeded is
    different in every run, so the run is not repeatable although it looks seeded.

    ## Example

    ```python
    torch.manual_seed(0)
    order = np.random.permutation(n)
    ```

    ## Use instead

    ```python
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)
    ```

    ## When it is silent

    Where nothing is seeded; generators of their own (`np.random.default_rng(seed)`, `random.Random(seed)`); a helper or
    library that seeds all of them (`seed_everything`, `set_seed`), also in another file of the program.

    ## Fix safety

    No fix.

    ## Measured by `trainlint verify`

    Not measured.

    ## References

    - PyTorch, "Reproducibility"
    """

    code = "TL619"
    name = "partial-seeding"
    level = Level.ADVICE
    message = "{seeded} is seeded here, and the program also draws from {drawn}, which is not"
    why = "runs differ although they look seeded"
    help = "seed {drawn} too, or give it a generator with a seed of its own"
    triggers = ((b"manual_seed",), (b"seed(",))

    def check(self, script: Script) -> Iterator[Hit]:
        own = _seeds(script, script.module)
        if not own:
            return
        modules = script.semantics.program.modules(script.module, _RANDOM_TEXT)
        if script.module not in modules:
            modules = [script.module, *modules]
        seeded: set[str] = set()
        for module in modules:
            if _seeds_all(script, module):
                return
            seeded |= {kind for _, kind in _seeds(script, module)}
        if "torch" not in seeded and not any(_draws(script, m, "torch") for m in modules):
            return
        for kind in ("numpy", "random", "torch"):
            if kind in seeded:
                continue
            for module in modules:
                drawn = _draws(script, module, kind)
                if drawn is not None:
                    seed, what = own[0]
                    names = {"numpy": "numpy.random", "random": "random", "torch": "torch"}
                    yield Hit(seed, {"seeded": names[what], "drawn": names[kind]}, None, (Note(drawn, "drawn here"),))
                    return


def _seeds(script: Script, module: Module) -> list[tuple[Expr, str]]:
    """Where a global stream is seeded: the calls, or the functions where they are handed on (`for f in (random.seed, ...)`)."""
    found: list[tuple[Expr, str]] = []
    calls = [c for name in ("seed", "manual_seed") for c in module.calls_by_attr.get(name, ())]
    callees = {id(c.callee): c for c in calls}
    mentioned: list[Expr] = [a for name in ("seed", "manual_seed") for a in module.attributes.get(name, ())]
    mentioned += [c.callee for c in calls if isinstance(c.callee, Name)]
    for expr in mentioned:
        kind = _SEEDS.get(_full_name(script, expr))
        if kind is not None:
            found.append((callees.get(id(expr), expr), kind))
    return sorted(found, key=lambda pair: pair[0].order)


def _seeds_all(script: Script, module: Module) -> bool:
    for name, calls in module.calls_by_attr.items():
        if _ALL.search(name):
            for call in calls:
                if any(isinstance(v, External) for v in each(script.value(call.callee))) or not script.callees(call):
                    return True
    return False


def _draws(script: Script, module: Module, kind: str) -> Call | None:
    pattern = {"numpy": _NUMPY, "random": _RANDOM, "torch": _TORCH}[kind]
    for call in module.calls:
        if call.attr is None or (kind != "torch" and not isinstance(call.callee, (Name, Attribute))):
            continue
        dotted = dotted_name(call.callee)
        if dotted is None or (not pattern.search("." + dotted) and not _may_be(dotted, kind)):
            continue
        if pattern.search(_full_name(script, call.callee)) and call.keyword("generator") is None:
            return call
    return None


def _may_be(dotted: str, kind: str) -> bool:
    """Cheap: whether a written name can stand for something of that library."""
    last = dotted.rpartition(".")[2]
    return bool({"numpy": _NUMPY, "random": _RANDOM, "torch": _TORCH}[kind].search(f"{_PREFIX[kind]}{last}"))


_PREFIX = {"numpy": "numpy.random.", "random": "random.", "torch": "torch."}


def _full_name(script: Script, expr: Expr) -> str:
    return script.name_of(expr) or ""

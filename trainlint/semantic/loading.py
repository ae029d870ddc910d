"""DataLoaders: their resolved options, and the places where they are iterated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.patterns_on_use import Pattern
from trainlint.records import NamedTuple
from trainlint.semantic import known
from trainlint.semantic.bindings import lookup
from trainlint.semantic.contexts import is_self
from trainlint.semantic.facts import (
    Attribute,
    Binding,
    Call,
    Comprehension,
    Conditional,
    Context,
    Expr,
    For,
    Module,
    Name,
    Parameter,
    Starred,
)
from trainlint.semantic.options import updated
from trainlint.semantic.values import UNKNOWN, Const, Items, Number, Object, Routine, Table, Unknown, Value, each

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

# torch.utils.data.DataLoader's parameters in order (documentation of torch 2.13)
_LOADER = Pattern(rb"Loader")
_POSITIONS = (
    "dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "num_workers", "collate_fn", "pin_memory", "drop_last",
    "timeout", "worker_init_fn", "multiprocessing_context", "generator",
)  # fmt: skip


DATA_LOADERS = known.LOADERS  # outside classes whose options are those of torch's DataLoader


def position(name: str) -> int | None:
    """The place of an option among the positional arguments of a DataLoader."""
    return _POSITIONS.index(name) if name in _POSITIONS else None


class Use(NamedTuple):
    """A place where a loader is iterated: a loop, a comprehension, `iter(loader)`."""

    expr: Expr
    context: Context
    module: Module


class Workers(NamedTuple):
    """How many workers a loader can have. `settable`: from the command line or a parameter."""

    lowest: int
    some: bool  # may be more than none
    settable: bool


def option(script: Script, call: Call, name: str, sure: bool = False) -> Value | None:
    """The value of a loader's option, through `**kwargs` dicts and `partial` too; None when it is not given, Unknown when
    it may be. `sure`: an entry that a dict gets only under a condition does not count."""
    supposed = script.semantics.supposed.get((id(call), name))
    if supposed is not None:
        return supposed
    given = call.argument(position(name), name)
    if given is not None:
        return UNKNOWN if is_open(script, given) else script.value(given)
    unknown = any(isinstance(a, Starred) for a in call.args)
    for spread in [call, *partials(script, call.callee)]:
        if spread is not call and spread.keyword(name) is not None:
            return script.value(spread.keyword(name))  # type: ignore[arg-type]
        for keyword in spread.keywords:
            if keyword.name is not None:
                continue
            for held in each(script.value(keyword.value)):
                if isinstance(held, Table):
                    table = updated(script.inference, keyword.value, held, sure)
                    found = table.get(name)
                    if not isinstance(found, Unknown):
                        return found
                    unknown = unknown or not table.complete or any(key == name for key, _ in table.items)
                else:
                    unknown = True
    return UNKNOWN if unknown else None


def is_open(script: Script, expr: Expr) -> bool:
    """A parameter for which some caller may give another value through `*args` or `**options` that cannot be seen."""
    if not isinstance(expr, Name):
        return False
    for binding in lookup(expr, expr.id)[0]:
        function = binding.context.function
        if binding.how == "parameter" and function is not None:
            for site in script.inference.callgraph.callers(function):
                if site.argument(function, binding.source) is None and _spreads(script, site.call, expr.id):
                    return True
    return False


def _spreads(script: Script, call: Call, name: str) -> bool:
    for keyword in call.keywords:
        if keyword.name is None:
            for held in each(script.value(keyword.value)):
                if not isinstance(held, Table) or not held.complete or not isinstance(held.get(name), Unknown):
                    return True
    return any(isinstance(a, Starred) for a in call.args)


def partials(script: Script, callee: Expr, depth: int = 0) -> Iterator[Call]:
    """The `functools.partial(...)` calls that a called name stands for: `reader = partial(DataLoader, num_workers=3)`."""
    if isinstance(callee, Call):
        if script.name_of(callee.callee) == "functools.partial" and callee.args:
            yield callee
            yield from partials(script, callee.args[0], depth + 1)
        return
    for binding in definitions(script, callee):
        if binding.value is not None and binding.how == "assign" and not binding.path and depth < 5:
            yield from partials(script, binding.value, depth + 1)


def definitions(script: Script, expr: Expr) -> list[Binding]:
    """The assignments that a name or an attribute of `self` stands for, in another file too."""
    if isinstance(expr, Name):
        found: list[Binding] = []
        for binding in lookup(expr, expr.id)[0]:
            if binding.how != "import":
                found.append(binding)
                continue
            target = script.project.target(expr.context.module.path, binding.source)
            if isinstance(target, tuple):
                found.extend(target[0].names.get(target[1], ()))
        return found
    if isinstance(expr, Attribute) and is_self(expr.value, expr.context) and expr.context.cls is not None:
        return [
            b
            for base in script.inference.bases(expr.context.cls)
            if not isinstance(base, str)
            for b in base.attributes.get(expr.attr, ())
        ]
    return []


def from_options(script: Script, call: Call, name: str) -> bool:
    """Whether the command line, or a configuration, decides over a loader's option."""
    given = call.argument(position(name), name)
    if given is None:
        value = option(script, call, name)
        return value is not None and all(isinstance(v, Const) and v.settable for v in each(value))
    return _reads_options(script, given, 0)


def _reads_options(script: Script, expr: Expr, depth: int) -> bool:
    if depth > 5:
        return False
    if isinstance(expr, Attribute) and any(
        isinstance(v, Object) and v.role == "options" for v in each(script.value(expr.value))
    ):
        return True
    for binding in definitions(script, expr):
        if binding.how == "assign" and binding.value is not None and _reads_options(script, binding.value, depth + 1):
            return True
        if binding.how == "parameter" and binding.context.function is not None:
            for site in script.inference.callgraph.callers(binding.context.function):
                argument = site.argument(binding.context.function, binding.source)
                if isinstance(argument, Expr) and _reads_options(script, argument, depth + 1):
                    return True
    return False


def workers(script: Script, call: Call) -> Workers | None:
    """None when nothing can be said."""
    value = option(script, call, "num_workers")
    if value is None:
        return Workers(0, False, False)
    lowest, some, settable = 10**6, False, False
    for one in each(value):
        if isinstance(one, Const) and isinstance(one.value, int):
            lowest = min(lowest, one.value)
            some = some or one.value > 0
            settable = settable or one.settable
        elif isinstance(one, Number):
            lowest, some = min(lowest, 1), True
        else:
            return None
    return Workers(lowest if _is_always_given(script, call, "num_workers") else 0, some, settable)


def _is_always_given(script: Script, call: Call, name: str) -> bool:
    """Not only in one of several dicts: `options = {"num_workers": 4} if cuda else {}`."""
    if call.argument(position(name), name) is not None or not any(k.name is None for k in call.keywords):
        return True
    return any(
        all(
            isinstance(held, Table)
            and any(key == name for key, _ in updated(script.inference, keyword.value, held, sure=True).items)
            for held in each(script.value(keyword.value))
        )
        for keyword in call.keywords
        if keyword.name is None
    )


def depends_on_platform(script: Script, call: Call) -> bool:
    """`num_workers=0 if os.name == "nt" else 4`: somebody thought of it."""
    given = call.argument(_POSITIONS.index("num_workers"), "num_workers")
    seen: set[int] = set()
    stack = [given] if given is not None else []
    while stack:
        expr = stack.pop()
        if id(expr) in seen:
            continue
        seen.add(id(expr))
        if isinstance(expr, Conditional) and _asks_platform(expr.test):
            return True
        if (name := getattr(expr, "id", None)) is not None:
            for binding in lookup(expr, name)[0]:
                if any(
                    f.kind == "branch" and f.test is not None and _asks_platform(f.test)
                    for f in binding.context.frames()
                ):
                    return True
                if binding.value is not None:
                    stack.append(binding.value)
    return False


def _asks_platform(test: Expr) -> bool:
    stack: list[Expr] = [test]
    while stack:
        current = stack.pop()
        word = getattr(current, "attr", None) or getattr(current, "id", None)
        value = getattr(current, "value", None)
        if word in ("platform", "system") or (word == "name" and getattr(value, "id", "") == "os"):
            return True
        if isinstance(word, str) and "windows" in word.lower():
            return True
        for part in current.parts:
            child = getattr(current, part)
            if isinstance(child, tuple):
                stack.extend(c for c in child if isinstance(c, Expr))
            elif isinstance(child, Expr):
                stack.append(child)
    return False


# ------------------------------------------------------------------------------------------------------------- uses


def uses(script: Script, call: Call) -> list[Use]:
    """Every place in the program where the loader that a call builds is iterated."""
    found: list[Use] = []
    for module in script.project.family(script.module.path):
        for use in iterations(module):
            if any(loader.call is call for loader in loaders_behind(script, use.expr)):
                found.append(use)
    return found


def iterations(module: Module) -> Iterator[Use]:
    """What a file iterates over."""
    for loop in module.loops:
        if isinstance(loop, For):
            yield Use(loop.iter, loop.context, module)
    for comprehension in module.comprehensions:
        assert isinstance(comprehension, Comprehension)
        for generator in comprehension.generators:
            yield Use(generator.iter, comprehension.context, module)
    for call in module.calls_by_attr.get("iter", ()):
        if call.args:
            yield Use(call.args[0], call.context, module)


_COUNTS = frozenset("len range int float str max min print isinstance iter_count id bool round".split())


def loaders_behind(script: Script, expr: Expr, depth: int = 0) -> Iterator[Object]:
    """The loaders that an iterated expression draws from: through enumerate, zip, progress bars, generators and the
    project's own iterators."""
    if depth > 6:
        return
    found = False
    for value in each(script.value(expr)):
        for loader in _loaders_in(value):
            found = True
            yield loader
        if isinstance(value, Object) and value.cls is not None and value.role == "object" and value.call is not None:
            if value.call is not expr and script.inference.method(value.cls, "__iter__") is not None:
                yield from _among_arguments(script, value.call, depth)
    if isinstance(expr, Call):
        if not found and expr.attr not in _COUNTS:
            yield from _among_arguments(script, expr, depth)
            yield from _handed_on(script, expr, depth)
    elif not found:
        for binding in definitions(script, expr):
            if binding.how == "assign" and isinstance(binding.value, (Call, Name, Attribute)) and not binding.path:
                yield from loaders_behind(script, binding.value, depth + 1)
            elif (
                binding.how == "parameter"
                and isinstance(binding.source, Parameter)
                and binding.context.function is not None
            ):
                for site in script.inference.callgraph.callers(binding.context.function):
                    argument = site.argument(binding.context.function, binding.source)
                    if isinstance(argument, Expr) and isinstance(script.value(argument), (Items, Unknown)):
                        yield from loaders_behind(script, argument, depth + 2)


def _handed_on(script: Script, call: Call, depth: int) -> Iterator[Object]:
    """A generator function that builds the loader itself and hands on its batches: `while True: yield from loader`."""
    for value in each(script.value(call.callee)):
        if not isinstance(value, Routine) or not value.function.yields:
            continue
        function = value.function
        for y in function.yields:
            if y.delegates and y.value is not None:
                yield from loaders_behind(script, y.value, depth + 1)
        for loop in function.module.loops:
            if isinstance(loop, For) and loop.context.function is function:
                yield from loaders_behind(script, loop.iter, depth + 1)


def _among_arguments(script: Script, call: Call, depth: int) -> Iterator[Object]:
    for argument in [*call.args, *(k.value for k in call.keywords)]:
        yield from loaders_behind(script, argument.value if isinstance(argument, Starred) else argument, depth + 1)


def _loaders_in(value: Value, depth: int = 0) -> Iterator[Object]:
    if isinstance(value, Object):
        if value.role == "loader":
            yield value
        if value.role in ("loader", "iterator") and depth < 3:
            for inner in value.inner:
                for one in each(inner):
                    yield from _loaders_in(one, depth + 1)
    elif isinstance(value, Items) and value.elements is not None and depth < 2:
        for element in value.elements:
            for one in each(element):
                yield from _loaders_in(one, depth + 1)


# --------------------------------------------------------------------------------------------------------- datasets


WRAPPERS = ("Subset", "ConcatDataset", "ChainDataset", "StackDataset", "random_split")


def loaders(script: Script) -> Iterator[tuple[Call, Object]]:
    """The calls of this file that build a loader whose options can be read: those of torch's DataLoader."""
    if not _names_loaders(script):
        return
    for call, loader in script.objects("loader"):
        if is_readable(script, loader):
            yield call, loader


def _names_loaders(script: Script) -> bool:
    """Whether a file, or one that it imports (a subclass, a `partial`), speaks of loaders at all."""
    neighbours, path = script.project.neighbours, script.module.path
    return neighbours.any_speaks((path, *neighbours.imported(path)), _LOADER)


def is_readable(script: Script, loader: Object) -> bool:
    """Whether a loader takes the arguments of torch's DataLoader: itself, and subclasses that only hand theirs on."""
    if loader.cls is None:
        return loader.name in DATA_LOADERS
    method = script.inference.method(loader.cls, "__init__")
    if method is None:
        return True
    return {p.kind for p in method.parameters[1:]} == {"*", "**"}


def datasets(script: Script, call: Call) -> list[Object]:
    """What a loader reads from, wrappers such as `Subset` looked through."""
    value = option(script, call, "dataset")
    return list(_datasets_in(script, value, 0)) if value is not None else []


def _datasets_in(script: Script, value: Value, depth: int) -> Iterator[Object]:
    for one in each(value):
        if isinstance(one, Items) and depth < 4:
            for element in one.elements if one.elements is not None else (one.element,):
                yield from _datasets_in(script, element, depth + 1)
        if not isinstance(one, Object) or one.role not in ("dataset", "object"):
            continue
        yield one
        if one.cls is None and one.call is not None and one.name.endswith(WRAPPERS) and one.call.args and depth < 4:
            yield from _datasets_in(script, script.value(one.call.args[0]), depth + 1)


def is_iterable_style(script: Script, dataset: Object) -> bool:
    """A dataset without an order of its own to shuffle: IterableDataset, a stream of webdataset or Hugging Face."""
    if dataset.cls is not None:
        bases = script.inference.bases(dataset.cls)
        return any(isinstance(b, str) and b.rpartition(".")[2] in ("IterableDataset", "IterDataPipe") for b in bases)
    return dataset.name.rpartition(".")[2] in ("IterableDataset", "ChainDataset") or dataset.name.startswith(
        "webdataset."
    )


def hands_through(script: Script, call: Call) -> bool:
    """The dataset makes whole batches in an order of its own: webdataset's loader, and `batch_size=None`."""
    if script.name_of(call.callee) == "webdataset.WebLoader":
        return True
    given = call.argument(position("batch_size"), "batch_size")
    return given is not None and script.constant(given) is None


def falsy(value: Value | None) -> bool:
    """An option that is not given, or known to be False, None or 0 on every way."""
    return value is None or all(isinstance(v, Const) and not v.value for v in each(value))


def truthy(value: Value | None) -> bool:
    """An option that is known to be on, on every way."""
    return value is not None and all(
        (isinstance(v, Const) and bool(v.value)) or (isinstance(v, Object) and v.role != "options") for v in each(value)
    )

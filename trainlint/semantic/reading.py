"""What a loader runs for each item and batch: its dataset, collate function and transforms; and who takes it over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.patterns_on_use import Pattern
from trainlint.semantic import frameworks, loading
from trainlint.semantic.facts import Attribute, Call, Expr, Function, Name, Sequence, Starred
from trainlint.semantic.values import External, Items, Object, Routine, Value, each

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_SETS_UP = Pattern(rb"setup_dataloaders")
_HOOKS = {
    "train_dataloader": "train",
    "val_dataloader": "eval",
    "test_dataloader": "eval",
    "predict_dataloader": "eval",
}
_FITS = {
    "fit": ("train_dataloaders", "val_dataloaders"),
    "validate": ("dataloaders",),
    "test": ("dataloaders",),
    "predict": ("dataloaders",),
}
# what `__getitem__` may call on data that lies in memory
_LIGHT = frozenset(
    "len int float str long tensor as_tensor from_numpy size to numpy astype LongTensor FloatTensor Tensor clone dict "
    "tuple".split()
)


# ------------------------------------------------------------------------------------------------------- frameworks


def in_hf_trainer(script: Script, call: Call) -> bool:
    """Built in a subclass of the Hugging Face Trainer, which prepares it itself."""
    cls = call.context.cls
    return cls is not None and frameworks.class_framework(script.inference, cls) == "hf-trainer"


def lightning_phase(script: Script, call: Call) -> str | None:
    """The phase ("train", "eval") of a loader that Lightning iterates: returned by a hook, or given to its Trainer."""
    function, cls = call.context.function, call.context.cls
    if function is not None and cls is not None and function.name in _HOOKS and _is_lightning(script, call):
        return _HOOKS[function.name] if not _driven_by_fabric(script, call) else None
    for module in script.feeding.modules(call.context.module):
        for method, names in _FITS.items():
            for fit in module.calls_by_attr.get(method, ()):
                if _is_trainer(script, fit) and _given(script, fit, call, names):
                    return "train" if method == "fit" and _given(script, fit, call, names[:1]) else "eval"
    return None


def trains_in_lightning(script: Script, call: Call) -> bool:
    return lightning_phase(script, call) == "train"


def lightning_without_cuda(script: Script, call: Call) -> bool:
    """Every Trainer in sight is told to use the CPU or Apple's GPU."""
    kinds: set[str] = set()
    for module in script.feeding.modules(call.context.module):
        for trainer in module.calls_by_attr.get("Trainer", ()):
            given = trainer.keyword("accelerator")
            held = script.constant(given) if given is not None else "auto"
            kinds.add(held if isinstance(held, str) else "auto")
    return bool(kinds) and kinds <= {"cpu", "mps", "tpu"}


def _is_lightning(script: Script, call: Call) -> bool:
    cls = call.context.cls
    assert cls is not None
    if frameworks.in_lightning(script.inference, cls):
        return True
    return any(isinstance(b, str) and b.endswith("LightningDataModule") for b in script.inference.bases(cls))


def _driven_by_fabric(script: Script, call: Call) -> bool:
    """A data module whose loaders the program sets up with Fabric, which owns them then."""
    neighbours = script.project.neighbours
    return neighbours.any_speaks(neighbours.family(call.context.module.path), _SETS_UP)


def _is_trainer(script: Script, fit: Call) -> bool:
    return fit.receiver is not None and any(
        isinstance(v, Object) and v.role == "lightning-trainer" for v in each(script.value(fit.receiver))
    )


def _given(script: Script, fit: Call, loader: Call, names: tuple[str, ...]) -> bool:
    for place, name in enumerate(names, 1):
        argument = fit.argument(place, name)
        if argument is not None and any(o.call is loader for o in loading.loaders_behind(script, argument)):
            return True
    return False


# ------------------------------------------------------------------------------------------------------ what it runs


def is_in_memory(script: Script, call: Call) -> bool:
    """Whether items are there already: a `TensorDataset`, a `__getitem__` that only picks from a list or tensor, the
    graphs of torch_geometric, which its own datasets keep in one tensor."""
    found = [d for d in loading.datasets(script, call) if not (d.cls is None and d.name.endswith(loading.WRAPPERS))]
    value = loading.option(script, call, "dataset")
    if value is not None and all(isinstance(v, Items) and v.kind in ("list", "tuple") for v in each(value)):
        return True
    if not any(d.cls is not None for d in found) and (script.name_of(call.callee) or "").startswith("torch_geometric."):
        return True
    return bool(found) and all(_picks(script, d) for d in found)


def _picks(script: Script, dataset: Object) -> bool:
    if dataset.cls is None:
        return dataset.name.endswith("TensorDataset")
    method = script.inference.method(dataset.cls, "__getitem__")
    if method is None:
        bases = script.inference.bases(dataset.cls)
        return any(isinstance(b, str) and b.endswith(("TensorDataset", "InMemoryDataset")) for b in bases)
    return all(c.attr in _LIGHT for c in method.calls) and not any(
        f.kind == "loop" for c in method.calls for f in c.context.local_frames()
    )


def item_functions(script: Script, call: Call) -> list[Function]:
    """The project's functions that a loader runs in its workers, per item or batch: `__getitem__` or `__iter__` of its
    dataset, the collate function, transforms; not what these call."""
    found: dict[int, Function] = {}
    for dataset in loading.datasets(script, call):
        if dataset.cls is not None:
            for name in ("__getitem__", "__getitems__", "__iter__"):
                method = script.inference.method(dataset.cls, name)
                if method is not None:
                    found[id(method)] = method
        for transform in transforms(script, dataset):
            for function in callables(script, transform):
                found[id(function)] = function
    collate = loading.option(script, call, "collate_fn")
    if collate is not None:
        for function in _runs(script, collate):
            found[id(function)] = function
    return list(found.values())


def transforms(script: Script, dataset: Object) -> Iterator[Expr]:
    """The arguments `transform=`, `target_transform=` and `transforms=` that a torchvision dataset is built with."""
    if dataset.call is None:
        return
    for keyword in dataset.call.keywords:
        if keyword.name in ("transform", "target_transform", "transforms", "img_transform", "image_transform"):
            yield keyword.value
    if dataset.cls is None and dataset.name.startswith("torchvision.datasets."):
        yield from dataset.call.args[1:]


def _source(script: Script, expr: Expr, depth: int = 0) -> Iterator[Expr]:
    """The expression that a name stands for: `Compose([...])` for `steps`, what a function of the project returns."""
    if depth > 4:
        return
    if isinstance(expr, (Name, Attribute)):
        found = [
            b for b in loading.definitions(script, expr) if b.how == "assign" and b.value is not None and not b.path
        ]
        for binding in found:
            assert binding.value is not None
            yield from _source(script, binding.value, depth + 1)
        if found:
            return
    if isinstance(expr, Call):
        for function in script.callees(expr):
            if function.name != "__init__":
                for returned in function.returns:
                    if returned.value is not None:
                        yield from _source(script, returned.value, depth + 1)
    yield expr


def parts(script: Script, expr: Expr, depth: int = 0) -> Iterator[Expr]:
    """A transform and what it is composed of: `Compose([...])` and its steps, `partial(f, ...)` and f."""
    for source in _source(script, expr):
        yield source
        if depth > 4:
            continue
        if isinstance(source, Sequence):
            for element in source.elements:
                yield from parts(script, element.value if isinstance(element, Starred) else element, depth + 1)
        elif isinstance(source, Call) and any(isinstance(v, External) for v in each(script.value(source.callee))):
            for argument in [*source.args, *(k.value for k in source.keywords)]:
                yield from parts(script, argument, depth + 1)


def callables(script: Script, expr: Expr) -> list[Function]:
    """The project's functions that a collate function or transform runs."""
    return [f for part in parts(script, expr) for f in _runs(script, script.value(part))]


def _runs(script: Script, value: Value) -> Iterator[Function]:
    for one in each(value):
        if isinstance(one, Routine):
            yield one.function
        elif isinstance(one, Object) and one.cls is not None:
            for name in ("__call__", "forward"):
                method = script.inference.method(one.cls, name)
                if method is not None:
                    yield method
                    break


def entered(script: Script, functions: list[Function], deepest: int = 4) -> list[tuple[Function, tuple[Call, ...]]]:
    """These functions and those of the project that they call, with the calls that lead there."""
    found: list[tuple[Function, tuple[Call, ...]]] = [(f, ()) for f in functions]
    seen = {id(f) for f in functions}
    for function, calls in found:
        if len(calls) >= deepest:
            continue
        for call in function.calls:
            for inner in script.callees(call):
                if id(inner) not in seen:
                    seen.add(id(inner))
                    found.append((inner, (*calls, call)))
    return found

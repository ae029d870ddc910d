"""Which part of the data a process gets: distributed samplers, and data that is split by rank or worker by hand."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeGuard

from trainlint.patterns_on_use import Pattern
from trainlint.semantic import known, loading
from trainlint.semantic.contexts import is_self
from trainlint.semantic.facts import Attribute, Call, Class, Constant, Expr, For, Function, Module, Name, While
from trainlint.semantic.feeding import Feed
from trainlint.semantic.reading import entered
from trainlint.semantic.step import FORWARD
from trainlint.semantic.values import Const, Object, Routine, Type, Unknown, Value, each

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_RANK = Pattern(r"rank|world|replica|shard|split_by|process_index|num_processes|by_node|partition", re.I)
_RANK_BYTES = Pattern(rb"get_rank|world_size|[\"']RANK|num_replicas|local_rank|shard\(|by_node")
_PLAIN_SAMPLERS = ("RandomSampler", "SequentialSampler", "WeightedRandomSampler", "SubsetRandomSampler")
_SET_EPOCH = Pattern(rb"(?<!def )set_epoch")
_SINGLE = Pattern(r"dist|ddp|world|rank|multi|gpus|nprocs|num_processes|fsdp|parallel|initialized", re.I)
_DEEPEST = 5


def distributed_samplers(script: Script, loader: Call) -> list[Object]:
    """The DistributedSamplers that a loader may get its order from."""
    options = (loading.option(script, loader, name) for name in ("sampler", "batch_sampler"))
    values = [value for option in options if option is not None for value in each(option)]
    return [v for value in values for v in (value, *_batched(script, value)) if is_distributed_sampler(v)]


def _batched(script: Script, value: Value) -> tuple[Value, ...]:
    """The samplers that a BatchSampler makes batches of."""
    if not isinstance(value, Object) or value.cls is not None or value.name.rpartition(".")[2] != "BatchSampler":
        return ()
    given = value.call.argument(0, "sampler") if value.call is not None else None
    return () if given is None else tuple(each(script.value(given)))


def is_distributed_sampler(value: Value) -> TypeGuard[Object]:
    return isinstance(value, Object) and value.cls is None and value.name.rpartition(".")[2] == "DistributedSampler"


def shuffles(script: Script, sampler: Object) -> bool:
    """Whether a DistributedSampler is known to shuffle: it does unless it is told not to."""
    if sampler.call is None:
        return False
    given = sampler.call.argument(3, "shuffle")
    if given is None:
        return not sampler.call.unpacks
    return all(isinstance(v, Const) and v.value is True for v in each(script.value(given)))


def reads_everything(script: Script, loader: Call) -> bool:
    """Whether each process that builds this loader is known to read all of the data: neither a sampler nor the dataset
    splits it."""
    if not loading.falsy(loading.option(script, loader, "batch_sampler")):
        return False
    sampler = loading.option(script, loader, "sampler")
    if not loading.falsy(sampler):
        assert sampler is not None
        for value in each(sampler):
            plain = isinstance(value, Object) and value.cls is None and value.name.rpartition(".")[2] in _PLAIN_SAMPLERS
            if not plain and not (isinstance(value, Const) and value.value is None):
                return False
    found = loading.datasets(script, loader)
    if any(loading.is_iterable_style(script, d) for d in found):
        return False
    dataset = loader.argument(0, "dataset")
    return dataset is not None and not speaks_of_rank(script, dataset)


def speaks_of_rank(script: Script, expr: Expr) -> bool:
    """Whether data is made with a look at the rank: in the expression, in what its names stand for, in its classes."""
    seen: set[int] = set()
    stack: list[tuple[Expr, int]] = [(expr, 0)]
    while stack:
        current, depth = stack.pop()
        if id(current) in seen or depth > _DEEPEST:
            continue
        seen.add(id(current))
        word = current.id if isinstance(current, Name) else current.attr if isinstance(current, Attribute) else ""
        if _RANK.search(word):
            return True
        if isinstance(current, (Name, Attribute)):
            for binding in loading.definitions(script, current):
                if binding.value is not None and binding.how in ("assign", "for", "with"):
                    stack.append((binding.value, depth + 1))
                if binding.how == "parameter" and binding.context.function is not None:
                    for site in script.inference.callgraph.callers(binding.context.function):
                        argument = site.argument(binding.context.function, binding.source)
                        if isinstance(argument, Expr):
                            stack.append((argument, depth + 1))
            if isinstance(current, Attribute):
                stack.append((current.value, depth))
            continue
        if isinstance(current, Call) and _made_by_rank(script, current):
            return True
        for part in current.parts:
            child = getattr(current, part)
            for one in child if isinstance(child, tuple) else (child,):
                value = getattr(one, "value", None) if not isinstance(one, Expr) else one
                if isinstance(value, Expr):
                    stack.append((value, depth))
    return False


def is_for_one_process(loader: Call) -> bool:
    """Built under a condition that asks whether the run is distributed: the other way has the sampler."""
    return any(
        f.kind == "branch" and f.test is not None and any(_SINGLE.search(w) for w in _words(f.test))
        for f in loader.context.local_frames()
    )


def _words(test: Expr) -> Iterator[str]:
    stack = [test]
    while stack:
        current = stack.pop()
        yield current.id if isinstance(current, Name) else current.attr if isinstance(current, Attribute) else ""
        for part in current.parts:
            child = getattr(current, part)
            stack.extend(c for c in (child if isinstance(child, tuple) else (child,)) if isinstance(c, Expr))


def _made_by_rank(script: Script, call: Call) -> bool:
    """A class or function of the project whose file asks for the rank."""
    for value in each(script.value(call.callee)):
        module: Module | None = None
        if isinstance(value, Type):
            module = value.cls.module
        elif isinstance(value, Routine):
            module = value.function.module
        if (
            module is not None
            and module is not call.context.module
            and script.project.neighbours.speaks(module.path, _RANK_BYTES)
        ):
            return True
        if isinstance(value, Type) and _class_asks(value.cls):
            return True
    return False


def _class_asks(cls: Class) -> bool:
    return any(_RANK.search(p.name) for m in cls.methods.values() for p in m.parameters) or any(
        c.attr is not None and _RANK.search(c.attr) for m in cls.methods.values() for c in m.calls
    )


def wraps_model(script: Script, feed: Feed) -> Call | None:
    """The call that wraps a model in DDP or FSDP in the program that trains at a place, None when there is none."""
    for module in script.project.family(feed.module.path):
        for call in _wraps(script, module):
            in_place = call.attr in ("fully_shard", "replicate")
            return call if in_place or not _trains_another(script, feed) else None
    return None


def _trains_another(script: Script, feed: Feed) -> bool:
    """Whether all models that run where a loader is drawn are known, and none of them is wrapped: a script that trains
    in one way or another, by an option."""
    if feed.frame is None:
        return False
    models = [e.owner for e in script.semantics.steps.of_loop(feed.frame).of(FORWARD) if e.owner is not None]
    values = [v for m in models for v in each(script.value(m)) if not (isinstance(v, Object) and v.role == "loss")]
    return bool(values) and all(isinstance(v, Object) and _is_plain(v) for v in values)


def _is_plain(value: Object) -> bool:
    return value.role == "module" and value.call is not None and not value.inner and value.name not in known.DDP


def _wraps(script: Script, module: Module) -> Iterator[Call]:
    for call in module.calls:
        if call.attr is None or len(call.args) + len(call.keywords) == 0:
            continue
        if any(getattr(v, "name", None) in known.DDP for v in each(script.value(call.callee))):
            yield call


def may_call_set_epoch(script: Script, modules: list[Module], samplers: list[Object]) -> bool:
    """Whether `set_epoch` is called anywhere in these files or in what they import, on what may be one of these samplers."""
    neighbours = script.project.neighbours
    paths = {m.path for m in modules}
    others = frozenset[str]().union(*(neighbours.imported(m.path) for m in modules)) - paths
    if neighbours.any_speaks(others, _SET_EPOCH):
        return True
    built = {id(s.call) for s in samplers}
    for module in modules:
        if not neighbours.speaks(module.path, _SET_EPOCH):
            continue
        calls = module.calls_by_attr.get("set_epoch", ())
        handed_on = len(module.attributes.get("set_epoch", ())) > len(calls) or not calls
        if handed_on or not all(_is_another_sampler(script, call, built) for call in calls):
            return True
    return False


def _is_another_sampler(script: Script, call: Call, built: set[int]) -> bool:
    """`val_sampler.set_epoch(epoch)`: certainly none of the samplers that these calls build."""
    if call.receiver is None:
        return False
    values = [v for v in each(script.value(call.receiver)) if not (isinstance(v, Const) and v.value is None)]
    return bool(values) and all(
        is_distributed_sampler(v) and isinstance(v, Object) and v.call is not None and id(v.call) not in built
        for v in values
    )


_PART = Pattern(r"worker|rank|world|shard|split_by|replica|partition|process_index", re.I)
_STREAM = Pattern(r"data|source|stream|iterable|loader|pipe|gen(?:erator)?$|base|inner|env|buffer|queue", re.I)


def splits_itself(script: Script, cls: Class, method: Function) -> bool:
    """Whether an IterableDataset may give each worker or rank its own part, or need not: it asks who it is, wraps
    another stream (which may ask), or never ends."""
    if any(_unknown_source(script, r.value) for r in method.returns if r.value is not None):
        return True
    functions = [f for f, _ in entered(script, [method])]
    starts = [m for base in script.inference.bases(cls) if isinstance(base, Class) for m in base.methods.values()]
    for function in {id(f): f for f in [*functions, *starts]}.values():
        if any(c.attr is not None and _PART.search(c.attr) for c in function.calls):
            return True
        if any(_PART.search(p.name) for p in function.parameters):
            return True
    if any(
        _PART.search(name)
        for base in script.inference.bases(cls)
        if isinstance(base, Class)
        for name in base.attributes
    ):
        return True
    for function in functions:
        for loop in function.module.loops:
            if loop.context.function is not function:
                continue
            if isinstance(loop, While) and isinstance(loop.test, Constant):
                return True
            if isinstance(loop, For) and _draws_from_stream(script, loop.iter):
                return True
        if any(c.attr in ("iter", "next") and c.args and _draws_from_stream(script, c.args[0]) for c in function.calls):
            return True
        if any(y.delegates and y.value is not None and _draws_from_stream(script, y.value) for y in function.yields):
            return True
    return False


def _unknown_source(script: Script, expr: Expr) -> bool:
    """`return self.generate()` with a function that is not known: an environment, a stream of its own."""
    while isinstance(expr, Call) and expr.attr == "iter" and expr.args:
        expr = expr.args[0]
    return isinstance(expr, Call) and all(isinstance(v, Unknown) for v in each(script.value(expr.callee)))


def _draws_from_stream(script: Script, expr: Expr) -> bool:
    """`for row in self.dataset`: another stream, which may know its part."""
    while (
        isinstance(expr, Call)
        and expr.attr in ("enumerate", "iter", "islice", "tqdm", "zip", "map", "filter")
        and expr.args
    ):
        expr = expr.args[-1] if expr.attr in ("map", "filter") else expr.args[0]
    if isinstance(expr, Attribute) and is_self(expr.value, expr.context):
        return bool(_STREAM.search(expr.attr))
    return False

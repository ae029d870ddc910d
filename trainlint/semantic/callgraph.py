"""Who calls whom, over the files of the project."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.records import NamedTuple
from trainlint.semantic.contexts import dotted_name
from trainlint.semantic.facts import Attribute, Call, Class, Expr, Function, Module, Name, Parameter, Sequence, Starred
from trainlint.semantic.values import External, Method, Object, Routine, Type, Value, each

if TYPE_CHECKING:
    from trainlint.semantic.inference import Inference

# outside functions that call what they are given: (position or keyword of the function, of its arguments, how many come first)
_SPAWNERS = {
    "torch.multiprocessing.spawn": ("fn", "args", 1),
    "torch.multiprocessing.start_processes": ("fn", "args", 1),
    "torch.multiprocessing.Process": ("target", "args", 0),
    "torch.multiprocessing.context.Process": ("target", "args", 0),
    "multiprocessing.Process": ("target", "args", 0),
    "threading.Thread": ("target", "args", 0),
    "torch.utils.checkpoint.checkpoint": ("function", "", 0),
    "accelerate.notebook_launcher": ("function", "args", 0),
    "torch_xla.distributed.xla_multiprocessing.spawn": ("fn", "args", 1),
    "hydra.main": ("", "", 0),
}


class Callee(NamedTuple):
    """A function that a call may enter; `shift` of its leading parameters are not among the call's arguments."""

    function: Function
    shift: int
    arguments: tuple[Expr, ...] | None = None  # instead of the call's own (a spawner's `args=`)


class CallSite(NamedTuple):
    call: Call
    shift: int
    arguments: tuple[Expr, ...] | None = None

    def argument(self, function: Function, parameter: Parameter) -> Expr | Value | None:
        """What this call passes for a parameter, None where the default applies or it cannot be seen."""
        if self.arguments is None:
            for keyword in self.call.keywords:
                if keyword.name == parameter.name:
                    return keyword.value
        if parameter.kind in ("keyword", "*", "**"):
            return None
        position = function.parameters.index(parameter) - self.shift
        arguments = self.call.args if self.arguments is None else self.arguments
        if 0 <= position < len(arguments) and not any(isinstance(a, Starred) for a in arguments[: position + 1]):
            return arguments[position]
        return None


class CallGraph:
    def __init__(self, inference: Inference) -> None:
        self.inference = inference

    # ------------------------------------------------------------------------------------------------- callees

    def callees(self, call: Call) -> tuple[Callee, ...]:
        """The project's functions that a call enters, directly or through a module, wrapper or spawner."""
        memo = call.context.module.memo
        return self.inference.solver.solve(("callees", id(call)), lambda: tuple(self._entered(call)), (), memo)  # type: ignore[no-any-return]

    def _entered(self, call: Call) -> Iterator[Callee]:
        for value in each(self.inference.value(call.callee)):
            yield from self.enters(value, call)
        if call.attr in ("step", "map", "apply", "add_event_handler"):
            # optimizer.step(closure), loader.map(f), model.apply(f)
            for argument in call.args:
                held = self.inference.value(argument) if isinstance(argument, (Name, Attribute)) else None
                if isinstance(held, Routine):
                    yield Callee(held.function, 0, ())

    def enters(self, value: Value, call: Call) -> Iterator[Callee]:
        inference = self.inference
        if isinstance(value, Routine):
            shift = (1 if value.owner is not None else 0) + value.given
            yield Callee(value.function, shift)
            for decorator in value.function.decorators:
                yield from self._wrappers(decorator)
            if isinstance(value.owner, Object) and value.owner.cls is not None:
                yield from self._overrides(value, shift)
        elif isinstance(value, Type):
            for name in ("__init__", "__post_init__"):
                method = inference.method(value.cls, name)
                if method is not None:
                    yield Callee(method, 1)
        elif isinstance(value, Object):
            yield from self._object_enters(value, call)
        elif isinstance(value, Method) and isinstance(value.owner, Object):
            if value.name in ("forward", "__call__"):
                yield from self._object_enters(value.owner, call)
        elif isinstance(value, External):
            yield from self._spawned(value.name, call)

    def _wrappers(self, decorator: Expr) -> Iterator[Callee]:
        """The function that a decorator of the project puts in the place of what it decorates."""
        call = decorator if isinstance(decorator, Call) else None
        for value in each(self.inference.value(call.callee if call is not None else decorator)):
            if isinstance(value, Routine):
                for inner in each(self.inference.returned(value.function)):
                    if isinstance(inner, Routine) and inner.function.inner.within(value.function.inner):
                        yield Callee(inner.function, 0, ())
                        for innermost in each(self.inference.returned(inner.function)) if call is not None else ():
                            if isinstance(innermost, Routine) and innermost.function.inner.within(inner.function.inner):
                                yield Callee(innermost.function, 0, ())

    def _overrides(self, value: Routine, shift: int) -> Iterator[Callee]:
        """`self.step()` in a base class may be the method of a class below it."""
        function = value.function
        owner = value.owner
        assert isinstance(owner, Object) and owner.cls is not None
        for cls in self._below(owner.cls):
            if function.name in cls.methods:
                yield Callee(cls.methods[function.name], shift)

    def _below(self, cls: Class) -> list[Class]:
        """The classes of the project that inherit from a class."""
        memo, key = cls.module.memo, ("below", id(cls))
        found: list[Class] | None = memo.get(key)
        if found is None:
            modules = self.inference.project.family(cls.module.path, (cls.name,))
            others = [c for module in modules for c in module.classes if c is not cls and c.bases]
            found = memo[key] = [c for c in others if cls in self.inference.bases(c)]
        return found

    def _object_enters(self, value: Object, call: Call) -> Iterator[Callee]:
        inference = self.inference
        if value.cls is not None:
            for name in ("forward", "__call__") if value.role in ("module", "loss") else ("__call__", "forward"):
                method = inference.method(value.cls, name)
                if method is not None:
                    yield Callee(method, 1)
                    break
        for inner in value.inner:
            for one in each(inner):
                if isinstance(one, (Object, Routine)) and value.role in ("module", "loss", "engine"):
                    yield from self.enters(one, call)

    def _spawned(self, name: str, call: Call) -> Iterator[Callee]:
        spawner = _SPAWNERS.get(name)
        if spawner is None:
            return
        target, given, first = spawner
        function = call.argument(0 if target != "target" else 1, target)
        if function is None:
            return
        arguments: tuple[Expr, ...] | None = ()
        if given:
            tuple_ = call.argument(1 if first else None, given)
            arguments = tuple_.elements if isinstance(tuple_, Sequence) else None
        else:
            arguments = call.args[1:]
        for value in each(self.inference.value(function)):
            if isinstance(value, Routine):
                shift = first + value.given + (1 if value.owner is not None else 0)
                yield Callee(value.function, shift, arguments if arguments is not None else ())
            elif isinstance(value, Object):
                for callee in self._object_enters(value, call):
                    yield Callee(callee.function, callee.shift, arguments)

    # ------------------------------------------------------------------------------------------------- callers

    def callers(self, function: Function) -> tuple[CallSite, ...]:
        """All calls in the project that enter a function."""
        memo = function.module.memo
        return self.inference.solver.solve(("callers", id(function)), lambda: self._callers(function), (), memo)  # type: ignore[no-any-return]

    def _callers(self, function: Function) -> tuple[CallSite, ...]:
        sites: list[CallSite] = []
        seen: set[int] = set()
        for call in self._candidates(function):
            if id(call) in seen:
                continue
            seen.add(id(call))
            for callee in self.callees(call):
                if callee.function is function:
                    sites.append(CallSite(call, callee.shift, callee.arguments))
                    break
        return tuple(sites)

    def _candidates(self, function: Function) -> Iterator[Call]:
        name = function.name
        project, path = self.inference.project, function.module.path
        words: set[str] | None = None
        if function.cls is not None and name in ("__init__", "__post_init__"):
            names = {function.cls.name, "__init__", "cls"}
            words = {function.cls.name}
        elif function.cls is not None and name in ("forward", "__call__"):
            # a model is called by whoever has it: where its class is named, or where models are trained and evaluated
            named = project.family(path, (function.cls.name, "train", "eval", "backward"))
            for module in (*named, *project.engines(path)):
                yield from self.object_calls(module)
            names = {name}
        elif name == "<lambda>":
            names = set(_names_bound_to(function))
        else:
            names = {name}
        outer = {f.record.name for f in function.context.frames() if f.kind == "function"}
        modules = project.family(path, (names if words is None else words) | outer)
        if outer:
            names |= self._decorated_by(outer, modules)
        for module in modules:
            wanted = names | _aliases(module, names)
            for wanted_name in sorted(wanted):
                yield from module.calls_by_attr.get(wanted_name, ())
            yield from self._passed_on(module, names)

    def _decorated_by(self, outer: set[str], modules: list[Module]) -> set[str]:
        """Names of the functions that a decorator with one of the names in `outer` puts something else in the place of."""
        found: set[str] = set()
        for module in modules:
            for function in module.functions:
                for decorator in function.decorators:
                    name = (
                        decorator.attr
                        if isinstance(decorator, Call)
                        else (dotted_name(decorator) or "").rpartition(".")[2]
                    )
                    if name in outer:
                        found.add(function.name)
        return found

    def _passed_on(self, module: Module, names: set[str]) -> Iterator[Call]:
        """Calls that hand the function to somebody else: the spawner itself, or calls of the parameter it becomes."""
        for name in sorted(names):
            for call in _references_as_argument(module, name):
                yield call
                for callee in self.callees(call):
                    for parameter in callee.function.parameters:
                        for inner in callee.function.calls:
                            if inner.attr == parameter.name and isinstance(inner.callee, Name):
                                yield inner

    def object_calls(self, module: Module) -> list[Call]:
        """Calls of a module in which an object itself is called: `model(x)`, `self.layers[0](x)`."""
        found: list[Call] | None = module.memo.get("object calls")
        if found is None:
            module.memo["object calls"] = found = []
            stored = self.inference.project.neighbours.attributes()
            for call in module.calls:
                callee = call.callee
                if isinstance(callee, Attribute) and callee.attr not in stored:
                    continue  # a method
                if isinstance(callee, Name):
                    defined = module.names.get(callee.id)
                    if defined is not None and all(b.how in ("define", "import") for b in defined):
                        continue
                    if defined is None and callee.id in _PLAIN:
                        continue
                for value in each(self.inference.value(callee)):
                    if isinstance(value, Object) and (value.cls is not None or value.inner):
                        found.append(call)
                        break
        return found


_PLAIN = frozenset(
    "len print range int float str list dict tuple set isinstance super zip enumerate min max sum open".split()
)


def _aliases(module: Module, names: set[str]) -> set[str]:
    """Other names under which a file imports any of `names`."""
    renamed: dict[str, set[str]] | None = module.memo.get("renamed")
    if renamed is None:
        renamed = module.memo["renamed"] = {}
        for statement in module.imports:
            for bound, full in statement.names:
                last = full.rpartition(".")[2]
                if bound != last:
                    renamed.setdefault(last, set()).add(bound)
    return {bound for name in names for bound in renamed.get(name, ())}


def _references_as_argument(module: Module, name: str) -> list[Call]:
    index = _argument_index(module)
    return index.get(name, [])


def _argument_index(module: Module) -> dict[str, list[Call]]:
    """Calls by the plain names among their arguments (`fn=train`, `args=...` not looked into)."""
    known: dict[str, list[Call]] | None = module.memo.get("arguments")
    if known is not None:
        return known
    index: dict[str, list[Call]] = {}
    for call in module.calls:
        for argument in [*call.args, *(k.value for k in call.keywords)]:
            if isinstance(argument, Name):
                index.setdefault(argument.id, []).append(call)
            elif isinstance(argument, Attribute):
                index.setdefault(argument.attr, []).append(call)
    module.memo["arguments"] = index
    return index


def _names_bound_to(function: Function) -> Iterator[str]:
    """`closure = lambda: ...`: the names a lambda goes by."""
    scope = function.context.function.locals if function.context.function is not None else function.module.names
    for name, bindings in scope.items():
        for binding in bindings:
            if binding.value is not None and getattr(binding.value, "function", None) is function:
                yield name

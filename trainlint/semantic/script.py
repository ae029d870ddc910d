"""What a rule asks: one file of a project, and the answers of the semantic model about it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.patterns_on_use import Pattern
from trainlint.semantic.autograd import Autograd
from trainlint.semantic.communication import Communication
from trainlint.semantic.contexts import dotted_name
from trainlint.semantic.entry import Entry
from trainlint.semantic.facts import Attribute, Call, Class, Expr, Function, Module, Name, Record
from trainlint.semantic.feeding import Feeding
from trainlint.semantic.guards import Guards
from trainlint.semantic.heat import Heat, Hot
from trainlint.semantic.inference import Inference
from trainlint.semantic.lineage import Lineage
from trainlint.semantic.loops import BatchLoop, Loops
from trainlint.semantic.mode_dependence import Layers
from trainlint.semantic.output_activation import OutputActivation
from trainlint.semantic.program import Program
from trainlint.semantic.project import Project
from trainlint.semantic.ranks import Ranks
from trainlint.semantic.step import Steps
from trainlint.semantic.training_mode import TrainingMode
from trainlint.semantic.values import External, Object, Tensor, Value, each
from trainlint.semantic.work import Work

if TYPE_CHECKING:
    from trainlint.settings import Settings

_ACCELERATED = Pattern(
    rb"cuda|accelerat|lightning|deepspeed|fabric|\bmps\b|xla|\bxpu\b|\bnpu\b|transformers|ignite"
    rb"|\.to\(\s*[\w.]*(?:device|dev|gpu|rank)\b|device_map"
)


class Semantics:
    """The analyses of one project; each remembers what it was asked."""

    def __init__(self, project: Project, settings: Settings | None = None) -> None:
        self.project = project
        self.settings = settings
        hot = frozenset(settings.hot_functions) if settings is not None else frozenset()
        loaders = frozenset(settings.loader_names) if settings is not None else frozenset()
        self.inference = Inference(project, hot_functions=hot, loader_names=loaders)
        self.work = Work(self.inference)
        self.loops = Loops(self.inference, self.work)
        self.guards = Guards(self.inference, self.work)
        self.heat = Heat(self.inference, self.loops, self.guards)
        self.autograd = Autograd(self.inference)
        self.entry = Entry(self.inference)
        self.program = Program(self.inference)
        self.ranks = Ranks(self.inference, self.program)
        self.communication = Communication(self.inference)
        self.steps = Steps(self.inference, self.work, self.loops)
        self.lineage = Lineage(self)
        self.training_mode = TrainingMode(self)
        self.layers = Layers(self.inference)
        self.output_activation = OutputActivation(self)
        self._accelerated: dict[str, bool] = {}
        self.feeding: Feeding | None = None
        # Options of loaders by (id of the call, name), as a fix would have them: while it is asked what that would bring.
        self.supposed: dict[tuple[int, str], Value] = {}

    def uses_accelerator(self, module: Module) -> bool:
        """Whether the program that a file belongs to ever speaks of an accelerator; without, nothing can synchronise."""
        found = self._accelerated.get(module.path)
        if found is None:
            found = self._accelerated[module.path] = self._uses_accelerator(module)
        return found

    def _uses_accelerator(self, module: Module) -> bool:
        neighbours = self.project.neighbours
        return neighbours.any_speaks(neighbours.around(module.path), _ACCELERATED)


class Script:
    """One file, as the rules see it."""

    def __init__(self, module: Module, semantics: Semantics) -> None:
        self.module = module
        self.semantics = semantics
        self.settings = semantics.settings
        self.inference = semantics.inference
        self.project = semantics.project
        self._aliases: dict[str, set[str]] | None = None

    @property
    def path(self) -> str:
        return self.module.path

    def beside(self, module: Module) -> Script:
        """Another file of the project, with the same answers."""
        return self if module is self.module else Script(module, self.semantics)

    # ------------------------------------------------------------------------------------------------- finding

    def calls(self, *names: str) -> Iterator[Call]:
        """Calls of the outside things with these full names, through any alias, in source order."""
        wanted = frozenset(names)
        found: dict[int, Call] = {}
        for last in sorted({n.rpartition(".")[2] for n in names}):
            for local in sorted({last} | self._names_for(last)):
                for call in self.module.calls_by_attr.get(local, ()):
                    if id(call) not in found and self._refers_to(call.callee, wanted):
                        found[id(call)] = call
        yield from sorted(found.values(), key=lambda c: c.order)

    def _refers_to(self, callee: Expr, wanted: frozenset[str]) -> bool:
        return any(isinstance(v, External) and v.name in wanted for v in each(self.inference.value(callee)))

    def _names_for(self, last: str) -> set[str]:
        """Local names that may stand for something called `last` elsewhere: imports and assignments under another name."""
        if self._aliases is None:
            aliases: dict[str, set[str]] = {}
            self._aliases = aliases
            scopes = [
                self.module.names,
                *(f.locals for f in self.module.functions),
                *(c.attributes for c in self.module.classes),
            ]
            for scope in scopes:
                for name, bindings in scope.items():
                    for binding in bindings:
                        original: str | None = None
                        if binding.how == "import":
                            original = binding.source.rpartition(".")[2]
                        elif binding.how == "assign" and isinstance(binding.value, (Name, Attribute)):
                            original = (dotted_name(binding.value) or "").rpartition(".")[2]
                        elif (
                            binding.how == "assign"
                            and isinstance(binding.value, Call)
                            and binding.value.attr == "partial"
                        ):
                            if binding.value.args:
                                original = (dotted_name(binding.value.args[0]) or "").rpartition(".")[2]
                        if original and original != name:
                            aliases.setdefault(original, set()).add(name)
        return self._aliases.get(last, set())

    def methods(self, *names: str) -> Iterator[Call]:
        """Calls of the form `x.name(...)`, in source order."""
        found = [
            c for name in names for c in self.module.calls_by_attr.get(name, ()) if isinstance(c.callee, Attribute)
        ]
        yield from sorted(found, key=lambda c: c.order)

    def objects(self, *roles: str) -> Iterator[tuple[Call, Object]]:
        """Calls that build an object of one of these roles, with the object."""
        for call in self.module.calls:
            attr = call.attr
            if attr is None:
                continue
            value = self.inference.value(call)
            for one in each(value):
                if isinstance(one, Object) and one.role in roles and one.call is call:
                    yield call, one
                    break

    @property
    def feeding(self) -> Feeding:
        """Where the batches of loaders go."""
        if self.semantics.feeding is None:
            self.semantics.feeding = Feeding(self)
        return self.semantics.feeding

    # ------------------------------------------------------------------------------------------------- answers

    def value(self, expr: Expr) -> Value:
        return self.inference.value(expr)

    def constant(self, expr: Expr | None) -> object:
        """The Python value of an expression known by value, else `...`."""
        return self.inference.constant(expr)

    def name_of(self, expr: Expr) -> str | None:
        return self.inference.name_of(expr)

    def tensor(self, expr: Expr) -> Tensor | None:
        """The tensor that an expression is known to be on every path, None otherwise."""
        tensors = []
        for one in each(self.inference.value(expr)):
            if not isinstance(one, Tensor):
                return None
            tensors.append(one)
        return tensors[0] if tensors else None

    def device_tensor(self, expr: Expr) -> Tensor | None:
        """As `tensor`, but None when it is known to lie on the host."""
        tensor = self.tensor(expr)
        return None if tensor is None or tensor.device == "host" else tensor

    def hot(self, record: Record) -> Hot | None:
        return self.semantics.heat.hot(record)

    def batch_loops(self) -> list[BatchLoop]:
        return self.semantics.loops.of_module(self.module)

    def autograd(self, record: Record) -> str:
        return self.semantics.autograd.mode(record.context, record.order)

    def uses_accelerator(self) -> bool:
        return self.semantics.uses_accelerator(self.module)

    def callees(self, call: Call) -> list[Function]:
        return [c.function for c in self.inference.callgraph.callees(call)]

    def role(self, cls: Class) -> str:
        return self.inference.role(cls)

    def is_method_of(self, call: Call, role: str) -> bool:
        """Whether a call is a method of an object of that role: `optimizer.step()`."""
        receiver = call.receiver
        if receiver is None:
            return False
        return any(isinstance(v, Object) and v.role == role for v in each(self.inference.value(receiver)))

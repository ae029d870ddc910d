from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.patterns_on_use import Pattern
from trainlint.rules import rewrites
from trainlint.rules.rule import Hit, Rewrite, Rule
from trainlint.semantic import known, unnamed_reads, walk
from trainlint.semantic.contexts import is_self
from trainlint.semantic.facts import Assign, Attribute, Await, Binding, Call, Class, Name, Walrus, Yield
from trainlint.semantic.values import Const, Items, Number, Object, each

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_MODULES = known.LIGHTNING_MODULES | {"torch.nn.Module", "torch.nn.modules.module.Module", "object", "abc.ABC"}
_NO_PARAMETERS = Pattern(
    r"ReLU|GELU|SiLU|Tanh|Sigmoid|Softmax|Identity|Flatten|Dropout|Pool|Upsample|PixelShuffle|ELU|Loss|Pad"
)
_PURE = frozenset({"int", "float", "len", "max", "min", "round", "sum", "abs", "range", "tuple", "list"})


class UnusedSubmodule(Rule):
    """A layer that `__init__` assigns and nothing reads.

    ## Why is this bad?

    It takes memory on the device, in the optimizer and in every checkpoint, gets no gradient, and makes DDP stop with
    "expected to have finished reduction" unless `find_unused_parameters` is set. Often it is a layer that `forward` was
    meant to use.

    ## Example

    ```python
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(64, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x):
        return self.fc2(x)
    ```

    ## Use instead

    Use the layer, or remove it.

    ## When it is silent

    Layers read in the class, a subclass, by attribute or by a string that may name them anywhere in the project; classes
    that call what `children()` or `modules()` gives, or that ask `getattr` for a name that is not known; classes that hooks
    reach, or whose base lies outside of the project; layers without parameters.

    ## Fix safety

    Unsafe: the state dict changes, and old checkpoints no longer fit. The assignment is removed where making the layer
    has no other effect: its arguments are plain values and layers.

    ## Measured by `trainlint verify`

    Parameters without a gradient after a step, and their memory.

    ## References

    - PyTorch, `DistributedDataParallel` (`find_unused_parameters`)
    """

    code = "TL620"
    name = "unused-submodule"
    level = Level.WARNING
    claim = Claim.MEMORY
    message = "self.{name} is never used by {cls}"
    why = "it takes memory in the model, the optimizer and every checkpoint, and never gets a gradient"
    help = "use it in forward, or remove it"
    triggers = ((b"self.", b"nn"),)

    def check(self, script: Script) -> Iterator[Hit]:
        for cls in script.module.classes:
            family = self._closed_family(script, cls) if script.role(cls) == "module" else None
            if family is None:
                continue
            for name, bindings in cls.attributes.items():
                if len(bindings) != 1 or name.startswith("__"):
                    continue
                binding = bindings[0]
                if self._is_layer(script, binding) and not self._is_read(script, cls, name, binding, family):
                    rewrite = self._rewrite(script, binding)
                    yield Hit(binding.source, {"name": name, "cls": cls.name}, rewrite=rewrite)

    def _rewrite(self, script: Script, binding: Binding) -> Rewrite | None:
        """The assignment goes, where nothing else hangs on it."""
        statement = binding.statement
        if not isinstance(statement, Assign) or len(statement.targets) != 1 or statement.value is None:
            return None
        for expr in walk.inside(statement.value):
            if isinstance(expr, (Walrus, Await, Yield)):
                return None
            if isinstance(expr, Call) and not self._only_makes(script, expr):
                return None
        return rewrites.remove_statement(binding.source)

    def _only_makes(self, script: Script, call: Call) -> bool:
        """A call that makes a layer, or a number of numbers."""
        for value in each(script.value(call)):
            if isinstance(value, Object) and value.role == "module" and value.call is call:
                continue
            if isinstance(call.callee, Name) and call.callee.id in _PURE and isinstance(value, (Number, Const, Items)):
                continue
            return False
        return True

    def _closed_family(self, script: Script, cls: Class) -> list[Class] | None:
        """The class, its bases and subclasses, where only named reads can use what it holds and there is a `forward`."""
        family = [b for b in script.inference.bases(cls) if isinstance(b, Class)]
        outside = [b for b in script.inference.bases(cls) if not isinstance(b, Class)]
        if any(b not in _MODULES and not b.endswith(".LightningModule") for b in outside):
            return None
        for subclass in self._subclasses(script, cls):  # with what else they inherit from
            family += [c for c in script.inference.bases(subclass) if isinstance(c, Class)]
        if not any("forward" in c.methods or "training_step" in c.methods for c in family):
            return None
        return None if any(unnamed_reads.reads_all(script, c, family) for c in family) else family

    def _subclasses(self, script: Script, cls: Class) -> list[Class]:
        return [
            other
            for module in script.project.family(script.path)
            for other in module.classes
            if other is not cls and cls in script.inference.bases(other)
        ]

    def _is_layer(self, script: Script, binding: Binding) -> bool:
        if (
            binding.how != "assign"
            or binding.value is None
            or not isinstance(binding.source, Attribute)
            or binding.path
        ):
            return False
        function = binding.context.function
        if function is None or function.name != "__init__":
            return False
        values = list(each(script.value(binding.value)))
        return bool(values) and all(
            isinstance(v, Object)
            and v.role == "module"
            and v.call is not None
            and not (v.cls is None and _NO_PARAMETERS.search(v.name.rpartition(".")[2]))
            and (v.cls is not None or v.name.startswith(("torch.nn.", "torchvision.models.")))
            for v in values
        )

    def _is_read(self, script: Script, cls: Class, name: str, binding: Binding, family: list[Class]) -> bool:
        for access in script.module.attributes.get(name, ()):
            if access is not binding.source and not self._is_other(script, access, cls, family):
                return True
        if unnamed_reads.reads_by_string(script, script.module, name, family):
            return True
        word = Pattern(rb"\b" + re.escape(name.encode()) + rb"\b")
        neighbours = script.project.neighbours
        others = neighbours.connected(script.module.path) - {script.module.path}
        if any(self._is_read_there(script, p, name, cls, family) for p in neighbours.speaking(sorted(others), word)):
            return True
        return any(  # a name put together for `getattr`, in what imports the file
            path in others
            and neighbours.speaks(path, unnamed_reads.BY_STRING)
            and self._is_read_there(script, path, name, cls, family)
            for path in neighbours.family(script.module.path)
        )

    def _is_read_there(self, script: Script, path: str, name: str, cls: Class, family: list[Class]) -> bool:
        module = script.project.module(path)
        if module is None:
            return True  # a notebook, a file that cannot be parsed
        if any(not self._is_other(script, access, cls, family) for access in module.attributes.get(name, ())):
            return True
        return unnamed_reads.reads_by_string(script, module, name, family)

    def _is_other(self, script: Script, access: Attribute, cls: Class, family: list[Class]) -> bool:
        """`self.name` of a class that has nothing to do with this one."""
        owner = access.context.cls
        if owner is None or not is_self(access.value, access.context) or any(owner is c for c in family):
            return False
        return cls not in script.inference.bases(owner) and owner not in script.inference.bases(cls)

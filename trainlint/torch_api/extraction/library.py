"""Which names the modules of a library bind, read from its source text without importing it.

Top-level statements are read in order, every branch of an `if` or `try` counts, imports are followed, and a module that
adds names in a way that cannot be read (`__getattr__`, `globals()[...] = `) is marked open.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping

from trainlint.torch_api.extraction.namespace import Binding, Namespace, Reference
from trainlint.torch_api.extraction.reader import Reader
from trainlint.torch_api.versions import Version

_STRINGS = re.compile(rb"(?<=\x00)[A-Za-z_][A-Za-z0-9_]+(?=\x00)")


class Library:
    """The modules of one release. `sources` maps a module's dotted name to its text, `packages` names the folders.

    `stubs` names the modules that have only a `.pyi` file; `added` binds what the text cannot show; `extension` gives
    the bytes of the compiled library.
    """

    def __init__(
        self,
        sources: Mapping[str, Callable[[], str]],
        packages: Iterable[str],
        stubs: Iterable[str] = (),
        added: Callable[[Library, Namespace], None] | None = None,
        extension: Callable[[], bytes] = bytes,
        release: Version = (0, 0),
    ) -> None:
        self.release = release
        self._sources = sources
        self._packages = frozenset(packages)
        self._stubs = frozenset(stubs)
        self._added = added
        self._extension = extension
        self._strings: frozenset[bytes] | None = None
        self._namespaces: dict[str, Namespace] = {}
        self._trees: dict[str, ast.Module] = {}
        self.externals: set[str] = set()
        self.modules: frozenset[str] = frozenset(sources) | self._packages
        children: dict[str, set[str]] = {}
        for module in self.modules:
            parent, _, leaf = module.rpartition(".")
            children.setdefault(parent, set()).add(leaf)
        self._children = children

    def children(self, module: str) -> set[str]:
        """The submodules that lie in a package."""
        return self._children.get(module, set())

    def is_package(self, module: str) -> bool:
        return module in self._packages

    def is_stub(self, module: str) -> bool:
        """Only a `.pyi` file tells of this module: it is part of the extension, and the stub may be incomplete."""
        return module in self._stubs

    def has_string(self, name: str) -> bool:
        """Whether the compiled extension holds `name` as a whole string."""
        if self._strings is None:
            self._strings = frozenset(_STRINGS.findall(self._extension()))
        return name.encode() in self._strings

    def tree(self, module: str) -> ast.Module:
        if module not in self._trees:
            source = self._sources[module]() if module in self._sources else ""
            self._trees[module] = ast.parse(source)
        return self._trees[module]

    def namespace(self, module: str) -> Namespace:
        """The names that `module` binds. A module that is being read (an import cycle) gives what is known so far."""
        known = self._namespaces.get(module)
        if known is not None:
            return known
        space = Namespace(module)
        self._namespaces[module] = space
        Reader(self, space).read_module(self.tree(module))
        if self._added is not None:
            self._added(self, space)
        for name in space.exported or ():
            # What `__all__` promises is there, however it came about.
            if name not in space.names and name not in self.children(module):
                space.names[name] = Binding("value", f"{module}.{name}")
        return space

    def names(self, module: str) -> dict[str, Binding]:
        """Every name of `module`, its submodules included, with imports followed."""
        space = self.namespace(module)
        found: dict[str, Binding] = {}
        for leaf in self.children(module):
            found[leaf] = Binding("module", f"{module}.{leaf}")
        for name in list(space.names):
            binding = self.find(module, name)
            if binding is not None:
                found[name] = binding
        return found

    def find(self, module: str, name: str, seen: frozenset[tuple[str, str]] = frozenset()) -> Binding | None:
        """What `module.name` stands for, or None if the module has no such name."""
        if (module, name) in seen:
            return None
        space = self.namespace(module)
        bound = space.names.get(name)
        if isinstance(bound, Binding):
            return bound
        if isinstance(bound, Reference):
            if bound.name == "":
                return Binding("module", bound.target)
            if (bound.target, bound.name) == (module, name) and name in self.children(module):
                return Binding("module", f"{module}.{name}")
            found = self.find(bound.target, bound.name, seen | {(module, name)})
            if found is None and bound.lenient:
                found = Binding("value", f"{module}.{name}")
            return found
        if name in self.children(module):
            return Binding("module", f"{module}.{name}")
        return None

    def follow(self, module: str, expression: ast.expr) -> tuple[str, Binding] | None:
        """What a dotted expression in `module` stands for: the module and name that hold it, and the binding."""
        if isinstance(expression, ast.Name):
            found = self.find(module, expression.id)
            return (f"{module}.{expression.id}", found) if found else None
        if isinstance(expression, ast.Attribute):
            owner = self.follow(module, expression.value)
            if owner is None or owner[1].kind != "module":
                return None
            found = self.find(owner[1].origin, expression.attr) if owner[1].origin in self.modules else None
            return (f"{owner[1].origin}.{expression.attr}", found) if found else None
        return None

    def starred(self, module: str) -> list[str]:
        """The names that `from module import *` binds."""
        space = self.namespace(module)
        public = [
            name
            for name, bound in space.names.items()
            # A stub does not hand on what it imports (PEP 484).
            if not name.startswith("_") and not (self.is_stub(module) and isinstance(bound, Reference))
        ]
        if space.exported is None:
            return public
        return list(dict.fromkeys([*space.exported, *(public if space.exported_partly else ())]))

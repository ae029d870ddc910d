"""The files of one project: finds, reads and links them on demand, and resolves imports between them.

The project of a file is the nearest folder upwards with pyproject.toml, trainlint.toml, setup.py or .git. Imports resolve
from the importing file's own folder, the project's root and its `src/`. Importers of a file are found by a byte search for
its module name, so that a file given alone and the same file in a full run see the same neighbours.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from weakref import WeakValueDictionary

from trainlint.semantic import from_ast, nodes
from trainlint.semantic.contexts import link
from trainlint.semantic.facts import Class, Function, Module, Statement
from trainlint.semantic.locating import Locator
from trainlint.semantic.neighbours import Neighbours
from trainlint.semantic.packed import Packed
from trainlint.semantic.syntax import ParseError

MARKERS = ("pyproject.toml", "trainlint.toml", "setup.py", ".git")
_MOST_CALLERS = 40  # files that are parsed to find the callers of one function, nearest first
_MOST_ENGINES = 8
_MOST_CALLERS_OF_LIBRARY = 8  # where so many files use it that a few of them say as much

ReadText = Callable[[str], "str | None"]


def find_root(path: str) -> str:
    """The project's folder for a file. Where no marker is found: the working directory if the file lies below it (a
    checkout without its .git), else the topmost package folder's parent."""
    folder = start = os.path.dirname(os.path.abspath(path))
    while True:
        if any(os.path.exists(os.path.join(folder, marker)) for marker in MARKERS):
            return folder
        parent = os.path.dirname(folder)
        if parent == folder:
            break
        folder = parent
    working = os.getcwd()
    if start == working or (start.startswith(working + os.sep) and os.path.dirname(working) != working):
        return working
    while os.path.exists(os.path.join(start, "__init__.py")):
        start = os.path.dirname(start)
    return start


class Project:
    """All files below one root. `read` gives a file's text (notebooks joined), or None where it cannot be read."""

    def __init__(
        self,
        root: str,
        read: ReadText,
        texts: Mapping[str, str] | None = None,
        neighbours: Neighbours | None = None,
    ) -> None:
        """`texts` are files (by absolute path) whose text differs from what lies on the disk; `neighbours` what was read of
        the files already."""
        self.root = root
        self.read = read
        self.neighbours = neighbours if neighbours is not None else Neighbours(Locator(root), texts)
        self.locator = self.neighbours.locator
        self._modules: dict[str, Module | None] = {}  # the one that was asked for last comes last
        self._resting: WeakValueDictionary[str, Module] = WeakValueDictionary()  # kept by what is known of others only
        self._texts = Packed()
        self._sizes: dict[str, int] = {}  # characters, by the path of what is held
        self._trees: dict[str, Any] = {}
        self._recalled: list[Module] = []
        self.read_since = 0  # characters of the modules that were made since the last `release`

    @property
    def size(self) -> int:
        """Characters of the modules that are held."""
        return sum(self._sizes.values())

    def emptied(self) -> Project:
        """The same project without its modules: what is known of files and imports is kept, the memory is given back."""
        return Project(self.root, self.read, neighbours=self.neighbours)

    def release(self, most: int) -> int:
        """Lets go of the modules that were not asked for lately, down to `most` characters, and of all that is known of
        them; not of those that what is known of others rests on. How many characters are left."""
        self.read_since = 0
        size = 0
        for path in reversed(list(self._modules)):
            module = self._modules[path]
            if module is not None:
                size += self._sizes[path]
                if size > most:
                    self._resting[path] = module
                    del self._modules[path]
        module = None
        gc.collect()  # a module is a circle
        held = self._modules.keys() | self._resting.keys()
        for path in self._sizes.keys() - held:
            del self._texts[path]
            del self._sizes[path]
            self._trees.pop(path, None)
        return self.size

    # ------------------------------------------------------------------------------------------------ modules

    def add(self, path: str, module: Module, text: str, tree: Any = None) -> None:
        """A module that was read already (the file that is being checked), with the libcst tree it may come from."""
        path = os.path.abspath(path)
        self.locator.add(path)
        self.neighbours.add(path, text)
        self._modules[path] = module
        self._hold(path, text)
        self._trees[path] = tree

    def given(self, path: str, text: str) -> tuple[Module, Any] | None:
        """The module of a path, if it was made of this very text."""
        if self.text(path) != text:
            return None
        module = self._held(path)
        return None if module is None else (module, self._trees.get(path))

    def text(self, path: str) -> str | None:
        """The text that a module was made of."""
        data = self._texts.get(path)
        return None if data is None else _decoded(data)

    def _hold(self, path: str, text: str) -> None:
        self._texts[path] = text.encode("utf-8", "surrogatepass")
        self._sizes[path] = len(text)
        self.read_since += len(text)

    def module(self, path: str) -> Module | None:
        """The linked module of a file, None where it cannot be read or parsed."""
        if path in self._modules:
            return self._held(path)
        path = os.path.abspath(path)
        if path not in self._modules and path not in self._resting:
            self._modules[path] = None  # a circle of imports meets this
            self._modules[path] = self._load(path)
        return self._held(path)

    def _held(self, path: str) -> Module | None:
        modules = self._modules
        module = modules.pop(path, None) or self._resting.pop(path, None)
        modules[path] = module
        return module

    def _load(self, path: str) -> Module | None:
        text = self.read(path)
        if text is None:
            return None
        self._hold(path, text)
        try:
            body = from_ast.lower(from_ast.parse(text, path))
            module = link(path, body, self.module_name(path))
        except (ParseError, RecursionError):
            return None
        self.forget(module)
        return module

    def forget(self, module: Module) -> None:
        """Lets go of the nodes behind a module's records; they come back when one is asked for."""
        path = module.path
        read = self._texts.reader(path)
        if read is None:
            return

        def again() -> tuple[Statement, ...]:
            self._recalled.append(module)
            return from_ast.lower(from_ast.parse(_decoded(read()), path))

        nodes.forget(module, again)

    def forget_all(self) -> None:
        """As `forget`, for all modules whose nodes have come back."""
        while self._recalled:
            self.forget(self._recalled.pop())

    def module_name(self, path: str) -> str:
        """Dotted name of a file below the root (or its src/)."""
        path = os.path.abspath(path)
        for base in (os.path.join(self.root, "src"), self.root):
            if path.startswith(base + os.sep):
                relative = path[len(base) + 1 :]
                parts = os.path.splitext(relative)[0].split(os.sep)
                if parts[-1] == "__init__":
                    parts.pop()
                return ".".join(parts)
        return os.path.splitext(os.path.basename(path))[0]

    # ------------------------------------------------------------------------------------------------- imports

    def target(
        self, importer: str, dotted: str, depth: int = 0
    ) -> Module | Function | Class | tuple[Module, str] | None:
        """What a full name stands for in this project: a module, function, class, or (module, variable).

        Follows re-exports (`from .engine import train` in an `__init__.py`), also by star.
        """
        found = self.locator.find(importer, dotted)
        if found is None or depth > 8:
            return None
        path, rest = found
        module = self.module(path)
        if module is None:
            return None
        if not rest:
            return module
        return self.member(module, rest, depth)

    def member(
        self, module: Module, rest: list[str], depth: int = 0
    ) -> Module | Function | Class | tuple[Module, str] | None:
        name = rest[0]
        bindings = module.names.get(name)
        if bindings is None:
            for full in self._star_sources(module):
                target = self.target(
                    module.path,
                    f"{full}.{'.'.join(rest)}" if not full.endswith(".") else full + ".".join(rest),
                    depth + 1,
                )
                if target is not None and not isinstance(target, Module):
                    return target
            if os.path.basename(module.path) == "__init__.py":
                below = self.locator.below(os.path.dirname(module.path), rest)
                if below is not None and below[0] != module.path:
                    inner = self.module(below[0])
                    if inner is not None:
                        return self.member(inner, below[1], depth + 1) if below[1] else inner
            return None
        last = bindings[-1]
        if last.how == "define":
            what = last.source
            if len(rest) == 1:
                return what  # type: ignore[no-any-return]
            if isinstance(what, Class) and len(rest) == 2:
                return what.methods.get(rest[1])
            return None
        if last.how == "import":
            full = last.source
            dotted = full if len(rest) == 1 else f"{full}.{'.'.join(rest[1:])}"
            return self.target(module.path, dotted, depth + 1)
        return (module, name) if len(rest) == 1 else None

    def outside_name(self, importer: str, dotted: str, depth: int = 0) -> str:
        """The full name of something outside that a file of the project hands on: `from saving import checkpoint`."""
        found = self.locator.find(importer, dotted)
        if found is None or not found[1] or depth > 8:
            return dotted
        module = self.module(found[0])
        bindings = module.names.get(found[1][0]) if module is not None else None
        if module is None or not bindings or bindings[-1].how != "import":
            return dotted
        return self.outside_name(module.path, ".".join([bindings[-1].source, *found[1][1:]]), depth + 1)

    def _star_sources(self, module: Module) -> list[str]:
        return [full for statement in module.imports for name, full in statement.names if name == "*"]

    # ---------------------------------------------------------------------------------------------- neighbours

    def imported(self, module: Module) -> frozenset[str]:
        """The project's files that a module imports, those included from which a package has the names it hands on."""
        return self.neighbours.imported(module.path)

    def family(self, path: str, words: Iterable[str] = (), most: int | None = None) -> list[Module]:
        """The module of a file and of all that import it, nearest first; with `words`, of the importers only those in
        which one of them stands; with `most`, no more than the nearest ones."""
        first, *others = self.neighbours.family(os.path.abspath(path))
        wanted = tuple(words)
        if wanted:
            most_callers = _MOST_CALLERS_OF_LIBRARY if self.neighbours.is_library(first) else _MOST_CALLERS
            others = self.neighbours.with_words(others, wanted)[:most_callers]
        return [m for m in map(self.module, [first, *others][:most]) if m is not None]

    def engines(self, path: str) -> list[Module]:
        """Files that train or evaluate and stand beside a file in what imports it: `main.py` has the model from here and the
        loop from there."""
        neighbours, path = self.neighbours, os.path.abspath(path)
        if neighbours.is_library(path) or neighbours.is_in_large_package(path):
            return []
        beside = sorted(neighbours.around(path).difference(neighbours.family(path)))
        found = neighbours.with_words(beside, ("backward", "eval"))
        return [m for m in map(self.module, found[:_MOST_ENGINES]) if m is not None]


def _decoded(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")

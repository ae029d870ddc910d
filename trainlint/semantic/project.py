"""The files of one project: finds, reads and links them on demand, and resolves imports between them.

The project of a file is the nearest folder upwards with pyproject.toml, trainlint.toml, setup.py or .git. Imports resolve
from the importing file's own folder, the project's root and its `src/`. Importers of a file are found by a byte search for
its module name, so that a file given alone and the same file in a full run see the same neighbours.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from trainlint.semantic import from_ast
from trainlint.semantic.contexts import link
from trainlint.semantic.facts import Class, Function, Module
from trainlint.semantic.syntax import ParseError

MARKERS = ("pyproject.toml", "trainlint.toml", "setup.py", ".git")
_SKIPPED_FOLDERS = frozenset(
    {
        ".git",
        ".hg",
        ".svn",
        ".tox",
        ".nox",
        ".venv",
        "venv",
        "node_modules",
        "__pycache__",
        "build",
        "dist",
        ".eggs",
        "site-packages",
    }
)
_MOST_FILES = 20_000  # of a project that are looked at for importers
_LARGEST_FAMILY = 200  # files that are looked at for callers of one file, nearest first
_MOST_CALLERS = 40  # files that are parsed to find the callers of one function, nearest first
_MOST_IMPORTERS = 30
_LARGEST_OWN_PACKAGE = 400  # files; a larger package is a library to the scripts outside of it
_LARGEST = 2_000_000  # bytes; a larger neighbour is not read

# a neighbour that holds none of these has nothing to do with training
_RELEVANT = (b"torch", b"lightning", b"accelerate", b"deepspeed", b"transformers", b"ignite", b"fabric")

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

    def __init__(self, root: str, read: ReadText, texts: Mapping[str, str] | None = None) -> None:
        """`texts` are files (by absolute path) whose text differs from what lies on the disk."""
        self.root = root
        self.read = read
        self._given = texts or {}
        self._modules: dict[str, Module | None] = {}
        self._texts: dict[str, str] = {}
        self._trees: dict[str, Any] = {}
        self._files: list[str] | None = None
        self._bytes: dict[str, bytes] = {}
        self._importers: dict[str, tuple[str, ...]] | None = None
        self._found: dict[tuple[str, str], tuple[str, list[str]] | None] = {}
        self._imported: dict[str, set[str]] = {}
        self._families: dict[str, tuple[str, ...]] = {}
        self._words: dict[str, frozenset[bytes]] = {}
        self._packages: dict[str, str | None] = {}
        self._package_sizes: dict[str, int] = {}
        self._targets: dict[tuple[str, str], str | None] = {}

    def emptied(self) -> Project:
        """The same project without its modules: what is known of files and imports is kept, the memory is given back."""
        other = Project(self.root, self.read, self._given)
        other._files, other._importers, other._families = self._files, self._importers, self._families
        other._found, other._targets, other._words = self._found, self._targets, self._words
        other._packages, other._package_sizes = self._packages, self._package_sizes
        return other

    @property
    def size(self) -> int:
        """Characters of the texts that modules were made of."""
        return sum(map(len, self._texts.values()))

    # ------------------------------------------------------------------------------------------------ modules

    def add(self, path: str, module: Module, text: str, tree: Any = None) -> None:
        """A module that was read already (the file that is being checked), with the libcst tree it may come from."""
        path = os.path.abspath(path)
        self._modules[path] = module
        self._texts[path] = text
        self._trees[path] = tree

    def given(self, path: str, text: str) -> tuple[Module, Any] | None:
        """The module of a path, if it was made of this very text."""
        module = self._modules.get(path)
        if module is not None and self._texts.get(path) == text:
            return module, self._trees.get(path)
        return None

    def text(self, path: str) -> str | None:
        """The text that a module was made of."""
        return self._texts.get(path)

    def module(self, path: str) -> Module | None:
        """The linked module of a file, None where it cannot be read or parsed."""
        if path in self._modules:
            return self._modules[path]
        path = os.path.abspath(path)
        if path not in self._modules:
            self._modules[path] = None  # a circle of imports meets this
            self._modules[path] = self._load(path)
        return self._modules[path]

    def _load(self, path: str) -> Module | None:
        text = self.read(path)
        if text is None:
            return None
        self._texts[path] = text
        try:
            body = from_ast.lower(from_ast.parse(text, path))
            return link(path, body, self.module_name(path))
        except (ParseError, RecursionError):
            return None

    def loaded(self) -> list[Module]:
        return [module for module in self._modules.values() if module is not None]

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

    def find(self, importer: str, dotted: str) -> tuple[str, list[str]] | None:
        """File and remaining names for a full name as imported: ("util/misc.py", ["SmoothedValue"])."""
        key = (os.path.dirname(importer), dotted)
        if key not in self._found:
            found = self._find(key[0], dotted)
            self._found[key] = None if found is not None and self._is_foreign(key[0], found[0]) else found
        return self._found[key]

    def _is_foreign(self, folder: str, path: str) -> bool:
        """A large package is a library to the scripts outside of it, as if it were installed: known by name only."""
        package = self._package(path)
        if package is None or folder == package or folder.startswith(package + os.sep):
            return False
        if package not in self._package_sizes:
            self._package_sizes[package] = sum(f.startswith(package + os.sep) for f in self.files())
        return self._package_sizes[package] > _LARGEST_OWN_PACKAGE

    def _package(self, path: str) -> str | None:
        """The folder of the top-level package that a file belongs to."""
        folder = os.path.dirname(path)
        known = self._packages.get(folder)
        if known is None and folder not in self._packages:
            current, top = folder, None
            while len(current) > len(self.root) and os.path.exists(os.path.join(current, "__init__.py")):
                current, top = os.path.dirname(current), current
            known = self._packages[folder] = top
        return known

    def _find(self, folder: str, dotted: str) -> tuple[str, list[str]] | None:
        if dotted.startswith("."):
            level = len(dotted) - len(dotted.lstrip("."))
            for _ in range(level - 1):
                folder = os.path.dirname(folder)
            rest = dotted[level:]
            return self._below(folder, rest.split(".") if rest else [])
        parts = dotted.split(".")
        seen: set[str] = set()
        for base in self._bases(folder):
            if base not in seen:
                seen.add(base)
                found = self._below(base, parts)
                if found is not None and found[1] != parts:
                    return found
        return None

    def _bases(self, folder: str) -> Iterator[str]:
        yield folder
        yield self.root
        yield os.path.join(self.root, "src")
        # scripts in a sub-folder of the project often put a parent on sys.path
        while len(folder) > len(self.root):
            folder = os.path.dirname(folder)
            yield folder

    def _below(self, base: str, parts: list[str]) -> tuple[str, list[str]] | None:
        for count in range(len(parts), -1, -1):
            stem = os.path.join(base, *parts[:count])
            key = (base, ".".join(parts[:count]))
            if key not in self._targets:
                self._targets[key] = self._file_at(stem, count)
            path = self._targets[key]
            if path is not None:
                return path, parts[count:]
        return None

    def _file_at(self, stem: str, count: int) -> str | None:
        candidates = [os.path.join(stem, "__init__.py")]
        if count:
            candidates.insert(0, stem + ".py")
        for candidate in candidates:
            if os.path.isfile(candidate) or candidate in self._modules:
                return candidate
        return None

    def target(
        self, importer: str, dotted: str, depth: int = 0
    ) -> Module | Function | Class | tuple[Module, str] | None:
        """What a full name stands for in this project: a module, function, class, or (module, variable).

        Follows re-exports (`from .engine import train` in an `__init__.py`), also by star.
        """
        found = self.find(importer, dotted)
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
                below = self._below(os.path.dirname(module.path), rest)
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
        found = self.find(importer, dotted)
        if found is None or not found[1] or depth > 8:
            return dotted
        module = self.module(found[0])
        bindings = module.names.get(found[1][0]) if module is not None else None
        if module is None or not bindings or bindings[-1].how != "import":
            return dotted
        return self.outside_name(module.path, ".".join([bindings[-1].source, *found[1][1:]]), depth + 1)

    def _star_sources(self, module: Module) -> list[str]:
        return [full for statement in module.imports for name, full in statement.names if name == "*"]

    # ----------------------------------------------------------------------------------------------- importers

    def files(self) -> list[str]:
        """Every .py and .ipynb file of the project, in a fixed order."""
        if self._files is None:
            found: list[str] = []
            stack = [self.root]
            while stack and len(found) < _MOST_FILES:
                folder = stack.pop()
                try:
                    entries = sorted(os.scandir(folder), key=lambda e: e.name)
                except OSError:
                    continue
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        if entry.name not in _SKIPPED_FOLDERS and not entry.name.startswith("."):
                            stack.append(entry.path)
                    elif entry.name.endswith((".py", ".ipynb")) and os.path.isfile(entry.path):  # no pipe, no dead link
                        found.append(entry.path)
            self._files = sorted(found)
        return self._files

    def bytes_of(self, path: str) -> bytes:
        data = self._bytes.get(path)
        if data is None:
            given = self._given.get(path, self._texts.get(path))
            try:
                if given is not None:  # text from standard input need not lie on the disk
                    data = given.encode("utf-8", "surrogatepass")
                else:
                    data = b"" if os.path.getsize(path) > _LARGEST else _read_bytes(path)
            except OSError:
                data = b""
            if not any(word in data for word in _RELEVANT) and os.path.basename(path) != "__init__.py":
                data = b""  # a package's __init__ may hand on names without a word about torch
            self._bytes[path] = data
        return data

    def importers(self, path: str) -> tuple[str, ...]:
        """Files that import this one, directly or by a name that a package re-exports from it."""
        if self._importers is None:
            self._importers = self._import_index()
        return self._importers.get(os.path.abspath(path), ())

    def _import_index(self) -> dict[str, tuple[str, ...]]:
        """For each file of the project, the files that import it: read off the import lines, without parsing."""
        lines = {path: list(import_lines(self.bytes_of(path))) for path in self.files() if path.endswith(".py")}
        found: dict[str, set[str]] = {}
        for path, statements in lines.items():
            for module, names in statements:
                for name in names or ("",):
                    dotted = module if not name else module + name if module.endswith(".") else f"{module}.{name}"
                    for target in self._import_targets(path, dotted, lines):
                        if target != path:
                            found.setdefault(target, set()).add(path)
        return {target: tuple(sorted(paths)) for target, paths in found.items()}

    def _import_targets(
        self, path: str, dotted: str, lines: dict[str, list[tuple[str, tuple[str, ...]]]], depth: int = 0
    ) -> Iterator[str]:
        target = self.find(path, dotted)
        if target is None:
            return
        yield target[0]
        if not target[1] or os.path.basename(target[0]) != "__init__.py" or depth > 4:
            return
        # `from package import name`, where the package has it from one of its files
        for module, names in lines.get(target[0], ()):
            if target[1][0] in names or "*" in names:
                name = target[1][0]
                inner = module + name if module.endswith(".") else f"{module}.{name}"
                yield from self._import_targets(target[0], inner, lines, depth + 1)

    def imported(self, module: Module) -> set[str]:
        """The project's files that a module imports, the packages on the way (`__init__`) included."""
        known = self._imported.get(module.path)
        if known is not None:
            return known
        found: set[str] = self._imported.setdefault(module.path, set())
        for statement in module.imports:
            for bound, full in statement.names:
                target = self.find(module.path, full)
                if target is not None:
                    found.add(target[0])
                if bound == "*" or target is None:
                    continue
                # `from package import name` where package re-exports it from elsewhere
                inner = self.module(target[0])
                if inner is not None and target[1]:
                    for binding in inner.names.get(target[1][0], ()):
                        if binding.how != "import":
                            continue
                        further = self.find(inner.path, binding.source)
                        if further is not None:
                            found.add(further[0])
            for full in statement.modules:
                target = self.find(module.path, full)
                if target is not None:
                    found.add(target[0])
        return found

    def _words_of(self, path: str) -> frozenset[bytes]:
        """Every identifier that stands in a file."""
        known = self._words.get(path)
        if known is None:
            known = self._words[path] = frozenset(_WORD.findall(self.bytes_of(path)))
        return known

    def is_library(self, path: str) -> bool:
        """Whether a file is used from so many others that no caller in particular tells what its functions are given."""
        return len(self.importers(path)) > _MOST_IMPORTERS

    def family_paths(self, path: str) -> tuple[str, ...]:
        """The file and all that import it, directly or through others, nearest first: where its callers can be."""
        path = os.path.abspath(path)
        known = self._families.get(path)
        if known is not None:
            return known
        seen = [path]
        members = {path}
        for current in seen:
            if len(seen) > _LARGEST_FAMILY:
                break
            for importer in self.importers(current):
                if importer not in members:
                    members.add(importer)
                    seen.append(importer)
        self._families[path] = tuple(seen)
        return self._families[path]

    def family(self, path: str, words: Iterable[str] = (), most: int | None = None) -> list[Module]:
        """The modules of `family_paths`; with `words`, of the importers only those in which one of them stands; with
        `most`, no more than the nearest ones."""
        wanted = {word.encode() for word in words}
        first, *others = self.family_paths(path)
        if wanted:
            others = [other for other in others if not wanted.isdisjoint(self._words_of(other))][:_MOST_CALLERS]
        return [m for m in map(self.module, [first, *others][:most]) if m is not None]


_WORD = re.compile(rb"[A-Za-z_]\w*")
_IMPORT = re.compile(
    rb"^[ \t]*(?:from[ \t]+([.\w]+)[ \t]+import[ \t]*(\([^)]*\)|[^\n#;]*)|import[ \t]+([\w., \t]+))", re.MULTILINE
)
_NAME = re.compile(r"(?:^|,)\s*([\w.*]+)")


def import_lines(data: bytes) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(module, names) of each import statement, as far as lines that look like one are one."""
    for match in _IMPORT.finditer(data):
        source, names, plain = (
            part.decode("utf-8", "replace") if part is not None else None for part in match.groups()
        )
        if source is not None and names is not None:
            uncommented = re.sub(r"#[^\n]*", "", names).replace("(", "").replace(")", "").replace("\\", "")
            yield source, tuple(_NAME.findall(uncommented))
        elif plain is not None:
            for module in _NAME.findall(plain):
                yield module, ()


def _read_bytes(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()

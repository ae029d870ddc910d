"""Which files a project has, which import which, and which words stand in them: read off their bytes, without parsing.

Everything here is asked for thousands of functions, so that each answer is made once for the whole project.
"""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from trainlint.patterns_on_use import Pattern, Words
from trainlint.semantic.locating import Locator
from trainlint.semantic.packed import Packed

_LARGEST_FAMILY = 200  # files that are looked at for callers of one file, nearest first
_MOST_IMPORTERS = 30
_LARGE_PACKAGE = 100  # files
_NEAREST = 8
MOST_IN_PROGRAM = 400
_LARGEST = 2_000_000  # bytes; a larger neighbour is not read

# a neighbour that holds none of these has nothing to do with training
_RELEVANT = (b"torch", b"lightning", b"accelerate", b"deepspeed", b"transformers", b"ignite", b"fabric")

_Lines = list[tuple[str, tuple[str, ...]]]


class Neighbours:
    def __init__(self, locator: Locator, texts: Mapping[str, str] | None = None) -> None:
        """`texts` are files (by absolute path) whose text differs from what lies on the disk."""
        self.locator = locator
        self._given = texts or {}
        self._bytes = Packed()
        self._lines: dict[str, _Lines] = {}
        self._importers: dict[str, tuple[str, ...]] | None = None
        self._imported: dict[str, frozenset[str]] = {}
        self._families: dict[str, tuple[str, ...]] = {}
        self._programs: dict[str, tuple[str, ...]] = {}
        self._connected: dict[str, frozenset[str]] | None = None
        self._attributes: frozenset[str] | None = None
        self._words: dict[str, frozenset[str]] | None = None
        self._spoken: dict[Words, dict[str, bool]] = {}
        self._heard: dict[tuple[frozenset[str], Words], bool] = {}
        self._around: dict[str, frozenset[str]] = {}
        self._same: dict[frozenset[str], frozenset[str]] = {}  # the files of a folder mostly have the same around them

    # ---------------------------------------------------------------------------------------------------- bytes

    def add(self, path: str, text: str) -> None:
        """The text that a file is checked with: that of standard input need not lie on the disk."""
        if path.endswith(".ipynb") and os.path.isfile(path):
            return  # of a notebook on the disk its own bytes count
        if path not in self._bytes:
            self._bytes[path] = _relevant(path, text.encode("utf-8", "surrogatepass"))

    def offer(self, path: str, data: bytes) -> None:
        """What was just read of a file of the project, for whatever purpose."""
        if path not in self._bytes and path.endswith(".py") and path not in self._given:
            self._bytes[path] = _relevant(path, data) if len(data) <= _LARGEST else b""

    def bytes_of(self, path: str) -> bytes:
        """A file's bytes; nothing, where it has nothing to do with training."""
        data = self._bytes.get(path)
        if data is None:
            data = self._bytes[path] = _relevant(path, self._read(path))
        return data

    def _read(self, path: str) -> bytes:
        given = self._given.get(path)
        if given is not None:
            return given.encode("utf-8", "surrogatepass")
        try:
            if os.path.getsize(path) > _LARGEST:
                return b""
            with open(path, "rb") as file:
                return file.read()
        except OSError:
            return b""

    # -------------------------------------------------------------------------------------------------- imports

    def importers(self, path: str) -> tuple[str, ...]:
        """Files that import this one, directly or by a name that a package re-exports from it."""
        if self._importers is None:
            found: dict[str, set[str]] = {}
            for importer in self.locator.files():
                if importer.endswith(".py"):
                    for target in self.imported(importer):
                        found.setdefault(target, set()).add(importer)
            self._importers = {target: tuple(sorted(paths)) for target, paths in found.items()}
        return self._importers.get(path, ())

    def imported(self, path: str) -> frozenset[str]:
        """The project's files that a file imports, those included from which a package has the names it hands on."""
        known = self._imported.get(path)
        if known is None:
            targets: set[str] = set()
            for module, names in self._lines_of(path):
                for name in names or ("",):
                    dotted = module if not name else module + name if module.endswith(".") else f"{module}.{name}"
                    targets.update(self._targets(path, dotted))
            targets.discard(path)
            known = self._imported[path] = frozenset(targets)
        return known

    def _lines_of(self, path: str) -> _Lines:
        lines = self._lines.get(path)
        if lines is None:
            lines = self._lines[path] = list(import_lines(self.bytes_of(path)))
        return lines

    def _targets(self, path: str, dotted: str, depth: int = 0) -> Iterator[str]:
        target = self.locator.find(path, dotted)
        if target is None:
            return
        yield target[0]
        if not target[1] or os.path.basename(target[0]) != "__init__.py" or depth > 4:
            return
        # `from package import name`, where the package has it from one of its files
        name = target[1][0]
        for module, names in self._lines_of(target[0]):
            if name in names or "*" in names:
                inner = module + name if module.endswith(".") else f"{module}.{name}"
                yield from self._targets(target[0], inner, depth + 1)

    def is_library(self, path: str) -> bool:
        """Whether a file is used from so many others that no caller in particular tells what its functions are given."""
        return len(self.importers(path)) > _MOST_IMPORTERS

    def is_in_large_package(self, path: str) -> bool:
        """Whether the callers of what is in a file are anywhere in the world."""
        return self.locator.package_size(path) > _LARGE_PACKAGE

    def family(self, path: str) -> tuple[str, ...]:
        """The file and all that import it, directly or through others, nearest first: where its callers can be. Of a
        file in a large package, whose callers are anywhere in the world, only a few files beside it."""
        known = self._families.get(path)
        if known is None and self.is_in_large_package(path):
            nearest = sorted(self.importers(path), key=lambda other: (-len(os.path.commonpath((path, other))), other))
            known = self._families[path] = (path, *nearest[:_NEAREST])
        if known is None:
            seen = [path]
            members = {path}
            for current in seen:
                if len(seen) > _LARGEST_FAMILY:
                    break
                for importer in self.importers(current):
                    if importer not in members:
                        members.add(importer)
                        seen.append(importer)
            known = self._families[path] = tuple(seen)
        return known

    def around(self, path: str) -> frozenset[str]:
        """The file's family and what those import themselves."""
        known = self._around.get(path)
        if known is None:
            family = self.family(path)
            known = frozenset(family).union(*(self.imported(one) for one in family))
            known = self._around[path] = self._same.setdefault(known, known)
        return known

    def program(self, path: str) -> tuple[str, ...]:
        """The file's family and everything that those import; more than can be told where there are over 400."""
        known = self._programs.get(path)
        if known is None:
            paths = list(self.family(path))
            seen = set(paths)
            for current in paths:
                if len(paths) > MOST_IN_PROGRAM:
                    break
                for further in sorted(self.imported(current)):
                    if further not in seen:
                        seen.add(further)
                        paths.append(further)
            known = self._programs[path] = tuple(paths)
        return known

    def connected(self, path: str) -> frozenset[str]:
        """The file and all that imports lead to from it, in either direction and through any number of files: from no
        other can anything flow into what is said of it."""
        if self._connected is None:
            self._connected = connected_files(self.locator.files(), self.raw_imports)
        return self._connected.get(path) or frozenset((path,))

    def raw_imports(self, path: str) -> Iterator[str]:
        """As `imported`, also of files that have nothing to do with training themselves, and of notebooks."""
        if path.endswith(".py") and self.bytes_of(path):
            yield from self.imported(path)
            return
        data = self._read(path)
        if path.endswith(".ipynb"):  # lines of code are strings there
            data = data.replace(b'"', b"\n").replace(b"\\n", b"\n")
        for module, names in import_lines(data):
            for name in names or ("",):
                dotted = module if not name else module + name if module.endswith(".") else f"{module}.{name}"
                yield from self._targets(path, dotted)

    # ---------------------------------------------------------------------------------------------------- words

    def speaks(self, path: str, pattern: Words) -> bool:
        """Whether a pattern stands anywhere in a file's text."""
        return self.any_speaks((path,), pattern)

    def any_speaks(self, paths: Iterable[str], pattern: Words) -> bool:
        return next(self.speaking(paths, pattern), None) is not None

    def speaking(self, paths: Iterable[str], pattern: Words) -> Iterator[str]:
        """Those of the files in whose text a pattern stands anywhere."""
        known = self._spoken.setdefault(pattern, {})
        for path in paths:
            found = known.get(path)
            if found is None:
                found = known[path] = pattern.stands_in(self.bytes_of(path) or self._read(path))
            if found:
                yield path

    def connected_speak(self, path: str, pattern: Words) -> bool:
        """Whether a pattern stands in the text of the file, or of any that it hangs together with."""
        if self.speaks(path, pattern):
            return True
        key = (self.connected(path), pattern)
        known = self._heard.get(key)
        if known is None:
            known = self._heard[key] = self.any_speaks(key[0], pattern)
        return known

    def attributes(self) -> frozenset[str]:
        """The names under which anything in the project is stored on an object or class (and some more)."""
        if self._attributes is None:
            found: set[bytes] = set()
            for path in self.locator.files():
                found.update(_STORED.findall(self.bytes_of(path)))
            self._attributes = frozenset(name.decode("ascii", "replace") for name in found)
        return self._attributes

    def with_words(self, paths: Iterable[str], words: Iterable[str]) -> list[str]:
        """Those of the files in which one of the words stands."""
        index = self._word_index()
        holders: set[str] = set()
        unindexed: list[Words] = []
        for word in words:
            files = index.get(word)
            if files is not None:
                holders |= files
            else:
                unindexed.append(Pattern(rb"\b" + re.escape(word.encode()) + rb"\b"))
        return [path for path in paths if path in holders or any(self.speaks(path, one) for one in unindexed)]

    def _word_index(self) -> dict[str, frozenset[str]]:
        """For each name that a file of the project defines: the files in which it stands."""
        if self._words is None:
            paths = [path for path in self.locator.files() if self.bytes_of(path)]
            defined = {word for path in paths for word in _DEFINED.findall(self.bytes_of(path))} | _ASKED
            found: dict[bytes, list[str]] = {}
            for path in paths:
                for word in defined.intersection(_WORD.findall(self.bytes_of(path))):
                    found.setdefault(word, []).append(path)
            self._words = {word.decode("ascii", "replace"): frozenset(files) for word, files in found.items()}
        return self._words


_WORD = Pattern(rb"[A-Za-z_]\w*")
_DEFINED = Pattern(rb"\b(?:def|class)[ \t]+([A-Za-z_]\w*)")
# `self.head = ...`, `head: Head = ...` in the body of a class, `add_module("head", ...)`
_STORED = Pattern(
    rb"""(?:\.|^[ \t]{1,8}|(?:add_module|register_module|setattr)\([^,"']*,?[ \t]*["'])([A-Za-z_]\w*)"""
    rb"""(?=["']|[ \t]*(?:=(?!=)|:[^=\n]*(?:=|\n)|,[^=\n]*=))""",
    re.MULTILINE,
)
_ASKED = frozenset({b"train", b"eval", b"backward"})
_IMPORT = Pattern(
    rb"^[ \t]*(?:from[ \t]+([.\w]+)[ \t]+import[ \t]*(\([^)]*\)|[^\n#;]*)|import[ \t]+([\w., \t]+))", re.MULTILINE
)
_NAME = Pattern(r"(?:^|,)\s*([\w.*]+)")


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


def connected_files(paths: Iterable[str], imported: Callable[[str], Iterable[str]]) -> dict[str, frozenset[str]]:
    """For each file the files that it hangs together with by imports."""
    groups: dict[str, list[str]] = {}
    for path in paths:
        groups.setdefault(path, [path])
        for target in imported(path):
            one, other = groups[path], groups.setdefault(target, [target])
            if one is not other:
                small, large = (one, other) if len(one) < len(other) else (other, one)
                large.extend(small)
                for member in small:
                    groups[member] = large
    frozen: dict[int, frozenset[str]] = {}
    return {path: frozen.setdefault(id(group), frozenset(group)) for path, group in groups.items()}


def _relevant(path: str, data: bytes) -> bytes:
    data = data.removeprefix(codecs.BOM_UTF8)  # an import may follow at once
    if any(word in data for word in _RELEVANT) or os.path.basename(path) == "__init__.py":
        return data  # a package's __init__ may hand on names without a word about torch
    return b""

"""Where the modules of a project lie: its files, and the file that a full name as imported stands for.

Imports resolve from the importing file's own folder, the project's root and its `src/`, and the folders between.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

_SKIPPED_FOLDERS = frozenset(
    ".git .hg .svn .tox .nox .venv venv node_modules __pycache__ build dist .eggs site-packages".split()
)
_MOST_FILES = 20_000  # of a project that are looked at for importers
_LARGEST_OWN_PACKAGE = 400  # files; a larger package is a library to the scripts outside of it


def _is_file(entry: os.DirEntry[str]) -> bool:
    """No pipe, no dead link, no link that leads back to itself."""
    try:
        return entry.is_file()
    except OSError:
        return False


class Locator:
    def __init__(self, root: str) -> None:
        self.root = root
        self._added: set[str] = set()  # files that need not lie on the disk
        self._files: list[str] | None = None
        self._found: dict[tuple[str, str], tuple[str, list[str]] | None] = {}
        self._packages: dict[str, str | None] = {}
        self._package_sizes: dict[str, int] = {}
        self._targets: dict[tuple[str, str], str | None] = {}

    def add(self, path: str) -> None:
        """A file that is checked, also one from standard input that does not lie on the disk."""
        self._added.add(path)

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
                    elif entry.name.endswith((".py", ".ipynb")) and _is_file(entry):
                        found.append(entry.path)
            self._files = sorted(found)
        return self._files

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
        return self.package_size(path) > _LARGEST_OWN_PACKAGE

    def package_size(self, path: str) -> int:
        """How many files the top-level package of a file has; 0 for a script."""
        package = self._package(path)
        if package is None:
            return 0
        if package not in self._package_sizes:
            self._package_sizes[package] = sum(f.startswith(package + os.sep) for f in self.files())
        return self._package_sizes[package]

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
            return self.below(folder, rest.split(".") if rest else [])
        parts = dotted.split(".")
        seen: set[str] = set()
        for base in self._bases(folder):
            if base not in seen:
                seen.add(base)
                found = self.below(base, parts)
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

    def below(self, base: str, parts: list[str]) -> tuple[str, list[str]] | None:
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
            if os.path.isfile(candidate) or candidate in self._added:
                return candidate
        return None

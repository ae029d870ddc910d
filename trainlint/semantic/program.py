"""The program that a file belongs to: the scripts that lead to it and all that they import, as files and as text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from trainlint.semantic.facts import Context, Function, Module

if TYPE_CHECKING:
    from trainlint.semantic.inference import Inference

_MOST_FILES = 400


class Program:
    """Remembers the files of each program. A helper of several scripts belongs to the programs of all of them."""

    def __init__(self, inference: Inference) -> None:
        self.inference = inference
        self._files: dict[str, tuple[str, ...]] = {}
        self._started: dict[int, bool] = {}

    def files(self, module: Module) -> tuple[str, ...]:
        """Paths of the module, of what imports it (through others too), and of everything that those import."""
        found = self._files.get(module.path)
        if found is None:
            found = self._files[module.path] = self._collect(module)
        return found

    def _collect(self, module: Module) -> tuple[str, ...]:
        project = self.inference.project
        paths = [m.path for m in project.family(module.path)]
        seen = set(paths)
        for path in paths:
            if len(paths) > _MOST_FILES:
                break
            one = module if path == module.path else project.module(path)
            for further in sorted(project.imported(one)) if one is not None else ():
                if further not in seen:
                    seen.add(further)
                    paths.append(further)
        return tuple(paths)

    def says(self, module: Module, pattern: re.Pattern[bytes]) -> bool:
        """Whether a pattern stands, or in a program of too many files may stand, anywhere in its text."""
        files = self.files(module)
        return any(pattern.search(self._bytes(path)) for path in files) or len(files) > _MOST_FILES

    def _bytes(self, path: str) -> bytes:
        """A file's text. Importers are looked for by `bytes_of`, which leaves out what never speaks of torch."""
        project = self.inference.project
        data = project.bytes_of(path)
        return data or (project.text(path) or "").encode("utf-8", "replace")

    def modules(self, module: Module, pattern: re.Pattern[bytes]) -> list[Module]:
        """The files of the program in whose text a pattern stands."""
        project = self.inference.project
        found = []
        for path in self.files(module):
            if pattern.search(self._bytes(path)):
                one = module if path == module.path else project.module(path)
                if one is not None:
                    found.append(one)
        return found

    def is_started(self, context: Context) -> bool:
        """Whether code is reached from the module level of some file (under a main guard or not): it belongs to a
        script, not to a library whose users are elsewhere."""
        function = context.function
        return function is None or self._is_started(function)

    def _is_started(self, function: Function) -> bool:
        key = id(function)
        if key not in self._started:
            self._started[key] = False  # a circle of callers starts nothing by itself
            sites = self.inference.callgraph.callers(function)
            self._started[key] = any(self.is_started(site.call.context) for site in sites)
        return self._started[key]

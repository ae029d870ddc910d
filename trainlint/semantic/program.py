"""The program that a file belongs to: the scripts that lead to it and all that they import, as files and as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainlint.semantic.facts import Context, Function, Module
from trainlint.semantic.neighbours import MOST_IN_PROGRAM

if TYPE_CHECKING:
    from trainlint.patterns_on_use import Words
    from trainlint.semantic.inference import Inference


class Program:
    """A helper of several scripts belongs to the programs of all of them."""

    def __init__(self, inference: Inference) -> None:
        self.inference = inference

    def files(self, module: Module) -> tuple[str, ...]:
        """Paths of the module, of what imports it (through others too), and of everything that those import."""
        return self.inference.project.neighbours.program(module.path)

    def says(self, module: Module, pattern: Words) -> bool:
        """Whether a pattern stands, or in a program of too many files may stand, anywhere in its text."""
        neighbours = self.inference.project.neighbours
        files = neighbours.program(module.path)
        return len(files) > MOST_IN_PROGRAM or neighbours.any_speaks(files, pattern)

    def modules(self, module: Module, pattern: Words) -> list[Module]:
        """The files of the program in whose text a pattern stands."""
        project = self.inference.project
        found = []
        for path in project.neighbours.speaking(self.files(module), pattern):
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
        memo, key = function.module.memo, ("started", id(function))
        if key not in memo:
            memo[key] = False  # a circle of callers starts nothing by itself
            sites = self.inference.callgraph.callers(function)
            memo[key] = any(self.is_started(site.call.context) for site in sites)
        return memo[key]  # type: ignore[no-any-return]

"""The files of a project that a script imports: what a run of it executes besides the script itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

MOST_FILES = 300


def with_imports(script: Path, project: Path) -> list[Path]:
    """`script` first, then the files below `project` that it imports, directly or through one another."""
    found: dict[Path, None] = {script.resolve(): None}
    waiting = [script.resolve()]
    root = project.resolve()
    while waiting and len(found) < MOST_FILES:
        path = waiting.pop(0)
        for imported in _imports(path, (script.resolve().parent, root)):
            if imported not in found and imported.is_relative_to(root):
                found[imported] = None
                waiting.append(imported)
    return list(found)


def _imports(path: Path, folders: tuple[Path, ...]) -> Iterator[Path]:
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return  # the check says what is wrong with it
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _modules(folders, alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            where = folders if not node.level else (path.parents[node.level - 1],)
            parts = node.module.split(".") if node.module else []
            yield from _modules(where, parts)
            for alias in node.names:  # a name may be a module
                yield from _modules(where, [*parts, alias.name])


def _modules(folders: tuple[Path, ...], parts: list[str]) -> Iterator[Path]:
    """The file of the module `parts`, and those of the packages that hold it."""
    for folder in folders:
        for length in range(1, len(parts) + 1):
            base = folder.joinpath(*parts[:length])
            for candidate in (base.with_name(base.name + ".py"), base / "__init__.py"):
                if candidate.is_file():
                    yield candidate.resolve()
        if parts and (folder / parts[0]).with_suffix(".py").is_file():
            return  # the first folder of the path that has it

"""Imports that a round of fixes leaves without a use: the names go, where nothing else can want them."""

from __future__ import annotations

import ast
import os
import re
import warnings
from collections.abc import Sequence

from trainlint.edits import changed
from trainlint.rewriting import over_blank_rows
from trainlint.semantic.project import Project, find_root
from trainlint.source import NotChecked, Source, read_source

_KEPT = re.compile(r"#\s*(?:noqa|type:|pylint|trainlint|fmt:|isort|pyright|ruff)")

_STAR = re.compile(r"from\s+([\w.]+)\s+import\s*\*")

Change = tuple[int, int, str]


def removals(source: Source, changes: Sequence[Change]) -> list[Change]:
    """Changes of the same text that take such names out of their imports."""
    if source.is_notebook or not changes or source.path.endswith("__init__.py"):
        return []
    before, after = _parse(source.text), _parse(changed(source.text, changes))
    if before is None or after is None:
        return []
    left = _words(after)
    names = {name for _, _, name in _imported(before)} & (_words(before) - left)
    names = {name for name in names if sum(n == name for _, _, n in _imported(before)) == 1}
    if not names or "__all__" in left or _star_or_asked(after):
        return []
    wanted = _wanted_elsewhere(source.path, names)
    found: list[Change] = []
    for statement in before.body:
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            gone = [i for i, alias in enumerate(statement.names) if _bound(statement, alias) in names - wanted]
            if gone:
                found += _without(source, statement, gone)
    return [one for one in found if not any(one[0] <= end and start <= one[1] for start, end, _ in changes)]


def _parse(text: str) -> ast.Module | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(text)
        except (SyntaxError, ValueError, RecursionError):
            return None


def _imported(tree: ast.Module) -> list[tuple[ast.stmt, ast.alias, str]]:
    return [
        (statement, alias, _bound(statement, alias))
        for statement in tree.body
        if isinstance(statement, (ast.Import, ast.ImportFrom))
        for alias in statement.names
    ]


def _bound(statement: ast.Import | ast.ImportFrom, alias: ast.alias) -> str:
    """The name, "" for one that is imported for its effect or handed on (`import x as x`, `__future__`)."""
    if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
        return ""
    if alias.asname is not None:
        return "" if alias.asname == alias.name else alias.asname
    return "" if "." in alias.name else alias.name


def _words(tree: ast.Module) -> set[str]:
    """Names and, in strings that are code (annotations, `__all__`), words."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _is_code(node.value):
            found.update(re.findall(r"\w+", node.value))
    return found


def _is_code(text: str) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            ast.parse(text.strip(), mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return False
    return True


def _star_or_asked(tree: ast.Module) -> bool:
    """Names may be looked up by their text."""
    return bool(_words(tree) & {"globals", "locals", "eval", "exec", "vars"})


def _wanted_elsewhere(path: str, names: set[str]) -> set[str]:
    """Names that stand in a file that imports this one."""
    project = Project(find_root(path), _text)
    found: set[str] = set()
    own = os.path.basename(path).partition(".")[0]
    for other in project.neighbours.family(os.path.abspath(path))[1:]:
        text = _text(other) or ""
        found |= {name for name in names if re.search(rf"\b{re.escape(name)}\b", text)}
        if any(module.rpartition(".")[2] == own for module in _STAR.findall(text)):
            return names
    return found


def _text(path: str) -> str | None:
    try:
        return read_source(path).text
    except NotChecked:
        return None


def _without(source: Source, statement: ast.Import | ast.ImportFrom, gone: Sequence[int]) -> list[Change]:
    """The names taken out, or the whole statement with its row."""
    starts = source.row_starts
    rows = [source.line(row) for row in range(statement.lineno, (statement.end_lineno or 0) + 1)]
    if not all(row.isascii() for row in rows) or statement.col_offset or any(_KEPT.search(row) for row in rows):
        return []
    if rows[-1][statement.end_col_offset :].strip():
        return []  # a comment, or another statement

    def offset(row: int, column: int) -> int:
        return starts[row - 1] + column

    end_row = statement.end_lineno or statement.lineno
    names = statement.names
    if len(gone) == len(names):
        end = starts[end_row] if end_row < len(starts) else len(source.text)
        return [(starts[statement.lineno - 1], over_blank_rows(source.text, starts[statement.lineno - 1], end), "")]
    if any("#" in row for row in rows):
        return []
    changes: list[Change] = []
    for i in gone:
        kept_before = [j for j in range(i) if j not in gone]
        if i + 1 < len(names) and not (kept_before and all(j in gone for j in range(i, len(names)))):
            following = names[i + 1]
            changes.append(
                (offset(names[i].lineno, names[i].col_offset), offset(following.lineno, following.col_offset), "")
            )
        else:
            before = names[i - 1]
            start = offset(before.end_lineno or 0, before.end_col_offset or 0)
            changes.append((start, offset(names[i].end_lineno or 0, names[i].end_col_offset or 0), ""))
    return changes

"""Paths on the command line -> the files to check."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from trainlint.patterns import matches
from trainlint.records import NamedTuple
from trainlint.settings import Configuration, Settings
from trainlint.source import NotChecked, unreadable

if TYPE_CHECKING:
    from trainlint.gitignore import GitIgnore

_ENDINGS = (".py", ".pyw", ".ipynb")


class Target(NamedTuple):
    """One file to check, or a folder that could not be read (`problem` says why)."""

    path: str  # absolute, or "-"
    settings: Settings
    data: bytes | None = None  # what was given on standard input
    problem: NotChecked | None = None


class PathNotFoundError(Exception):
    """A path was named that does not exist."""


def discover(paths: Iterable[str], configuration: Configuration, *, force_exclude: bool = False) -> list[Target]:
    """The files under `paths`, each once, sorted by path.

    A folder is searched for `.py`, `.pyw` and `.ipynb` files, without what `exclude` or a .gitignore names; links to
    folders are not followed. A file that is named is taken whatever its ending, and `exclude` holds for it only with
    `force_exclude`.

    Raises PathNotFoundError and SettingsError.
    """
    found: dict[str, Target] = {}
    for path in paths:
        absolute = os.path.abspath(path)
        if os.path.isdir(absolute):
            settings = configuration.for_folder(absolute)
            if not (force_exclude and excluded(absolute, settings)):
                _walk(absolute, configuration, found)
        elif os.path.lexists(absolute):
            settings = configuration.for_file(absolute)
            if not (force_exclude and excluded(absolute, settings)):
                found[absolute] = Target(absolute, settings)
        else:
            raise PathNotFoundError(f"{path}: no such file or folder")
    return [found[path] for path in sorted(found)]


def excluded(path: str, settings: Settings) -> bool:
    """Whether `exclude` or `extend-exclude` names this path or a folder that it lies in."""
    return any(matches(pattern, path, settings.root) for pattern in settings.exclude)


def _walk(top: str, configuration: Configuration, found: dict[str, Target]) -> None:
    stack: list[tuple[str, GitIgnore | None]] = [(top, _gitignore_above(top))]
    split: dict[tuple[str, ...], tuple[frozenset[str], tuple[str, ...]]] = {}
    while stack:
        folder, ignore = stack.pop()
        settings = configuration.for_folder(folder)
        try:
            with os.scandir(folder) as scan:
                entries = list(scan)
        except OSError as error:
            found[folder] = Target(folder, settings, problem=NotChecked(unreadable(error)))
            continue
        if any(entry.name == ".gitignore" and os.path.isfile(entry.path) for entry in entries):
            from trainlint.gitignore import GitIgnore

            ignore = GitIgnore.read(folder, ignore)
        if settings.exclude not in split:
            split[settings.exclude] = _split(settings.exclude)
        plain, globs = split[settings.exclude]
        for entry in entries:
            name = entry.name
            if name in plain:
                continue
            is_folder = _is_folder(entry)
            if not is_folder and not name.endswith(_ENDINGS):
                continue
            if any(matches(pattern, entry.path, settings.root) for pattern in globs):
                continue
            if ignore is not None and ignore.ignores(entry.path, is_folder):
                continue
            if is_folder:
                stack.append((entry.path, ignore))
            elif entry.path not in found and _is_readable_kind(entry):
                found[entry.path] = Target(entry.path, settings)


def _split(exclude: tuple[str, ...]) -> tuple[frozenset[str], tuple[str, ...]]:
    """Bare names, which a set answers for every entry, and the patterns besides."""
    plain = frozenset(pattern for pattern in exclude if not any(char in pattern for char in "*?[!/\\"))
    return plain, tuple(pattern for pattern in exclude if pattern not in plain)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _is_readable_kind(entry: os.DirEntry[str]) -> bool:
    """False for a link to a folder, a pipe, a socket. A link that leads nowhere is a file to complain about."""
    try:
        if entry.is_file():
            return True
        if not entry.is_symlink():
            return False
    except OSError:
        return True
    # .#name: the lock of an editor, which dangles on purpose
    return not os.path.exists(entry.path) and not entry.name.startswith(".#")


def _gitignore_above(top: str) -> GitIgnore | None:
    """The .gitignore files between the repository's root and `top`, which is itself not included."""
    folders = []
    folder = top
    while not os.path.lexists(os.path.join(folder, ".git")):
        parent = os.path.dirname(folder)
        if parent == folder:
            return None
        folders.append(parent)
        folder = parent
    ignore: GitIgnore | None = None
    for folder in reversed(folders):
        if os.path.isfile(os.path.join(folder, ".gitignore")):
            from trainlint.gitignore import GitIgnore

            ignore = GitIgnore.read(folder, ignore)
    # Who names an ignored folder wants it checked.
    return None if ignore is not None and ignore.ignores(top, True) else ignore

"""Let the script go on where a write or delete would touch what was there before: it works on copies and sees what it
expects to see.

Wraps the path functions of `os`, `io.open` and `shutil.rmtree`; pathlib, shutil, glob, logging, zipfile and numpy all
come through these. A write to a file that was there goes to a copy in the run's folder. A delete or rename hides the
original from the script and keeps it on the disk. Reads, listings and tests of such a path follow.
"""

from __future__ import annotations

import builtins
import functools
import io
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from typing import Any

from _trainlint_probe.guards import Guard, folder_of
from _trainlint_probe.journal import _is_there, absolute, make_folders

FOLDER_COPY_LIMIT = 256 * 2**20  # bytes: renaming a folder of the user's copies it; beyond this the rename is refused

_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_TRUNC | os.O_APPEND | os.O_CREAT


class _Busy(threading.local):
    """Set while this module itself works on files."""

    on = False


_BUSY = _Busy()
GUARD: Guard | None = None


def install(guard: Guard) -> None:
    global GUARD
    GUARD = guard
    for name in ("stat", "lstat", "access", "readlink", "chdir", "getxattr", "listxattr", "statvfs"):
        _wrap(os, name, _reading(getattr(os, name, None), follow=name not in ("lstat", "readlink")))
    for name in ("utime", "chmod", "chown", "setxattr", "lchown"):
        _wrap(os, name, _changing(getattr(os, name, None)))
    os.truncate = _truncate
    os.listdir = _listdir  # type: ignore[assignment]
    os.scandir = _scandir  # type: ignore[assignment]
    os.open = _os_open
    builtins.open = io.open = _open  # type: ignore[assignment]
    os.mkdir = _mkdir
    os.remove = _remove
    os.unlink = _unlink
    os.rmdir = _rmdir
    os.rename = _rename
    os.replace = _replace
    os.link = _link  # type: ignore[assignment]
    os.symlink = _symlink
    shutil.rmtree = _rmtree  # type: ignore[assignment]
    # Python 3.10's pathlib keeps its own references, bound when it was imported.
    import pathlib

    accessor = getattr(pathlib, "_NormalAccessor", None)
    if accessor is not None:
        for name in _OF_PATHLIB:
            if hasattr(accessor, name):
                setattr(accessor, name, staticmethod(io.open if name == "open" else getattr(os, name)))


_NAMES = (
    "open", "listdir", "scandir", "mkdir", "remove", "unlink", "rmdir", "rename", "replace", "truncate", "stat",
    "lstat", "symlink",
)  # fmt: skip
_OF_PATHLIB = (*_NAMES, "chmod", "readlink")
_RAW: dict[str, Any] = {name: getattr(os, name) for name in _NAMES}
_RAW["link"] = getattr(os, "link", None)
_RAW["io.open"] = io.open
_RAW["rmtree"] = shutil.rmtree


def _wrap(owner: Any, name: str, replacement: Callable[..., Any] | None) -> None:
    if replacement is not None:
        setattr(owner, name, replacement)


def _is_path(value: Any) -> bool:
    return isinstance(value, (str, bytes, os.PathLike))


def _absolute(path: Any, descriptor: int | None, follow: bool) -> str | None:
    text = os.fsdecode(path)
    if descriptor is not None and not os.path.isabs(text):
        folder = folder_of(descriptor)
        return None if folder is None else absolute(os.path.join(folder, text), follow)
    if not text or "\0" in text:
        return None  # fails by itself
    return absolute(text, follow)


# -- where to look, where to write


def for_reading(path: Any, descriptor: int | None = None, follow: bool = True) -> Any:
    """What to open in place of `path`: itself, unless the launch wrote to it, deleted it or renamed it."""
    guard = GUARD
    if guard is None or _BUSY.on or not _is_path(path):
        return path
    guard.journal.refresh()
    if guard.journal.is_untouched():
        return path
    place = _absolute(path, descriptor, follow=False)
    if place is None or guard.is_exempt(place):
        return path
    physical = guard.journal.physical(place)
    if physical == place and follow:
        target = _absolute(place, None, follow=True)
        if target is not None and target != place:
            physical = guard.journal.physical(target)
            return path if physical == target else physical
    return path if physical == place else physical


def for_writing(path: Any, truncates: bool, descriptor: int | None = None) -> Any:
    """Where a write to `path` goes: itself if the launch makes or made it, a copy if it was there before."""
    guard = GUARD
    if guard is None or _BUSY.on or not _is_path(path):
        return path
    place = _absolute(path, descriptor, follow=True)
    if place is None or guard.is_exempt(place):
        return path
    guard.journal.refresh()
    physical = guard.journal.physical(place)
    if physical != place:
        return physical
    if not _is_there(place):
        guard.journal.add("create", place)
        return path
    if not guard.was_there(place) or not os.path.isfile(place):
        return path
    shadow = guard.journal.prepare_shadow(place)
    _BUSY.on = True
    try:
        if truncates:
            _RAW["io.open"](shadow, "wb").close()
            shutil.copymode(place, shadow)
        else:
            shutil.copy2(place, shadow)
    finally:
        _BUSY.on = False
    guard.journal.add("shadow", place)
    return shadow


def _hide(place: str, operation: str) -> None:
    """Deleted as far as the launch can see, kept on the disk."""
    assert GUARD is not None
    shadow = GUARD.journal.prepare_shadow(place)
    if _is_there(shadow):
        if os.path.isdir(shadow) and not os.path.islink(shadow):
            _RAW["rmtree"](shadow, ignore_errors=True)
        else:
            _RAW["remove"](shadow)
    GUARD.journal.add("hide", place, operation)


class _OriginalNames:
    """An error of a redirected operation names the script's own path."""

    def __init__(self, physical: Any, path: Any) -> None:
        self.physical, self.path = physical, path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, OSError) and self.physical is not self.path and error.filename == self.physical:
            error.filename = self.path


# -- reading


def _reading(original: Any, follow: bool) -> Any:
    if original is None:
        return None

    @functools.wraps(original)
    def read(path: Any = ".", *args: Any, **kwargs: Any) -> Any:
        descriptor = kwargs.get("dir_fd")
        physical = for_reading(path, descriptor, follow and kwargs.get("follow_symlinks", True))
        if physical is path:
            return original(path, *args, **kwargs)
        kwargs.pop("dir_fd", None)
        with _OriginalNames(physical, path):
            return original(physical, *args, **kwargs)

    return read


def _open(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
    if isinstance(mode, str) and any(letter in mode for letter in "wa+") and "x" not in mode:
        physical = for_writing(file, truncates="w" in mode)
    elif isinstance(mode, str) and "x" in mode:
        physical = for_reading(file)
        if _is_path(physical):
            _note_new(physical)
    else:
        physical = for_reading(file)
    with _OriginalNames(physical, file):
        return _RAW["io.open"](physical, mode, *args, **kwargs)


def _note_new(path: Any) -> None:
    place = _absolute(path, None, follow=True)
    if GUARD is not None and place is not None and not GUARD.is_exempt(place) and not _is_there(place):
        GUARD.journal.add("create", place)


def _os_open(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
    if flags & _WRITE_FLAGS and not flags & os.O_EXCL and _is_foreign_lock(path, dir_fd):
        return int(_RAW["open"](path, flags & ~_WRITE_FLAGS, mode, dir_fd=dir_fd))
    if (
        flags & _WRITE_FLAGS
        and not (flags & os.O_EXCL and flags & os.O_CREAT)
        and not flags & getattr(os, "O_TMPFILE", 0)
    ):
        creates_or_exists = flags & os.O_CREAT or _is_there(os.fsdecode(path)) if _is_path(path) else False
        physical = (
            for_writing(path, bool(flags & os.O_TRUNC), dir_fd) if creates_or_exists else for_reading(path, dir_fd)
        )
    else:
        physical = for_reading(path, dir_fd)
    if physical is not path:
        dir_fd = None
    with _OriginalNames(physical, path):
        return int(_RAW["open"](physical, flags, mode, dir_fd=dir_fd))


def _is_foreign_lock(path: Any, descriptor: int | None) -> bool:
    guard = GUARD
    if guard is None or _BUSY.on or not _is_path(path) or not os.fsdecode(path).endswith(".lock"):
        return False
    place = _absolute(path, descriptor, follow=True)
    if place is None or guard.is_exempt(place):
        return False
    guard.journal.refresh()
    return guard.journal.physical(place) == place and guard.is_foreign_lock(place)


# -- listing


def _hidden_names(folder: str) -> set[str]:
    """Names in a folder of the disk that the launch deleted and did not make anew."""
    assert GUARD is not None
    journal = GUARD.journal
    return {
        os.path.basename(path)
        for path in journal.hidden
        if os.path.dirname(path) == folder and not _is_there(journal.shadow_path(path))
    }


def _folder_to_list(path: Any) -> tuple[Any, str | None]:
    """What to list, and the folder whose hidden names are to be left out."""
    if GUARD is None or _BUSY.on:
        return path, None
    GUARD.journal.refresh()
    if GUARD.journal.is_untouched():
        return path, None
    if isinstance(path, int):
        folder = folder_of(path)
        return path, folder
    place = _absolute("." if path is None else path, None, follow=True)
    if place is None or GUARD.is_exempt(place):
        return path, None
    physical = GUARD.journal.physical(place)
    return (path, place) if physical == place else (physical, None)


def _listdir(path: Any = None) -> list[Any]:
    physical, folder = _folder_to_list(path)
    with _OriginalNames(physical, path):
        names = _RAW["listdir"](physical)
    hidden = _hidden_names(folder) if folder else set()
    return [name for name in names if os.fsdecode(name) not in hidden] if hidden else names


class _Entries:
    """What `os.scandir` gives: an iterator and a context manager."""

    def __init__(self, inner: Any, hidden: set[str]) -> None:
        self._inner = inner
        self._hidden = hidden

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        while True:
            entry = next(self._inner)
            if os.fsdecode(entry.name) not in self._hidden:
                return entry

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: Any) -> None:
        self._inner.close()

    def close(self) -> None:
        self._inner.close()


def _scandir(path: Any = None) -> Any:
    physical, folder = _folder_to_list(path)
    with _OriginalNames(physical, path):
        entries = _RAW["scandir"](physical)
    hidden = _hidden_names(folder) if folder else set()
    return _Entries(entries, hidden) if hidden else entries


# -- making


def _mkdir(path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
    physical = for_reading(path, dir_fd, follow=False)
    if physical is not path:
        dir_fd = None
    with _OriginalNames(physical, path):
        _RAW["mkdir"](physical, mode, dir_fd=dir_fd)


def _symlink(src: Any, dst: Any, target_is_directory: bool = False, *, dir_fd: int | None = None) -> None:
    physical = for_reading(dst, dir_fd, follow=False)
    if physical is not dst:
        dir_fd = None
    _RAW["symlink"](src, physical, target_is_directory, dir_fd=dir_fd)


def _link(src: Any, dst: Any, **kwargs: Any) -> None:
    source, target = (
        for_reading(src, kwargs.get("src_dir_fd")),
        for_reading(dst, kwargs.get("dst_dir_fd"), follow=False),
    )
    place = _absolute(source, None, follow=True)
    if GUARD is not None and place is not None and not GUARD.is_exempt(place) and GUARD.was_there(place):
        _note_new(target)
        shutil.copy2(source, target)  # two names of one file would let a write through to what was there
        return
    _RAW["link"](source, target, **kwargs)


# -- changing and deleting


def _changing(original: Any) -> Any:
    """Times, modes and owners of what was there stay as they are; nobody in a training script reads them back."""
    if original is None:
        return None

    @functools.wraps(original)
    def change(path: Any, *args: Any, **kwargs: Any) -> Any:
        if _is_path(path) and GUARD is not None and not _BUSY.on:
            physical = for_reading(path, kwargs.get("dir_fd"))
            place = _absolute(physical, kwargs.get("dir_fd") if physical is path else None, follow=True)
            if place is not None and not GUARD.is_exempt(place) and GUARD.was_there(place):
                return None
            if physical is not path:
                kwargs.pop("dir_fd", None)
                path = physical
        return original(path, *args, **kwargs)

    return change


def _truncate(path: Any, length: int) -> None:
    _RAW["truncate"](for_writing(path, truncates=False) if _is_path(path) and os.path.exists(path) else path, length)


def _delete(path: Any, raw: Any, dir_fd: int | None, operation: str) -> None:
    guard = GUARD
    place = _absolute(path, dir_fd, follow=False) if guard is not None and not _BUSY.on else None
    if guard is None or place is None or guard.is_exempt(place):
        raw(path, dir_fd=dir_fd)
        return
    guard.journal.refresh()
    physical = guard.journal.physical(place)
    if physical != place:
        with _OriginalNames(physical, path):
            raw(physical)
        if place in guard.journal.shadowed:
            _hide(place, operation)
        return
    if guard.was_there(place):
        if operation == "rmdir" and _listdir(place):
            raise OSError(39, os.strerror(39), path)
        if operation == "delete" and os.path.isdir(place) and not os.path.islink(place):
            raise IsADirectoryError(21, os.strerror(21), path)
        _hide(place, operation)
        return
    raw(path, dir_fd=dir_fd)


def _remove(path: Any, *, dir_fd: int | None = None) -> None:
    _delete(path, _RAW["remove"], dir_fd, "delete")


def _unlink(path: Any, *, dir_fd: int | None = None) -> None:
    _delete(path, _RAW["unlink"], dir_fd, "delete")


def _rmdir(path: Any, *, dir_fd: int | None = None) -> None:
    _delete(path, _RAW["rmdir"], dir_fd, "rmdir")


@functools.wraps(shutil.rmtree)
def _rmtree(path: Any, *args: Any, **kwargs: Any) -> None:
    guard = GUARD
    descriptor = kwargs.get("dir_fd")
    place = _absolute(path, descriptor, follow=False) if guard is not None and not _BUSY.on and _is_path(path) else None
    if guard is None or place is None or guard.is_exempt(place):
        _RAW["rmtree"](path, *args, **kwargs)
        return
    guard.journal.refresh()
    physical = guard.journal.physical(place)
    if physical != place:
        _RAW["rmtree"](physical, *args, **kwargs)
    elif guard.was_there(place) and os.path.isdir(place) and not os.path.islink(place):
        _hide(place, "rmtree")
    else:
        _RAW["rmtree"](path, *args, **kwargs)


def _rename(src: Any, dst: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
    _move(src, dst, _RAW["rename"], src_dir_fd, dst_dir_fd)


def _replace(src: Any, dst: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None) -> None:
    _move(src, dst, _RAW["replace"], src_dir_fd, dst_dir_fd)


def _move(src: Any, dst: Any, raw: Any, src_fd: int | None, dst_fd: int | None) -> None:
    guard = GUARD
    source = _absolute(src, src_fd, follow=False) if guard is not None and not _BUSY.on else None
    target = _absolute(dst, dst_fd, follow=False) if source is not None else None
    if guard is None or source is None or target is None or (guard.is_exempt(source) and guard.is_exempt(target)):
        raw(src, dst, src_dir_fd=src_fd, dst_dir_fd=dst_fd)
        return
    guard.journal.refresh()
    journal = guard.journal
    source_now, target_now = journal.physical(source), journal.physical(target)
    if not _is_there(source_now) or source == target:
        with _OriginalNames(source_now, src):
            raw(source_now, target_now)
        return
    moves_the_users = source_now == source and not guard.is_exempt(source) and guard.was_there(source)
    target_was_there = target_now == target and not guard.is_exempt(target) and guard.was_there(target)
    if target_was_there:
        if os.path.isdir(target) and not os.path.islink(target):
            if not os.path.isdir(source_now) or _listdir(target):
                raise OSError(39 if os.path.isdir(source_now) else 21, os.strerror(39), dst)
        _hide(target, "overwrite")
        target_now = journal.shadow_path(target)
    if moves_the_users:
        _copy_for_rename(guard, source, target_now)
        _hide(source, "rename")
    else:
        if target_now == target and not guard.is_exempt(target):
            journal.add("create", target)
        make = os.path.dirname(target_now)
        if target_now != target:
            make_folders(make) if target_was_there else None
        try:
            raw(source_now, target_now)
        except OSError as error:
            if error.errno != 18:  # EXDEV: the run's folder may lie on another disk than the project
                raise
            _BUSY.on = True
            try:
                shutil.move(source_now, target_now)
            finally:
                _BUSY.on = False
        if source in journal.created:
            journal.add("forget", source)
        if source in journal.shadowed:
            _hide(source, "rename")


def _copy_for_rename(guard: Guard, source: str, target_now: str) -> None:
    """The user's file keeps its name on the disk; the launch gets a copy under the new one."""
    if os.path.isdir(source) and not os.path.islink(source):
        size = sum(
            _RAW["lstat"](os.path.join(folder, name)).st_size for folder, _, names in os.walk(source) for name in names
        )
        if size > FOLDER_COPY_LIMIT:
            guard.refuse("rename of a folder", source)
        _note_new(target_now)
        shutil.copytree(source, target_now, symlinks=True)
    else:
        _note_new(target_now)
        shutil.copy2(source, target_now, follow_symlinks=False)

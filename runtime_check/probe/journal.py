"""What the launch did to the file system, as far as Python did it: shared by all its processes through one file that
only grows.

* `created`: paths that this launch made. It may change and delete them.
* `shadowed`: files that were there before and were written to: the launch works on a copy in the run's folder.
* `hidden`: what was there before and was deleted or renamed: still on the disk, but the launch no longer sees it.
  Whatever it makes at such a path afterwards lives in the run's folder.

Paths in here are absolute, with links in their folders resolved.
"""

from __future__ import annotations

import json
import os
import stat
from typing import Any

_lstat, _stat, _open, _write, _read, _close = os.lstat, os.stat, os.open, os.write, os.read, os.close
_readlink, _mkdir, _getcwd = os.readlink, os.mkdir, os.getcwd


class Journal:
    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.path = os.path.join(folder, "journal")
        self.shadow_root = os.path.join(folder, "shadow")
        self.created: set[str] = set()
        self.shadowed: set[str] = set()
        self.hidden: set[str] = set()
        self._read_to = 0
        self._rest = b""

    def refresh(self) -> None:
        """Take in what the launch's other processes wrote."""
        try:
            size = _stat(self.path).st_size
        except OSError:
            return
        if size == self._read_to:
            return
        descriptor = _open(self.path, os.O_RDONLY)
        try:
            os.lseek(descriptor, self._read_to, os.SEEK_SET)
            data = _read(descriptor, size - self._read_to)
        finally:
            _close(descriptor)
        self._read_to += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._apply(*json.loads(line))

    def add(self, what: str, path: str, detail: str = "") -> None:
        line = json.dumps([what, path, detail]).encode() + b"\n"
        descriptor = _open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            _write(descriptor, line)
        finally:
            _close(descriptor)
        self.refresh()

    def _apply(self, what: str, path: str, detail: str) -> None:
        if what == "create":
            self.created.add(path)
        elif what == "forget":
            self.created.discard(path)
        elif what == "shadow":
            self.shadowed.add(path)
        elif what == "hide":
            self.hidden.add(path)
            self.shadowed.discard(path)
        # other lines ("refused", "kept", "command") are for the report only

    def is_untouched(self) -> bool:
        """Nothing is redirected: reading needs no look at the path."""
        return not self.shadowed and not self.hidden

    def is_created(self, path: str) -> bool:
        return bool(self.created) and any(part in self.created for part in upwards(path))

    def is_hidden(self, path: str) -> bool:
        return bool(self.hidden) and any(part in self.hidden for part in upwards(path))

    def physical(self, path: str) -> str:
        """Where the launch finds `path`."""
        if path in self.shadowed or self.is_hidden(path):
            return self.shadow_path(path)
        return path

    def shadow_path(self, path: str) -> str:
        drive, rest = os.path.splitdrive(path)
        return os.path.join(self.shadow_root, drive.replace(":", ""), rest.lstrip("/\\"))

    def prepare_shadow(self, path: str) -> str:
        """The place for a copy of `path`, with its folder made."""
        shadow = self.shadow_path(path)
        make_folders(os.path.dirname(shadow))
        return shadow


def make_folders(folder: str) -> None:
    missing = []
    while folder and not _is_there(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    for path in reversed(missing):
        try:
            _mkdir(path)
        except FileExistsError:
            pass


def _is_there(path: str) -> bool:
    try:
        _lstat(path)
    except (OSError, ValueError):
        return False
    return True


def upwards(path: str) -> Any:
    """The path and each folder that holds it."""
    while True:
        yield path
        parent = os.path.dirname(path)
        if parent == path:
            return
        path = parent


_REAL_FOLDERS: dict[str, str] = {}


def absolute(path: Any, follow: bool = True) -> str:
    """One spelling for one file: absolute, links in its folders resolved, and with `follow` the last link too."""
    text = os.fsdecode(path)
    if not os.path.isabs(text):
        text = os.path.join(_getcwd(), text)
    text = os.path.normpath(text)
    folder, name = os.path.split(text)
    real = _REAL_FOLDERS.get(folder)
    if real is None:
        real = _REAL_FOLDERS[folder] = _resolve(folder)
    result = os.path.join(real, name)
    return _resolve(result) if follow else result


def _resolve(path: str, depth: int = 0) -> str:
    """os.path.realpath by the unwrapped functions."""
    done = os.path.splitdrive(path)[0] + os.sep
    parts = [part for part in os.path.splitdrive(path)[1].split(os.sep) if part]
    for index, part in enumerate(parts):
        step = os.path.join(done, part)
        try:
            target = _readlink(step)
        except (OSError, ValueError):
            done = step
            continue
        if depth > 40:
            return path
        joined = os.path.normpath(os.path.join(done, target))
        return _resolve(os.path.join(joined, *parts[index + 1 :]), depth + 1)
    return done


def exempt_places(run_dir: str, session_dir: str | None = None) -> tuple[str, ...]:
    """Written to as ever: devices, and the folders of this run.

    The caches of torch, Triton and the Hub are not among them. They grow by what is downloaded or compiled; what was in
    them stays as it was, like everything else.
    """
    places = ["/dev", "/proc", "/sys", "/run/lock", run_dir, *((session_dir,) if session_dir else ())]
    return tuple(sorted({_resolve(place).rstrip(os.sep) + os.sep for place in places}))


def is_exempt(path: str, places: tuple[str, ...]) -> bool:
    """Shared memory lies below /dev and holds files like any other folder."""
    if path.startswith("/dev/shm/"):
        return False
    return path.startswith(places) or path + os.sep in places


def is_foreign_lock(path: str, project: tuple[str, ...]) -> bool:
    """An empty lock file of a cache: other programs take the same lock, so a copy of it would lock nobody out."""
    if not path.endswith(".lock") or path.startswith(project):
        return False
    try:
        facts = _lstat(path)
    except OSError:
        return False
    return stat.S_ISREG(facts.st_mode) and facts.st_size == 0

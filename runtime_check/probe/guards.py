"""The last line of the writes promise: nothing that was there before the launch is changed through Python.

An audit hook sees each file operation of the interpreter, whichever function made it. It refuses to change what was
there and notes in the journal what the launch makes. `redirect` stands before it: it sends such operations to copies,
so that the script can go on. Writers that bypass Python (HDF5, SQLite, C++) raise no audit event.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from _trainlint_probe import journal as places
from _trainlint_probe.journal import Journal, _is_there, absolute

_WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_TRUNC | os.O_APPEND | os.O_CREAT


class Guard:
    """What may be touched. `mode`: redirect (to copies), deny (an error), allow (nothing is guarded)."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.project = tuple(config.get("project", ()))
        self.mode = config.get("writes", "redirect")
        self.journal = Journal(os.path.join(config["run_dir"], "files"))
        self.exempt = places.exempt_places(os.path.abspath(config["run_dir"]), config.get("session_dir"))

    def is_exempt(self, path: str) -> bool:
        return places.is_exempt(path, self.exempt)

    def is_foreign_lock(self, path: str) -> bool:
        """It was there, is empty, and other programs lock it: opened for reading, which is enough to lock it."""
        return places.is_foreign_lock(path, self.project) and not self.journal.is_created(path)

    def was_there(self, path: str) -> bool:
        """Existed before the launch: on the disk, and not made by one of the launch's processes."""
        if not _is_there(path):
            return False
        self.journal.refresh()
        return not self.journal.is_created(path)

    def refuse(self, operation: str, path: str) -> None:
        self.journal.add("refused", path, operation)
        raise PermissionError(
            13,
            f"trainlint verify: {operation} refused, this path was there before the run (--writes={self.mode})",
            path,
        )


GUARD: Guard | None = None


def install(config: dict[str, Any]) -> None:
    global GUARD
    if config.get("writes") == "allow":
        return
    GUARD = Guard(config)
    if GUARD.mode == "redirect":
        from _trainlint_probe import redirect

        redirect.install(GUARD)
    sys.addaudithook(_audit)


def _audit(event: str, args: tuple[Any, ...]) -> None:
    watch = _WATCHED.get(event)
    if watch is not None and GUARD is not None:
        watch(GUARD, args)


def _place(path: Any, descriptor: Any, follow: bool) -> str | None:
    """The absolute path an event is about; None for what has no path (an open file)."""
    if not isinstance(path, (str, bytes, os.PathLike)):
        return None
    text = os.fsdecode(path)
    if isinstance(descriptor, int) and descriptor >= 0 and not os.path.isabs(text):
        folder = folder_of(descriptor)
        if folder is None:
            return None
        text = os.path.join(folder, text)
    return absolute(text, follow)


def folder_of(descriptor: int) -> str | None:
    """The path behind an open folder (`dir_fd=`): by /proc on Linux, by F_GETPATH on macOS."""
    try:
        if sys.platform == "darwin":
            import fcntl

            return fcntl.fcntl(descriptor, 50, b"\0" * 1024).rstrip(b"\0").decode()
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return None


def _on_open(guard: Guard, args: tuple[Any, ...]) -> None:
    path, mode, flags = args
    if isinstance(mode, str):
        writes = any(letter in mode for letter in "wax+")
    else:
        writes = isinstance(flags, int) and bool(flags & _WRITE_FLAGS)
    if not writes:
        return
    place = _place(path, None, True)
    if place is None or guard.is_exempt(place):
        return
    if not guard.was_there(place):
        if not _is_there(place):
            guard.journal.add("create", place)
        return
    if (isinstance(mode, str) and "x" in mode) or (isinstance(flags, int) and flags & os.O_EXCL and flags & os.O_CREAT):
        return  # fails by itself, as it should
    if os.path.isfile(place):
        guard.refuse("write", place)


def _on_make(guard: Guard, args: tuple[Any, ...]) -> None:
    place = _place(args[0], args[2] if len(args) > 2 else None, False)
    if place is not None and not guard.is_exempt(place) and not _is_there(place):
        guard.journal.add("create", place)


def _on_link(guard: Guard, args: tuple[Any, ...]) -> None:
    place = _place(args[1], args[-1], False)
    if place is not None and not guard.is_exempt(place) and not _is_there(place):
        guard.journal.add("create", place)


def _on_delete(guard: Guard, args: tuple[Any, ...]) -> None:
    place = _place(args[0], args[1] if len(args) > 1 else None, False)
    if place is None or guard.is_exempt(place):
        return
    if guard.was_there(place):
        guard.refuse("delete", place)
    elif place in guard.journal.created:
        guard.journal.add("forget", place)


def _on_rename(guard: Guard, args: tuple[Any, ...]) -> None:
    source = _place(args[0], args[2] if len(args) > 2 else None, False)
    target = _place(args[1], args[3] if len(args) > 3 else None, False)
    if source is not None and not guard.is_exempt(source) and guard.was_there(source):
        guard.refuse("rename", source)
    if target is not None and not guard.is_exempt(target):
        if guard.was_there(target):
            guard.refuse("overwrite", target)
        guard.journal.add("create", target)
    if source is not None and source in guard.journal.created:
        guard.journal.add("forget", source)


def _on_change(guard: Guard, args: tuple[Any, ...]) -> None:
    place = _place(args[0], None, True)
    if place is not None and not guard.is_exempt(place) and guard.was_there(place):
        guard.refuse("change", place)


def _on_command(guard: Guard, args: tuple[Any, ...]) -> None:
    """Other programs are not guarded; the report lists them."""
    command = args[1] if len(args) > 1 else args[0]
    if isinstance(command, (list, tuple)):
        command = " ".join(os.fsdecode(part) for part in command)
    text = os.fsdecode(command) if isinstance(command, (str, bytes)) else str(command)
    program = os.path.basename(text.split(" ", 1)[0])
    if not program.startswith("python"):  # those load the probe, and are guarded
        guard.journal.add("command", "", text[:200])


_WATCHED = {
    "open": _on_open,
    "os.mkdir": _on_make,
    "os.symlink": _on_link,
    "os.link": _on_link,
    "os.remove": _on_delete,
    "os.rmdir": _on_delete,
    "os.rename": _on_rename,
    "os.truncate": _on_change,
    "os.chmod": _on_change,
    "os.chown": _on_change,
    "os.utime": _on_change,
    "os.setxattr": _on_change,
    "subprocess.Popen": _on_command,
    "os.system": _on_command,
}

"""Edited text -> bytes -> file: the encoding it had, the notebook around it, and a write that cannot leave half a file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence

from trainlint.edits import changed
from trainlint.source import Source


class NotWritten(Exception):
    """The file stays as it was; says why."""


def encoded(data: bytes, source: Source, changes: Sequence[tuple[int, int, str]]) -> bytes:
    """The file with (start, end, content) changes of its text. Raises NotWritten."""
    if source.is_notebook:
        from trainlint.notebook_edits import NotFound, with_changes

        try:
            return with_changes(data, source, changes)
        except NotFound as error:
            raise NotWritten(str(error)) from None
    mark = b"\xef\xbb\xbf" if source.bom else b""
    try:
        if mark + source.text.encode(source.encoding) != data:
            raise NotWritten(f"its {source.encoding} text cannot be written back byte for byte")
        return mark + changed(source.text, changes).encode(source.encoding)
    except UnicodeError:
        raise NotWritten(f"the fix cannot be written in {source.encoding}") from None


def replace_file(path: str, before: bytes, after: bytes) -> None:
    """Puts a new file in the place of the old one, in one step: a kill at any moment leaves one or the other.

    Follows links to their target; keeps mode and, where that is allowed, owner. Raises NotWritten.
    """
    target = os.path.realpath(path)
    temporary = None
    try:
        status = os.stat(target)
        handle, temporary = tempfile.mkstemp(prefix=".trainlint-", suffix=".tmp", dir=os.path.dirname(target))
        with os.fdopen(handle, "wb") as file:
            file.write(after)
            file.flush()
            _keep_owner_and_mode(temporary, status)
            os.fsync(file.fileno())
        if not os.access(target, os.W_OK):
            raise NotWritten("it is write-protected")
        with open(target, "rb") as now:
            if now.read() != before:
                raise NotWritten("it has changed since it was read")
        os.replace(temporary, target)
        temporary = None
        _sync_folder(os.path.dirname(target))
    except OSError as error:
        raise NotWritten(error.strerror or str(error)) from None
    finally:
        if temporary is not None:
            try:
                os.unlink(temporary)
            except OSError:
                pass


def _keep_owner_and_mode(path: str, status: os.stat_result) -> None:
    if hasattr(os, "chown") and (status.st_uid, status.st_gid) != (os.getuid(), os.getgid()):
        try:
            os.chown(path, status.st_uid, status.st_gid)
        except OSError:
            pass
    os.chmod(path, status.st_mode & 0o7777)


def _sync_folder(folder: str) -> None:
    """So that the new name survives a power cut too. Windows cannot open folders."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

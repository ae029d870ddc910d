"""Bytes of a file -> `Source`: the text that the parsers get, and the way back from its rows to what the user sees."""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import accumulate
from typing import Any

from trainlint.records import NamedTuple

_NO_MASKS: Mapping[int, str] = {}


class NotChecked(Exception):
    """A file that cannot be read, decoded or parsed. Reported as TL000; never an internal fault.

    `row` and `column` are 1-based; in a notebook, `row` is that of the joined code cells.
    """

    def __init__(self, reason: str, row: int = 1, column: int = 1) -> None:
        super().__init__(reason)
        self.reason = reason
        self.row = row
        self.column = column


class Cell(NamedTuple):
    """A code cell of a notebook."""

    position: int  # 0-based, among all cells of the notebook
    row: int  # its first row in the joined text


class Source:
    """One file as text. Immutable.

    `text` keeps the newlines of the file; a byte order mark is taken off. For a notebook it is its code cells, one
    after the other, with what is not Python masked by text of the same length.
    """

    __slots__ = ("_row_starts", "bom", "cells", "encoding", "masked", "newline", "path", "text")

    path: str  # absolute, or "-" for standard input without a name
    text: str
    encoding: str  # a codec name; "utf-8" for a file that starts with a byte order mark (`bom` says so)
    newline: str  # the first one of the file: "\n", "\r\n" or "\r"; "\n" when it has none
    cells: tuple[Cell, ...]  # empty for anything but a notebook
    masked: Mapping[int, str]  # row -> the text that was masked there
    bom: bool

    def __init__(
        self,
        path: str,
        text: str,
        encoding: str = "utf-8",
        newline: str = "\n",
        cells: tuple[Cell, ...] = (),
        masked: Mapping[int, str] = _NO_MASKS,
        bom: bool = False,
    ) -> None:
        fill = object.__setattr__
        fill(self, "path", path)
        fill(self, "text", text)
        fill(self, "encoding", encoding)
        fill(self, "newline", newline)
        fill(self, "cells", cells)
        fill(self, "masked", masked)
        fill(self, "bom", bom)
        fill(self, "_row_starts", None)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Source does not change: {name}")

    def __reduce__(self) -> tuple[Any, ...]:
        """How it goes from one process to another."""
        fields = (self.path, self.text, self.encoding, self.newline, self.cells, self.masked, self.bom)
        return Source, fields

    def __repr__(self) -> str:
        return f"<source {self.path}>"

    @property
    def row_starts(self) -> tuple[int, ...]:
        """Offset of the first character of each row. Rows end where Python's tokenizer ends them: LF, CR LF or CR."""
        starts: tuple[int, ...] | None = self._row_starts  # type: ignore[attr-defined]
        if starts is None:
            starts = _row_starts(self.text)
            object.__setattr__(self, "_row_starts", starts)
        return starts

    def line(self, row: int) -> str:
        """Row `row` (1-based) as the user wrote it, without its newline; "" when there is no such row."""
        if row in self.masked:
            return self.masked[row]
        starts = self.row_starts
        if not 1 <= row <= len(starts):
            return ""
        end = starts[row] if row < len(starts) else len(self.text)
        return self.text[starts[row - 1] : end].rstrip("\r\n")

    def offset(self, row: int, column: int) -> int:
        """Offset into `text` of a 1-based place."""
        starts = self.row_starts
        if row > len(starts):
            return len(self.text)
        return min(starts[row - 1] + column - 1, len(self.text))

    @property
    def is_notebook(self) -> bool:
        return bool(self.cells)

    def cell_place(self, row: int) -> tuple[int | None, int]:
        """(cell, row within it), both 1-based, counted over the code cells; (None, row) when this is no notebook."""
        if not self.cells:
            return None, row
        number = 1
        for index, cell in enumerate(self.cells):
            if cell.row > row:
                break
            number = index + 1
        return number, row - self.cells[number - 1].row + 1

    def joined_row(self, cell: int, row: int) -> int:
        """The reverse of `cell_place`. Raises ValueError when the notebook has no such code cell."""
        if not 1 <= cell <= len(self.cells):
            raise ValueError(f"{self.path} has {len(self.cells)} code cells, not {cell}")
        return self.cells[cell - 1].row + row - 1


def read_source(path: str) -> Source:
    """Reads a Python file or a notebook. Raises NotChecked."""
    return decode(path, read_bytes(path))


def read_bytes(path: str) -> bytes:
    """Raises NotChecked with a reason that a person can act on."""
    try:
        if _never_ends(path):
            raise NotChecked("cannot be read: it is no regular file; hand its text over on standard input (path: -)")
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise NotChecked(unreadable(error)) from None


def _never_ends(path: str) -> bool:
    """A named pipe or a device, on which reading could wait for ever. What the shell or the caller opened may be read."""
    import stat

    mode = os.stat(path).st_mode
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
        return False
    return (stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)) and not path.startswith(("/dev/fd/", "/dev/stdin", "/proc/"))


def unreadable(error: OSError) -> str:
    """Why the system did not let us read something."""
    import errno

    if error.errno == errno.ELOOP:
        return "cannot be read: it is a symbolic link that leads back to itself"
    if error.errno in (errno.EACCES, errno.EPERM):
        return "cannot be read: permission denied"
    if error.errno == errno.ENOENT:
        return "cannot be read: no such file (a broken symbolic link?)"
    return f"cannot be read: {error.strerror or error}"


def decode(path: str, data: bytes) -> Source:
    """Bytes -> Source, by what Python itself does: byte order mark, coding cookie, else UTF-8. Raises NotChecked."""
    if path.endswith(".ipynb"):
        from trainlint.notebook import read_notebook

        return read_notebook(path, data)
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise NotChecked("is saved as UTF-16, which Python cannot read; save it as UTF-8")
    bom = data[:3] == b"\xef\xbb\xbf"
    if bom:
        data = data[3:]
    encoding = _declared_encoding(data)
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        row = data.count(b"\n", 0, error.start) + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        byte = data[error.start]
        raise NotChecked(
            f"byte 0x{byte:02x} is not {encoding.upper()}; save the file as UTF-8, or name its encoding in its first "
            "line (# -*- coding: ... -*-)",
            row,
            column,
        ) from None
    nul = text.find("\0")
    if nul >= 0:
        row = text.count("\n", 0, nul) + 1
        raise NotChecked("has a NUL byte, which Python source cannot hold", row, nul - text.rfind("\n", 0, nul))
    return Source(path, text, encoding, _first_newline(text), bom=bom)


# Names of codecs that are no encodings of a source; what they raise differs between versions of Python.
_NO_SOURCE = ("utf-16", "utf-32", "idna", "punycode", "undefined")


def _declared_encoding(data: bytes) -> str:
    """The encoding that a PEP 263 cookie in the first two lines names, else "utf-8". A wrong name raises NotChecked."""
    end = data.find(b"\n")
    end = data.find(b"\n", end + 1) if end >= 0 else -1
    head = data if end < 0 else data[: end + 1]
    if b"coding" not in head:
        return "utf-8"
    import codecs
    import re

    for row, line in enumerate(head.splitlines()[:2], 1):
        match = re.match(rb"[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)", line)
        if match:
            name = match[1].decode("ascii", "replace")
            try:
                found = codecs.lookup(name)
            except LookupError:
                raise NotChecked(f"names an unknown encoding: {name!r}", row, match.start(1) + 1) from None
            # What is no text encoding (rot13, hex), or leaves ASCII apart (UTF-16), Python refuses as well.
            if not getattr(found, "_is_text_encoding", True) or found.name.startswith(_NO_SOURCE):
                raise NotChecked(f"names an encoding that Python source cannot have: {name!r}", row, match.start(1) + 1)
            return "utf-8" if found.name.startswith("utf-8") else found.name
        if line.strip() and not line.lstrip().startswith(b"#"):
            break
    return "utf-8"


def _first_newline(text: str) -> str:
    lf = text.find("\n")
    cr = text.find("\r", 0, lf if lf >= 0 else len(text))
    if cr < 0:
        return "\n"
    return "\r\n" if cr + 1 == lf else "\r"


def _row_starts(text: str) -> tuple[int, ...]:
    if "\r" not in text:
        rows = text.split("\n")
        rows.pop()
        return tuple([end + count for count, end in enumerate(accumulate(map(len, rows), initial=0))])
    import re

    return (0, *(match.end() for match in re.finditer("\r\n?|\n", text)))

"""Colours of the terminal, or none."""

from __future__ import annotations

import os
from typing import IO

from trainlint.findings import Level

_LEVELS = {Level.ERROR: "1;31", Level.WARNING: "1;33", Level.ADVICE: "1;36", Level.OFF: "0"}


class Style:
    """Wraps text in escape codes, if `colored`."""

    def __init__(self, colored: bool) -> None:
        self.colored = colored

    def _wrap(self, code: str, text: str) -> str:
        return f"\033[{code}m{text}\033[0m" if self.colored and text else text

    def bold(self, text: str) -> str:
        return self._wrap("1", text)

    def dim(self, text: str) -> str:
        return self._wrap("2", text)

    def frame(self, text: str) -> str:
        return self._wrap("1;34", text)

    def good(self, text: str) -> str:
        return self._wrap("32", text)

    def added(self, text: str) -> str:
        return self._wrap("32", text)

    def removed(self, text: str) -> str:
        return self._wrap("31", text)

    def help(self, text: str) -> str:
        return self._wrap("1;36", text)

    def level(self, level: Level, text: str) -> str:
        return self._wrap(_LEVELS[level], text)

    def code(self, text: str) -> str:
        return self._wrap("36", text)


def wants_color(stream: IO[str]) -> bool:
    """NO_COLOR says no, FORCE_COLOR yes; else whether the stream is a terminal that can do it."""
    if os.environ.get("NO_COLOR"):
        return False
    force = os.environ.get("FORCE_COLOR")
    if force:
        return force != "0"
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def printable(text: str, stream: IO[str]) -> str:
    """`text` without what the stream's encoding lacks (a Windows console with cp1252): such characters are escaped."""
    encoding: str = getattr(stream, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.encode(encoding, "backslashreplace").decode(encoding)
    except LookupError:
        return text.encode("ascii", "backslashreplace").decode("ascii")
    return text

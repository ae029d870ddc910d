"""Regular expressions that are compiled when they are first used: to compile all that the model knows would take longer
than to check a small file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator


class Pattern:
    """As `re.compile(pattern, flags)`, for the methods that are used here."""

    __slots__ = ("_compiled", "flags", "pattern")

    def __init__(self, pattern: str, flags: int = 0) -> None:
        self.pattern = pattern
        self.flags = flags
        self._compiled: re.Pattern[str] | None = None

    def _ready(self) -> re.Pattern[str]:
        if self._compiled is None:
            self._compiled = re.compile(self.pattern, self.flags)
        return self._compiled

    def search(self, text: str) -> re.Match[str] | None:
        return self._ready().search(text)

    def match(self, text: str, start: int = 0) -> re.Match[str] | None:
        return self._ready().match(text, start)

    def fullmatch(self, text: str) -> re.Match[str] | None:
        return self._ready().fullmatch(text)

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        return self._ready().finditer(text)

    def findall(self, text: str) -> list[str]:
        return self._ready().findall(text)

    def split(self, text: str) -> list[str]:
        return [part or "" for part in self._ready().split(text)]

    def sub(self, replacement: str | Callable[[re.Match[str]], str], text: str) -> str:
        return self._ready().sub(replacement, text)


class BytesPattern:
    """As `Pattern`, for what is looked for in the bytes of files."""

    __slots__ = ("_compiled", "flags", "pattern")

    def __init__(self, pattern: bytes, flags: int = 0) -> None:
        self.pattern = pattern
        self.flags = flags
        self._compiled: re.Pattern[bytes] | None = None

    def _ready(self) -> re.Pattern[bytes]:
        if self._compiled is None:
            self._compiled = re.compile(self.pattern, self.flags)
        return self._compiled

    def search(self, data: bytes) -> re.Match[bytes] | None:
        return self._ready().search(data)

    def finditer(self, data: bytes) -> Iterator[re.Match[bytes]]:
        return self._ready().finditer(data)

    def findall(self, data: bytes) -> list[bytes]:
        return self._ready().findall(data)


Words = BytesPattern | re.Pattern[bytes]

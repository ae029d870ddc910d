"""Regular expressions that are compiled when they are first used: to compile all that the model knows would take longer
than to check a small file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import AnyStr, Generic


class Pattern(Generic[AnyStr]):
    """As `re.compile(pattern, flags)`, for the methods that are used here; of text, or of the bytes of files."""

    __slots__ = ("_compiled", "_words", "flags", "pattern")

    def __init__(self, pattern: AnyStr, flags: int = 0) -> None:
        self.pattern: AnyStr = pattern
        self.flags = flags
        self._compiled: re.Pattern[AnyStr] | None = None
        self._words: tuple[AnyStr, ...] | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pattern) and (self.pattern, self.flags) == (other.pattern, other.flags)

    def __hash__(self) -> int:
        return hash(self.pattern)

    def _ready(self) -> re.Pattern[AnyStr]:
        if self._compiled is None:
            self._compiled = re.compile(self.pattern, self.flags)
        return self._compiled

    def search(self, text: AnyStr) -> re.Match[AnyStr] | None:
        return self._ready().search(text)

    def match(self, text: AnyStr, start: int = 0) -> re.Match[AnyStr] | None:
        return self._ready().match(text, start)

    def fullmatch(self, text: AnyStr) -> re.Match[AnyStr] | None:
        return self._ready().fullmatch(text)

    def finditer(self, text: AnyStr) -> Iterator[re.Match[AnyStr]]:
        return self._ready().finditer(text)

    def findall(self, text: AnyStr) -> list[AnyStr]:
        return self._ready().findall(text)

    def split(self, text: AnyStr) -> list[AnyStr]:
        return [part or self.pattern[:0] for part in self._ready().split(text)]

    def sub(self, replacement: AnyStr | Callable[[re.Match[AnyStr]], AnyStr], text: AnyStr) -> AnyStr:
        return self._ready().sub(replacement, text)

    def stands_in(self: Pattern[bytes], data: bytes) -> bool:
        """Whether `search` finds anything. Of plain words alone (`BCELoss|binary_cross_entropy`) that is found some ten times
        faster without a regular expression."""
        if self._words is None:
            plain = not self.flags and self.pattern.translate(None, b"_|").isalnum()
            self._words = tuple(self.pattern.split(b"|")) if plain else ()
        if self._words:
            return any(word in data for word in self._words)
        return self.search(data) is not None


Words = Pattern[bytes]

"""Error messages and warnings that people meet, with the rules that find their cause: `errors.json`.

A row has `texts`, pieces of a message of which one must occur (`*` stands for anything on the way), `codes`, the likeliest
first, and `remedy`, one line.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

from trainlint.records import NamedTuple


class KnownError(NamedTuple):
    texts: tuple[str, ...]
    codes: tuple[str, ...]
    remedy: str

    def matches(self, message: str) -> int:
        """How much of the message the longest piece that occurs in it covers; 0 for none."""
        return max((len(t) for t in self.texts if _pattern(t).search(message)), default=0)


@cache
def known_errors() -> tuple[KnownError, ...]:
    rows = json.loads((Path(__file__).parent / "errors.json").read_text(encoding="utf-8"))
    return tuple(KnownError(tuple(row["texts"]), tuple(row["codes"]), row["remedy"]) for row in rows)


def find(message: str) -> list[KnownError]:
    """The rows that fit a message or a whole traceback, the longest match first."""
    plain = " ".join(message.split())
    found = [(error.matches(plain), error) for error in known_errors()]
    return [error for length, error in sorted(found, key=lambda pair: -pair[0]) if length]


@cache
def _pattern(text: str) -> re.Pattern[str]:
    parts = [re.escape(" ".join(part.split())).replace("'", "['\"`\u2018\u2019]") for part in text.split("*")]
    return re.compile(".{0,80}?".join(parts), re.IGNORECASE)

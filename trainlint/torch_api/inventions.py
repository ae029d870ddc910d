"""Names that advice on the web and language models give and no torch ever had, with what was meant: `inventions.json`.

The table of names would report them as well; this list knows what to write instead.
"""

from __future__ import annotations

from functools import cache

from trainlint.records import NamedTuple
from trainlint.torch_api.files import text_of


class Invention(NamedTuple):
    """What was meant: full names of torch or torchvision, and a note where a name alone does not say it."""

    instead: tuple[str, ...]
    note: str = ""


@cache
def inventions() -> dict[str, Invention]:
    """Invented full names and what to use for them."""
    import json  # costs 2 ms, and most runs never ask

    rows = json.loads(text_of("inventions.json"))
    return {name: Invention(tuple(row["instead"]), row.get("note", "")) for name, row in rows.items()}

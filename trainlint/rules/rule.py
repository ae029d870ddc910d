"""What every rule is made of.

A rule reads facts and answers of the semantic model, and yields hits. It never walks a tree and never opens a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, ClassVar

from trainlint.findings import Claim, Level
from trainlint.records import NamedTuple

if TYPE_CHECKING:
    from trainlint.rewriting import Change, Site
    from trainlint.semantic.facts import Record
    from trainlint.semantic.script import Script


class Note(NamedTuple):
    """A related place: the loop that makes a line hot, the call that leads there. It may lie in another file."""

    record: Record
    message: str


class Rewrite(NamedTuple):
    """How a hit can be repaired. `edit` gets the `Site` of the libcst node once that is there; see `trainlint.rewriting`."""

    safe: bool
    message: str  # what it does: "Pass `pin_memory=True`"
    edit: Callable[[Site], Iterable[Change]]
    at: Record | None = None  # what it works on, if not the hit's own record
    instead: Rewrite | None = None  # what --unsafe-fixes writes instead of this safe one
    others: tuple[Record, ...] = ()  # what else it works on: `Site.of(record)`


class Hit(NamedTuple):
    """What a rule found, before it has a position. `until` ends the range when it covers more than `record`."""

    record: Record
    values: dict[str, str]  # for the message template
    level: Level | None = None  # None: the rule's usual level
    notes: tuple[Note, ...] = ()
    until: Record | None = None
    rewrite: Rewrite | None = None
    why: str | None = None  # when it differs from the rule's usual line
    help: str | None = None


class Rule:
    """One rule. The docstring of a subclass is its manual page (`trainlint rule CODE`)."""

    code: ClassVar[str]
    name: ClassVar[str]
    level: ClassVar[Level]
    claim: ClassVar[Claim] = Claim.NONE
    message: ClassVar[str]  # a template, so that it can be translated: filled with the hit's `values`
    why: ClassVar[str]  # what it costs, one line
    help: ClassVar[str]  # what to write instead, one line; may use the hit's `values`
    # Byte strings, by groups: a file can only have a finding if for one group all of its strings stand in it.
    triggers: ClassVar[tuple[tuple[bytes, ...], ...]] = ()
    # Byte strings of which one must stand in the file too, or in a file that it hangs together with by imports.
    near: ClassVar[tuple[bytes, ...]] = ()
    preview: ClassVar[bool] = False
    # Hits on different rows of a statement (the layers of a `Sequential`) are findings of their own.
    by_row: ClassVar[bool] = False

    def check(self, script: Script) -> Iterator[Hit]:
        raise NotImplementedError

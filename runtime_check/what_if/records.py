"""What passes between the candidates of `--try`, their measurement and the report. Frozen records."""

from __future__ import annotations

from dataclasses import dataclass, field

from runtime_check.compare.records import Decision, Proposal

NAMES = (
    "amp",
    "workers",
    "persistent-workers",
    "prefetch-factor",
    "pin-memory",
    "compile",
    "channels-last",
    "fused",
    "tf32",
    "batch-size",
    "checkpoint",
    "cudnn-benchmark",
    "no-grad",
    "no-sync",
    "ddp",
)


@dataclass(frozen=True)
class Edit:
    """Lines that a candidate would change: what stands there now, if that is known, and what would."""

    file: str
    line: int
    now: str | None
    instead: str


@dataclass(frozen=True)
class Candidate:
    """One candidate: the questions that measure it, or why it is not run here."""

    name: str  # as `--try` takes it
    title: str  # "AMP (bfloat16)", "num_workers=2"
    time: Proposal | None = None
    memory: Proposal | None = None
    reason: str | None = None  # not run here, because ...
    edits: tuple[Edit, ...] = ()
    remark: str | None = None  # what a number alone does not say

    @property
    def proposals(self) -> tuple[Proposal, ...]:
        return tuple(proposal for proposal in (self.time, self.memory) if proposal is not None)


def not_run(name: str, title: str, reason: str) -> list[Candidate]:
    return [Candidate(name, title, reason=reason)]


@dataclass(frozen=True)
class Row:
    """A candidate with what was measured."""

    candidate: Candidate
    time: Decision | None = None
    memory: Decision | None = None

    @property
    def speedup(self) -> tuple[float, float, float] | None:
        """How many times as fast, with its interval."""
        effect = self.time.effect if self.time is not None else None
        if effect is None:
            return None
        return _times(effect.saving), _times(effect.low), _times(effect.high)

    @property
    def memory_change(self) -> tuple[float, float, float] | None:
        """Share of the peak that is added (negative: saved), with its range."""
        effect = self.memory.effect if self.memory is not None else None
        return None if effect is None else (-effect.saving, -effect.high, -effect.low)

    @property
    def measured(self) -> bool:
        return self.speedup is not None or self.memory_change is not None


@dataclass(frozen=True)
class WhatIf:
    """The ranked table: what was measured, most gain first, and what was not run."""

    rows: tuple[Row, ...] = ()
    asked: tuple[str, ...] = field(default=())


def _times(saving: float) -> float:
    return 1.0 / (1.0 - saving) if saving < 1.0 else float("inf")

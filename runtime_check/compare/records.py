"""What passes between planning, measuring and deciding. Frozen records; anything that measures can be built on them.

A new kind of experiment makes `Samples` (or an `Effect` of its own) for a `Proposal`; `verdicts` does the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from runtime_check.evidence import Verdict
from runtime_check.findings import Finding


class Design(str, Enum):
    """How two arms are compared."""

    TOGGLE = "toggle"  # switched between blocks of steps inside one process
    PAIRS = "pairs"  # two live processes in lockstep
    MEMORY = "memory"  # two runs, bytes counted
    SEQUENTIAL = "sequential"  # whole launches one after the other, where lockstep cannot be (several ranks)


@dataclass(frozen=True)
class Change:
    """One change to the user's run, as data: what the probe applies in arm B.

    `kind` names an intervention of `probe/interventions.py`, or "source" for fixed text that the overlay serves.
    `rows` are the first and last line in `file` where it takes effect; None: everywhere.
    """

    kind: str
    title: str  # "without gc.collect()", "num_workers=2": completes "costs", "saves"
    file: str | None = None
    rows: tuple[int, int] | None = None
    parameters: dict[str, Any] = field(default_factory=dict)
    overlay: dict[str, str] = field(default_factory=dict)  # path -> fixed text, for kind "source"

    def for_probe(self) -> dict[str, Any]:
        return {"kind": self.kind, "file": self.file, "rows": self.rows, **self.parameters}


@dataclass(frozen=True)
class Proposal:
    """A comparison that would answer a finding (or, without one, a question)."""

    change: Change
    design: Design
    metric: str  # step_time, train_peak_bytes, eval_peak_bytes, growth_per_step, growth_per_eval_batch
    gain: float = 1.0  # bound on what it can save, as a share; the planner spends on the largest first
    finding: Finding | None = None
    upper_bound: bool = False  # arm B leaves out more than a fix could: the effect bounds the gain
    block: int = 1  # a block of a pair has a multiple of so many steps: more than workers hold ready, or an epoch
    computes: bool = False  # other text, but it only computes otherwise: on-CPU time tells, on a busy machine

    @property
    def key(self) -> str:
        place = f"{self.change.file}:{self.change.rows}" if self.change.rows else ""
        return f"{self.change.kind}|{place}|{sorted(self.change.parameters.items())}|{self.metric}"


@dataclass(frozen=True)
class Samples:
    """What one design measured for one proposal: a log ratio (arm B over arm A) for each process or pair."""

    proposal: Proposal
    log_ratios: tuple[float, ...]
    a: float  # the metric in arm A and B: medians over the replicates
    b: float
    unit: str  # ms, bytes
    rounds: int  # ABBA rounds of all replicates together
    clock: str = "wall"  # or "on-CPU"
    seconds_each: float = 0.0  # what one more replicate costs
    failure: str | None = None  # why there is nothing to decide from
    a_each: tuple[float, ...] = ()  # the metric in both arms, for each replicate
    b_each: tuple[float, ...] = ()


@dataclass(frozen=True)
class Effect:
    """What the change saves, as a share of the metric in arm A; negative: it costs. With its interval."""

    metric: str
    design: Design
    a: float
    b: float
    unit: str
    saving: float
    low: float
    high: float
    confidence: float
    replicates: int
    rounds: int
    clock: str
    p_value: float | None = None  # of "it saves less than the least that counts"
    savings: tuple[float, ...] = ()  # of each replicate
    a_each: tuple[float, ...] = ()  # the metric in each replicate or run of the arms
    b_each: tuple[float, ...] = ()


@dataclass(frozen=True)
class Decision:
    """The answer of a comparison."""

    proposal: Proposal
    verdict: Verdict
    why: str
    effect: Effect | None = None
    settle: str | None = None  # what would make an inconclusive answer conclusive


@dataclass(frozen=True)
class Noise:
    """How much the machine moved while nothing was changed."""

    load: float | None
    cpus: int
    null_half_width: float | None = None  # of the toggle's empty slot, as a share of step time
    null_saving: float | None = None
    clock: str = "wall"
    threads: int | None = None  # set by us, since the machine was busy
    biased: bool = False  # the empty slot itself seemed to change something: no toggle verdict is given


@dataclass(frozen=True)
class Comparisons:
    """All that the comparing half of one `verify` has to say."""

    decisions: tuple[Decision, ...] = ()
    noise: Noise | None = None
    seconds: float = 0.0
    budget_s: float = 0.0

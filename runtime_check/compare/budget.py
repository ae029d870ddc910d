"""What a budget is spent on: the findings with the most to gain first. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from runtime_check.compare.memory import RUNS
from runtime_check.compare.records import Decision, Design, Proposal
from runtime_check.compare.sizes import Pace, Size, pair_cost_s, pair_size, sequential_cost_s, toggle_size
from runtime_check.compare.verdicts import FEWEST
from runtime_check.evidence import Verdict

MOST_REPLICATES = 8  # more than the five only where the first looks left something open
BLOCKS_ON_ACCELERATOR = (20, 40)  # the estimate is repeated at twice the length


@dataclass(frozen=True)
class Planned:
    """One experiment that is paid for: the toggles together, or one pair or memory comparison."""

    design: Design
    proposals: tuple[Proposal, ...]
    size: Size
    replicate_s: float
    replicates: int

    @property
    def cost_s(self) -> float:
        return self.replicate_s * self.replicates

    @property
    def gain(self) -> float:
        return sum(proposal.gain for proposal in self.proposals)


@dataclass(frozen=True)
class Spending:
    planned: tuple[Planned, ...]
    left_out: tuple[tuple[Proposal, float], ...]  # with the seconds that each would take


def bounded(proposal: Proposal, delta: float) -> Decision | None:
    """The cheap exit: what bounds the gain is too small to be worth a run."""
    if proposal.gain >= delta / 2:
        return None
    title = proposal.change.title
    why = f"{title} could save at most {proposal.gain:.1%} of the step: what it speeds up takes no more of it"
    return Decision(proposal, Verdict.REFUTED, why)


def spend(proposals: Sequence[Proposal], pace: Pace, memory_s: float, budget_s: float) -> Spending:
    """First the least that answers each, by gain; what is left then goes into more rounds and more replicates."""
    toggles = _by_gain(p for p in proposals if p.design is Design.TOGGLE)
    others = _by_gain(p for p in proposals if p.design is not Design.TOGGLE)
    left = budget_s
    left_out: list[tuple[Proposal, float]] = []
    chosen: list[Planned] = []
    queue: list[tuple[float, tuple[Proposal, ...]]] = [(p.gain, (p,)) for p in others]
    if toggles:
        # They share their processes: one experiment answers all of them, and all of them stand to gain.
        queue.append((sum(toggle.gain for toggle in toggles), tuple(toggles)))
    for _, group in sorted(queue, key=lambda entry: -entry[0]):
        kept = group
        planned = least(kept, pace, memory_s)
        while planned.cost_s > left and len(kept) > 1:  # fewer findings share the processes
            kept = kept[:-1]
            planned = least(kept, pace, memory_s)
        if planned.cost_s > left:
            left_out += [(proposal, planned.cost_s) for proposal in group]
            continue
        left_out += [(proposal, least((proposal,), pace, memory_s).cost_s) for proposal in group[len(kept) :]]
        chosen.append(planned)
        left -= planned.cost_s
    return Spending(tuple(_with_more(chosen, pace, left)), tuple(left_out))


def _by_gain(proposals: object) -> list[Proposal]:
    return sorted(proposals, key=lambda proposal: -proposal.gain)  # type: ignore[call-overload,no-any-return]


def least(group: tuple[Proposal, ...], pace: Pace, memory_s: float) -> Planned:
    """The smallest experiment that gives an answer."""
    return _sized(group, pace, memory_s, seconds=0.0)


def _sized(group: tuple[Proposal, ...], pace: Pace, memory_s: float, seconds: float) -> Planned:
    design = group[0].design
    if design is Design.TOGGLE:
        size = toggle_size(pace, len(group) + 1, seconds)
        each = size.cost_s(pace)
        if pace.cuda:  # each replicate is one launch at each block length
            longer = toggle_size(pace, len(group) + 1, seconds, BLOCKS_ON_ACCELERATOR[1])
            each += longer.cost_s(pace)
        return Planned(design, group, size, each, FEWEST)
    if design is Design.PAIRS:
        size = pair_size(pace, seconds, group[0].block)
        return Planned(design, group, size, pair_cost_s(size, pace), FEWEST)
    if design is Design.SEQUENTIAL:
        return Planned(design, group, Size(pace.steps, 1, 0.0), sequential_cost_s(pace.steps, pace), FEWEST)
    return Planned(design, group, Size(0, 0, 0.0), memory_s, 2 * RUNS - 1)  # one run of arm A is there already


def _with_more(chosen: list[Planned], pace: Pace, left: float) -> list[Planned]:
    """Spread what is left over the timed experiments: rounds first, up to their most, then replicates."""
    timed = [planned for planned in chosen if planned.design is not Design.MEMORY]
    if not timed:
        return chosen
    share = left / len(timed)
    grown = []
    for planned in chosen:
        if planned.design is Design.MEMORY:
            grown.append(planned)
            continue
        measuring = planned.replicate_s - pace.until_measuring_s + share / FEWEST
        larger = _sized(planned.proposals, pace, 0.0, measuring)
        if larger.cost_s > planned.cost_s + share:
            larger = planned
        spare = planned.cost_s + share - larger.cost_s
        more = min(MOST_REPLICATES - FEWEST, int(spare / larger.replicate_s)) if larger.replicate_s > 0 else 0
        grown.append(Planned(larger.design, larger.proposals, larger.size, larger.replicate_s, FEWEST + more))
    return grown

"""The comparing half of one `verify`: proposals in, decisions out, within a budget.

Nothing here knows of findings: a question without one (`Proposal.finding` is None) is measured in the same way.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from runtime_check import machine
from runtime_check.compare.budget import BLOCKS_ON_ACCELERATOR, Planned, Spending, bounded, least, spend
from runtime_check.compare.memory import Memory
from runtime_check.compare.pairs import Pairs, supported
from runtime_check.compare.records import Comparisons, Decision, Design, Noise, Proposal, Samples
from runtime_check.compare.sequential import Sequential
from runtime_check.compare.sizes import Pace, toggle_size
from runtime_check.compare.toggle import Toggles
from runtime_check.compare.verdicts import FEWEST, decide, duration, effect_of, holm, settled
from runtime_check.evidence import Evidence, Verdict
from runtime_check.launch import Outcome, Session

WAITS_LITTLE = 0.10  # of the step for data: only then is on-CPU time the script's time
SPARE_S = 10.0  # of the whole run's timeout, kept for the end

#: A decision, and the ratios that it rests on.
Found = tuple[Decision, Samples]

#: Shows what is being done: (what, done, of).
Show = Callable[[str, int, int], None]


class Timed(Protocol):
    """What `Toggles`, `Pairs` and `Sequential` have in common. Another design that gives replicates has it too."""

    outcomes: list[Outcome]

    def replicate(self) -> None: ...

    def samples(self) -> list[Samples]: ...


@dataclass
class Compared:
    """Decisions in the order in which they fell, and the launches that they rest on."""

    comparisons: Comparisons
    outcomes: list[Outcome] = field(default_factory=list)


def compare(
    session: Session, evidence: Evidence, proposals: Sequence[Proposal], budget_s: float, show: Show | None = None
) -> Compared:
    """Measure `proposals`, those with most to gain first, until `budget_s` seconds are spent."""
    return _Comparing(session, evidence, budget_s, show or (lambda what, done, of: None)).run(proposals)


class _Comparing:
    def __init__(self, session: Session, evidence: Evidence, budget_s: float, show: Show) -> None:
        self.session = session
        self.evidence = evidence
        self.delta = evidence.min_effect
        self.show = show
        self.begun = time.monotonic()
        self.budget_s = min(budget_s, max(0.0, session.left_s() - SPARE_S))
        self.outcomes: list[Outcome] = []
        self.timed: list[Found] = []
        self.others: list[Decision] = []
        self.unchanged: list[Outcome] = []
        self.noise = Noise(None, machine.usable_cpus())
        self.too_much: str | None = None  # two runs side by side have been tried, and do not fit

    def run(self, proposals: Sequence[Proposal]) -> Compared:
        open_: list[Proposal] = []
        for proposal in map(self._feasible, proposals):
            decision = bounded(proposal, self.delta) or _not_in_turn(proposal)
            if decision is not None:
                self.others.append(decision)
            else:
                open_.append(proposal)
        pace = pace_of(self.evidence)
        if open_ and pace is not None:
            self._measure(open_, pace)
        spent = time.monotonic() - self.begun
        return Compared(Comparisons(tuple(self._decisions()), self.noise, spent, self.budget_s), self.outcomes)

    def _feasible(self, proposal: Proposal) -> Proposal:
        """Two runs in lockstep need Linux or macOS, and one rank; else whole launches follow each other."""
        result = self.evidence.first(self.evidence.timed)
        several = result is not None and result["world"] > 1
        if proposal.design is Design.PAIRS and (several or not supported()):
            return replace(proposal, design=Design.SEQUENTIAL)
        return proposal

    def _measure(self, proposals: Sequence[Proposal], pace: Pace) -> None:
        options = self.session.options
        load = machine_load()
        busy = load is not None and load > machine.usable_cpus()
        if busy and options.threads is None:
            # Two OpenMP threads on a busy machine wait for each other by spinning, in multiples of the time slice.
            self.session.options = replace(options, threads=1)
            self.noise = replace(self.noise, threads=1)
        clock = self._clock(busy)
        self.noise = replace(self.noise, load=load, clock=clock)
        try:
            self._spend(proposals, pace, clock)
        finally:
            self.session.options = options

    def _spend(self, proposals: Sequence[Proposal], pace: Pace, clock: str) -> None:
        """What was settled early, or gave up, leaves budget for what did not fit at first."""
        memory = self.evidence.memory
        memory_s = memory.wall_s if memory is not None else 60.0
        while True:
            left = self.budget_s - (time.monotonic() - self.begun)
            spending = spend(proposals, pace, memory_s, left)
            for planned in sorted(spending.planned, key=lambda planned: -planned.gain):
                self._experiment(planned, pace, clock)
            proposals = [proposal for proposal, _ in spending.left_out]
            if not proposals or not spending.planned:
                self._leave_out(spending)
                return

    def _clock(self, busy: bool) -> str:
        timing = self.evidence.timing
        waits_little = timing is not None and timing.wait_share < WAITS_LITTLE
        result = self.evidence.first(self.evidence.timed)
        alone = result is not None and result["world"] == 1  # a rank that waits for its peers is not on the CPU
        return "on-CPU" if busy and waits_little and alone and not self.evidence.cuda else "wall"

    def _experiment(self, planned: Planned, pace: Pace, clock: str) -> None:
        if planned.design is Design.MEMORY:
            self._count(planned.proposals[0])
            return
        if planned.design is Design.PAIRS:
            # What workers and changed imports do is not on this process's CPU time alone.
            wall = planned.proposals[0].change.kind in ("loader", "source") and not planned.proposals[0].computes
            found = self._pairs(planned, pace, "wall" if wall else clock)
        elif planned.design is Design.SEQUENTIAL:
            found = self._replicate(planned, Sequential(self.session, planned.proposals[0]))
        else:
            found = self._toggle(planned, pace, clock)
        self.timed += found
        if not found:
            self.others += [out_of_budget(proposal, planned.cost_s) for proposal in planned.proposals]

    def _pairs(self, planned: Planned, pace: Pace, clock: str) -> list[Found]:
        """Where memory does not hold two runs side by side, they go one after the other, and that is said."""
        if self.too_much is None:
            experiment = Pairs(self.session, planned.proposals[0], planned.size, clock)
            found = self._replicate(planned, experiment)
            self.too_much = experiment.too_much
            if self.too_much is None or any(decision.effect is not None for decision, _ in found):
                return found
        proposal = replace(planned.proposals[0], design=Design.SEQUENTIAL)
        refused = _not_in_turn(proposal)
        if refused is not None:
            return [(refused, Samples(proposal, (), 0.0, 0.0, "ms", 0, failure=refused.why))]
        in_turn = least((proposal,), pace, 0.0)
        found = self._replicate(in_turn, Sequential(self.session, proposal))
        return [(replace(decision, why=f"{decision.why}; {self.too_much}"), samples) for decision, samples in found]

    def _toggle(self, planned: Planned, pace: Pace, clock: str) -> list[Found]:
        toggles = Toggles(self.session, planned.proposals, planned.size, clock)
        found = self._replicate(planned, toggles)
        if found and pace.cuda:
            longer = toggle_size(pace, len(planned.proposals) + 1, 0.0, BLOCKS_ON_ACCELERATOR[1])
            again = self._replicate(planned, Toggles(self.session, planned.proposals, longer, clock))
            found = [agreeing(one, again[n] if again else None) for n, one in enumerate(found)]
        null = toggles.null()
        if len(null.log_ratios) >= 2:
            effect = effect_of(null, self.delta)
            half = (effect.high - effect.low) / 2
            biased = effect.low > self.delta or effect.high < -self.delta
            self.noise = replace(self.noise, null_half_width=half, null_saving=effect.saving, biased=biased)
            if biased:
                found = [distrusted(one) for one in found]
        return found

    def _replicate(self, planned: Planned, experiment: Timed) -> list[Found]:
        """At least five replicates. Looks before the last one use 99 %."""
        made, failures = 0, 0
        decisions: list[Decision] = []
        samples: list[Samples] = []
        while made < planned.replicates and self._time_for(planned):
            titles = ", ".join(proposal.change.title for proposal in planned.proposals)
            label = f"{planned.design.value}: {titles}"
            self.show(label, made, planned.replicates)
            experiment.replicate()
            made += 1
            samples = experiment.samples()
            failures += all(one.failure is not None for one in samples)
            if failures >= 2:
                break  # the change cannot be made here
            if FEWEST <= made < planned.replicates:
                decisions = decide(samples, self.delta, last_look=False)
                if settled(decisions):
                    break
                decisions = []
        decisions = decisions or decide(samples, self.delta)
        self.outcomes += experiment.outcomes
        return list(zip(decisions, samples, strict=True))

    def _time_for(self, planned: Planned) -> bool:
        """The whole run's timeout is hard; the budget was spent in planning, and may be overrun by half."""
        spent = time.monotonic() - self.begun
        return self.session.left_s() > SPARE_S + planned.replicate_s and spent < 1.5 * self.budget_s

    def _count(self, proposal: Proposal) -> None:
        memory = self.evidence.memory
        baseline = self.unchanged or ([memory] if memory is not None else [])
        counted = Memory(self.session, proposal, baseline)
        while not counted.complete and self.session.left_s() > SPARE_S:
            self.show(f"memory: {proposal.change.title}", len(counted.a) + len(counted.b), 4)
            self.outcomes.append(counted.replicate())
            if counted.failure() is not None:
                break
        self.unchanged = counted.a  # runs as it is serve all memory comparisons
        self.others.append(counted.decide(self.delta))

    def _leave_out(self, spending: Spending) -> None:
        for proposal, cost_s in spending.left_out:
            self.others.append(out_of_budget(proposal, cost_s))

    def _decisions(self) -> list[Decision]:
        """Holm once more, over all that was timed in this run."""
        timed = holm([d for d, _ in self.timed], [s for _, s in self.timed], self.delta)
        return [*timed, *self.others]


def _not_in_turn(proposal: Proposal) -> Decision | None:
    """Whole launches are compared by their plain steps: the start of an epoch is in none of them."""
    options = proposal.change.parameters.get("options", ())
    if proposal.design is not Design.SEQUENTIAL or "persistent_workers" not in options:
        return None
    why = f"{proposal.change.title} is compared over whole epochs, with two runs side by side: not possible here"
    return Decision(proposal, Verdict.NOT_RUN, why)


def agreeing(short: Found, long: Found | None) -> Found:
    """On an accelerator: verdicts at both block lengths must be the same. None: there was no time for the second."""
    decision, samples = short
    if decision.effect is None or (long is not None and decision.verdict is long[0].verdict):
        return short
    other = long[0].why if long is not None else "not measured, the time was up"
    why = f"{decision.why}; with blocks twice as long: {other}"
    return replace(decision, verdict=Verdict.INCONCLUSIVE, why=why, settle="a longer --budget"), samples


def distrusted(found: Found) -> Found:
    """The empty slot changed nothing and yet seemed to: no verdict of these processes is to be trusted."""
    decision, samples = found
    if decision.effect is None:
        return found
    why = f"{decision.why}; but a change of nothing seemed to matter too: the machine moved too much to tell"
    return replace(decision, verdict=Verdict.INCONCLUSIVE, why=why, settle="a quieter machine"), samples


def out_of_budget(proposal: Proposal, cost_s: float) -> Decision:
    why = f"{proposal.change.title} was not compared: it would take about {duration(cost_s)} (--budget)"
    return Decision(proposal, Verdict.NOT_RUN, why)


def pace_of(evidence: Evidence) -> Pace | None:
    """None when the timing pass gave no step."""
    timing, result = evidence.timing, evidence.first(evidence.timed)
    if timing is None or result is None or evidence.timed is None:
        return None
    loaders = [loader for loader in result.get("loaders", ()) if loader["role"] == "train"]
    prefetched = max((loader["workers"] * loader.get("prefetch_factor", 2) for loader in loaders), default=0)
    made_s = (result["boundaries_ns"][-1] - result["boundaries_ns"][0]) / 1e9
    startup = max(result["startup_s"] or 0.0, evidence.timed.wall_s - made_s)
    return Pace(
        step_s=timing.median_ms / 1e3,
        startup_s=startup,
        warmup=int(result["warmup"]),
        cuda=evidence.cuda,
        prefetched=prefetched,
        steps=max(1, len(result["boundaries_ns"]) - 1 - int(result["warmup"])),
    )


def machine_load() -> float | None:
    try:
        return os.getloadavg()[0]
    except (OSError, AttributeError):
        return None

"""Toggle experiments: all of them share the same processes, and one launch gives one replicate for each."""

from __future__ import annotations

from collections.abc import Sequence

from runtime_check.compare.records import Change, Design, Proposal, Samples
from runtime_check.compare.replicates import Replicate, replicate, toggle_rounds
from runtime_check.compare.sizes import Size
from runtime_check.launch import Outcome, Pass, Session
from runtime_check.measures import steps_done
from runtime_check.statistics import median

NULL = Proposal(Change("nothing", "nothing"), Design.TOGGLE, "step_time", gain=0.0)
WITHOUT_END = 2**31  # steps: the schedule ends the run, not the clock


class Toggles:
    """`replicate` launches once more; `samples` says what is known so far, `null` what the empty slot showed.

    A change with which the script fails is left out of the launches that follow, so that the others get an answer.
    """

    def __init__(self, session: Session, proposals: Sequence[Proposal], size: Size, clock: str) -> None:
        self.session = session
        self.proposals = tuple(proposals)
        self.size = size
        self.clock = clock
        self.outcomes: list[Outcome] = []
        self._seconds: list[float] = []
        self._failing: dict[int, str] = {}  # slot -> the script's error
        self._whole: list[Outcome] = []  # replicates: without launches that a change made fail

    def replicate(self) -> None:
        swapped = len(self._whole) % 2 == 1
        while True:
            outcome = self.session.launch(Pass("toggle", extra=self._configuration(swapped)))
            self.outcomes.append(outcome)
            slot = failing_slot(outcome)
            if not slot or slot in self._failing:
                break
            error = outcome.errors[0]
            said = (str(error["message"]).splitlines() or [""])[0]
            self._failing[slot] = f"the script fails with it: {error['type']}: {said[:160]}"
        self._whole.append(outcome)
        self._seconds.append(outcome.wall_s)

    def _configuration(self, swapped: bool) -> dict[str, object]:
        slots = [
            [],
            *(
                [] if slot in self._failing else [proposal.change.for_probe()]
                for slot, proposal in enumerate(self.proposals, 1)
            ),
        ]
        toggle = {
            "slots": slots,
            "block": self.size.block,
            "rounds": self.size.rounds,
            "seconds": self.size.seconds,
            "swapped": swapped,
        }
        return {
            "toggle": toggle,
            "steps": WITHOUT_END,
            "limit_eval_batches": self.session.options.limit_eval_batches,
        }

    def samples(self) -> list[Samples]:
        return [self._samples(proposal, slot) for slot, proposal in enumerate(self.proposals, 1)]

    def null(self) -> Samples:
        return self._samples(NULL, 0)

    def _samples(self, proposal: Proposal, slot: int) -> Samples:
        found: list[Replicate] = []
        failure: str | None = None
        if slot in self._failing:
            failure = f"{proposal.change.title}: {self._failing[slot]}"
        for outcome in self._whole:
            for result in outcome.results[:1]:
                facts = result.get("toggle", {}).get("slots", ())
                if slot >= len(facts):
                    continue
                failure = failure or why_no_effect(proposal, facts[slot])
                one = replicate(toggle_rounds(result, slot), self.clock)
                if one is not None:
                    found.append(one)
        if not found and slot not in self._failing and self._whole:
            failure = self._ended_early() or failure
        if not any(outcome.stepped for outcome in self._whole) and self._whole:
            failure = "the script made no step with the change in place"
        return samples_of(proposal, found, self.clock, median(self._seconds), failure if slot else None)

    def _ended_early(self) -> str | None:
        """Of a script that came to its end before one round of each change: neither the change nor the budget is why."""
        results = [result for outcome in self._whole for result in outcome.results[:1]]
        if not results or any(result["why"] != "script_ended" for result in results):
            return None
        blocks = 4 * (len(self.proposals) + 1) * 2  # of all slots: a turn that does not count, and one that does
        needed = self.session.options.warmup + 1 + blocks * self.size.block
        made = max(steps_done(result) for result in results)
        return (
            f"the script ends after {made} steps, and this comparison takes {needed} at least: let it make more epochs"
        )


def failing_slot(outcome: Outcome) -> int | None:
    """Of the change that was on when the script failed; None if it did not fail, or as it is."""
    if not outcome.errors:
        return None
    at = [result["toggle"].get("on_at_end") for result in outcome.results if "toggle" in result]
    return at[0] if at and all(slot == at[0] for slot in at) else None


def why_no_effect(proposal: Proposal, facts: dict[str, object]) -> str | None:
    """A change that failed, or that never took effect, has shown nothing."""
    if facts["failure"]:
        return f"{proposal.change.title}: the change could not be made ({facts['failure']})"
    if not facts["used"]:
        return f"{proposal.change.title}: the line was not reached in the steps that ran"
    return None


def samples_of(
    proposal: Proposal, found: Sequence[Replicate], clock: str, seconds: float, failure: str | None
) -> Samples:
    return Samples(
        proposal=proposal,
        log_ratios=tuple(one.log_ratio for one in found),
        a=median([one.a_ms for one in found]),
        b=median([one.b_ms for one in found]),
        unit="ms",
        rounds=sum(one.rounds for one in found),
        clock=clock,
        seconds_each=seconds,
        failure=failure,
        a_each=tuple(one.a_ms for one in found),
        b_each=tuple(one.b_ms for one in found),
    )

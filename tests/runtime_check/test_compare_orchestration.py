"""What is launched and what is decided from it, on launches whose results are made up: no script runs here."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
import verify_runs  # noqa: F401  (puts the checkout on the path)

from runtime_check.compare import comparing
from runtime_check.compare import pairs as pairs_module
from runtime_check.compare.comparing import compare
from runtime_check.compare.memory import measure
from runtime_check.compare.pairs import Pair
from runtime_check.compare.records import Change, Design, Proposal
from runtime_check.evidence import Evidence, Verdict
from runtime_check.launch import Outcome, Pass
from runtime_check.options import Options

STEP_NS = 10_000_000


def result(**more: Any) -> dict[str, Any]:
    steps = range(12)
    return {
        "warmup": 2,
        "boundaries_ns": [n * STEP_NS for n in steps],
        "cpu_ns": [n * STEP_NS for n in steps],
        "flags": {},
        "sums": {},
        "world": 1,
        "startup_s": 2.0,
        "loaders": [],
        **more,
    }


@dataclass
class Launches:
    """Stands in for a session: `savings` of each slot, the empty one first, and those of the longer blocks."""

    savings: tuple[float, ...]
    longer: tuple[float, ...] | None = None
    spread: float = 0.005
    options: Options = field(default_factory=Options)
    made: list[Pass] = field(default_factory=list)
    left: float = 1e6
    random_: random.Random = field(default_factory=lambda: random.Random(1))

    def left_s(self) -> float:
        return self.left

    def launch(self, run: Pass, progress: Any = None) -> Outcome:
        self.made.append(run)
        toggle = run.extra["toggle"]
        savings = self.longer if self.longer and toggle["block"] > 20 else self.savings
        blocks = []
        for slot, saving in enumerate(savings):
            ratio = 1 - saving + self.random_.gauss(0, self.spread)
            for round_ in range(4):
                for on in (False, True, True, False):
                    wall = STEP_NS * toggle["block"] * (ratio if on else 1.0)
                    blocks.append([slot, round_, on, wall, wall, toggle["block"], 0, 0, []])
        slots = [{"used": 5, "failure": None} for _ in savings]
        facts = result(toggle={"blocks": blocks, "slots": slots, "block": toggle["block"]}, why="steps", rank=0)
        return Outcome(run, [facts], 0, "script", 1.0, "")


def evidence(cuda: bool = False) -> Evidence:
    return Evidence(0.03, cuda, timed=Outcome(Pass("timing"), [result()], 0, "script", 3.0, ""))


def asked(count: int) -> list[Proposal]:
    return [Proposal(Change("flag", f"change {n}"), Design.TOGGLE, "step_time", 1 - n / 10) for n in range(count)]


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing, "machine_load", lambda: 0.5)


def test_all_findings_share_five_launches() -> None:
    session = Launches((0.0, 0.2, 0.0))
    made = compare(session, evidence(), asked(2), 3600.0)  # type: ignore[arg-type]
    assert [decision.verdict for decision in made.comparisons.decisions] == [Verdict.CONFIRMED, Verdict.REFUTED]
    assert len(session.made) == len(made.outcomes) == 5  # settled at the first look
    assert [run.extra["toggle"]["swapped"] for run in session.made] == [False, True, False, True, False]
    noise = made.comparisons.noise
    assert noise is not None
    assert noise.null_half_width is not None
    assert noise.null_half_width < 0.02


@dataclass
class Failing(Launches):
    """The script fails while the change of slot `bad` is on, in its first block."""

    bad: int = 2

    def launch(self, run: Pass, progress: Any = None) -> Outcome:
        outcome = super().launch(run, progress)
        if run.extra["toggle"]["slots"][self.bad]:
            toggle = outcome.results[0]["toggle"]
            toggle.update(blocks=[block for block in toggle["blocks"] if block[0] < self.bad], on_at_end=self.bad)
            outcome.errors.append({"type": "RuntimeError", "message": "no such kernel\nsecond line", "site": []})
        else:
            outcome.results[0]["toggle"]["slots"][self.bad]["used"] = 0
        return outcome


def test_a_change_with_which_the_script_fails_leaves_the_others_their_answers() -> None:
    session = Failing((0.0, 0.2, 0.0, 0.3))
    made = compare(session, evidence(), asked(3), 3600.0)  # type: ignore[arg-type]
    first, failing, last = made.comparisons.decisions
    assert [first.verdict, failing.verdict, last.verdict] == [Verdict.CONFIRMED, Verdict.NOT_RUN, Verdict.CONFIRMED]
    assert failing.why == "change 1: the script fails with it: RuntimeError: no such kernel"
    assert [bool(run.extra["toggle"]["slots"][2]) for run in session.made][:3] == [True, False, False]


def test_what_is_not_settled_gets_more_replicates() -> None:
    session = Launches((0.0, 0.035), spread=0.02)
    made = compare(session, evidence(), asked(1), 3600.0)  # type: ignore[arg-type]
    (decision,) = made.comparisons.decisions
    assert len(session.made) == 8
    assert decision.verdict is Verdict.INCONCLUSIVE
    assert decision.settle


def test_when_nothing_seems_to_matter_no_verdict_is_given() -> None:
    made = compare(Launches((0.2, 0.2)), evidence(), asked(1), 3600.0)  # type: ignore[arg-type]
    (decision,) = made.comparisons.decisions
    assert decision.verdict is Verdict.INCONCLUSIVE
    assert "a change of nothing seemed to matter too" in decision.why
    assert made.comparisons.noise is not None
    assert made.comparisons.noise.biased


def test_an_accelerator_is_measured_at_two_block_lengths() -> None:
    agreeing = Launches((0.0, 0.2))
    made = compare(agreeing, evidence(cuda=True), asked(1), 7200.0)  # type: ignore[arg-type]
    assert [d.verdict for d in made.comparisons.decisions] == [Verdict.CONFIRMED]
    assert {run.extra["toggle"]["block"] for run in agreeing.made} == {20, 40}
    assert len(made.outcomes) == len(agreeing.made)
    differing = Launches((0.0, 0.2), longer=(0.0, 0.0))
    made = compare(differing, evidence(cuda=True), asked(1), 7200.0)  # type: ignore[arg-type]
    assert [d.verdict for d in made.comparisons.decisions] == [Verdict.INCONCLUSIVE]


def test_a_budget_that_is_too_small_says_what_it_would_take() -> None:
    session = Launches((0.0, 0.2))
    made = compare(session, evidence(), asked(1), 1.0)  # type: ignore[arg-type]
    assert session.made == []
    (decision,) = made.comparisons.decisions
    assert decision.verdict is Verdict.NOT_RUN
    assert "it would take about" in decision.why


def test_a_busy_machine_gets_one_thread_and_on_cpu_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparing, "machine_load", lambda: 999.0)
    session = Launches((0.0, 0.2))
    threads: list[int | None] = []
    launch = session.launch

    def watched(run: Pass, progress: Any = None) -> Outcome:
        threads.append(session.options.threads)
        return launch(run)

    session.launch = watched  # type: ignore[method-assign]
    made = compare(session, evidence(), asked(1), 3600.0)  # type: ignore[arg-type]
    (decision,) = made.comparisons.decisions
    assert decision.effect is not None
    assert decision.effect.clock == "on-CPU"
    assert set(threads) == {1}
    assert session.options.threads is None


@dataclass
class Ranked(Launches):
    """Two ranks; the step is as long on both, and the arm with the change is shorter by `savings[0]`."""

    def launch(self, run: Pass, progress: Any = None) -> Outcome:
        self.made.append(run)
        ratio = (1 - self.savings[0]) if "changes" in run.extra else 1.0
        step = STEP_NS * ratio * (1 + self.random_.gauss(0, self.spread))
        times = [n * step for n in range(12)]
        samples = {str(n): {"samples": 8 * (1 + ("changes" in run.extra))} for n in range(12)}
        facts = [
            result(boundaries_ns=times, cpu_ns=times, rank=rank, world=2, sums=samples, why="steps") for rank in (0, 1)
        ]
        return Outcome(run, facts, 0, "script", 1.0, "")


def several_ranks() -> Evidence:
    ranks = evidence()
    assert ranks.timed is not None
    ranks.timed.results[0]["world"] = 2
    return ranks


def test_several_ranks_are_compared_by_whole_launches_in_turn() -> None:
    pair = Proposal(Change("loader", "num_workers=2"), Design.PAIRS, "step_time")
    session = Ranked((0.3,))
    made = compare(session, several_ranks(), [pair], 3600.0)  # type: ignore[arg-type]
    (decision,) = made.comparisons.decisions
    assert decision.verdict is Verdict.CONFIRMED
    assert decision.proposal.design is Design.SEQUENTIAL
    assert decision.effect is not None
    assert decision.effect.saving == pytest.approx(0.3, abs=0.03)
    assert [run.name[-1] for run in session.made] == list("ABBAABBAAB")


def test_the_time_per_sample_counts_the_samples_of_all_ranks() -> None:
    pair = Proposal(Change("loader", "batch_size=16"), Design.PAIRS, "sample_time")
    made = compare(Ranked((-0.5,)), several_ranks(), [pair], 3600.0)  # type: ignore[arg-type]
    (decision,) = made.comparisons.decisions
    assert decision.effect is not None
    assert decision.effect.saving == pytest.approx(0.25, abs=0.03)  # 1.5 times the step for twice the samples
    assert decision.effect.a == pytest.approx(10 / 16, rel=0.03)


def test_what_was_settled_early_leaves_budget_for_what_did_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    spent = []
    spend = comparing.spend

    def watched(proposals: Any, pace: Any, memory_s: float, budget_s: float) -> Any:
        spent.append((len(proposals), budget_s))
        return spend(proposals, pace, memory_s, budget_s)

    monkeypatch.setattr(comparing, "spend", watched)
    pairs = [Proposal(Change("loader", f"num_workers={n}"), Design.PAIRS, "step_time", 1 - n / 10) for n in (2, 4)]
    made = compare(Ranked((0.3,)), several_ranks(), pairs, 35.0)  # type: ignore[arg-type]
    assert [decision.verdict for decision in made.comparisons.decisions] == [Verdict.CONFIRMED] * 2
    assert [count for count, _ in spent] == [2, 1]


RAN_OUT = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.00 GiB of which 1.00 GiB is free. "
    "{beside}Including non-PyTorch memory, this process has 38.00 GiB memory in use. Of the allocated memory 37.00 GiB "
    "is allocated by PyTorch, and 512.00 MiB is reserved by PyTorch but unallocated."
)
BESIDE = "Process 77 has 39.00 GiB memory in use. "


def pair_that_ends(arm: str, message: str) -> Any:
    """Stands in for a pair of launches of which one ends with this error."""
    tried: list[Change] = []

    def run_pair(session: Any, change: Change, size: Any, swapped: bool) -> Pair:
        tried.append(change)
        error = {"out_of_memory": True, "message": message, "site": ["train.py", 3, ""]}
        a, b = (Outcome(Pass(f"pair {name}"), [], 1, "script", 1.0, "") for name in "AB")
        (a if arm == "A" else b).errors.append(error)
        return Pair((), a, b, "the script ended before the comparison was over")

    run_pair.tried = tried  # type: ignore[attr-defined]
    return run_pair


@pytest.mark.parametrize(
    ("arm", "message"), [("B", RAN_OUT.format(beside=BESIDE)), ("A", "CUDA out of memory. Tried to allocate 2.00 GiB.")]
)
def test_two_runs_that_do_not_fit_on_the_card_go_one_after_the_other(
    arm: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in = pair_that_ends(arm, message)
    monkeypatch.setattr(pairs_module, "run_pair", stand_in)
    session = Ranked((0.3,))
    asked = [Proposal(Change("loader", f"num_workers={n}"), Design.PAIRS, "step_time", 1 - n / 10) for n in (2, 4)]
    made = compare(session, evidence(cuda=True), asked, 7200.0)  # type: ignore[arg-type]
    for decision in made.comparisons.decisions:
        assert decision.verdict is Verdict.CONFIRMED
        assert decision.effect is not None
        assert decision.effect.design is Design.SEQUENTIAL
        assert "they ran one after the other" in decision.why
    assert {change.title for change in stand_in.tried} == {"num_workers=2"}  # the second one is not tried side by side
    assert [run.name[-1] for run in session.made] == list("ABBAABBAAB") * 2


def test_a_change_that_needs_too_much_memory_by_itself_is_no_matter_of_two_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pairs_module, "run_pair", pair_that_ends("B", RAN_OUT.format(beside="")))
    session = Ranked((0.3,))
    pair = Proposal(Change("loader", "batch_size=64"), Design.PAIRS, "step_time")
    made = compare(session, evidence(cuda=True), [pair], 7200.0)  # type: ignore[arg-type]
    (decision,) = made.comparisons.decisions
    assert decision.verdict is Verdict.NOT_RUN
    assert session.made == []


def test_whole_epochs_are_compared_side_by_side_only(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"options": {"persistent_workers": True}}
    pair = Proposal(Change("loader", "persistent_workers=True", parameters=options), Design.PAIRS, "step_time")
    monkeypatch.setattr(comparing, "supported", lambda: False)
    made = compare(Ranked((0.3,)), evidence(), [pair], 3600.0)  # type: ignore[arg-type]
    assert [decision.verdict for decision in made.comparisons.decisions] == [Verdict.NOT_RUN]
    monkeypatch.setattr(comparing, "supported", lambda: True)
    monkeypatch.setattr(pairs_module, "run_pair", pair_that_ends("B", RAN_OUT.format(beside=BESIDE)))
    made = compare(Ranked((0.3,)), evidence(cuda=True), [pair], 3600.0)  # type: ignore[arg-type]
    (decision,) = made.comparisons.decisions
    assert decision.verdict is Verdict.NOT_RUN
    assert "side by side" in decision.why


def test_on_cuda_the_allocators_peaks_count() -> None:
    memory = {"phases": {"train": {"peak": 5}, "eval": {"peak": 6}}, "eval_bytes": []}
    steps = [{"step": n, "allocated": size} for n, size in ((1, 900), (3, 700), (4, 710))]
    both = result(memory=memory, cuda_memory={"steps": steps, "phases": {"eval": 800}})
    cuda = Outcome(Pass("memory"), [both], 0, "script", 1.0, "")
    assert measure(cuda, "train_peak_bytes") == 710
    assert measure(cuda, "eval_peak_bytes") == 800
    cpu = Outcome(Pass("memory"), [result(memory={**memory, "phases": {"start": {"peak": 9}}})], 0, "script", 1.0, "")
    assert measure(cpu, "train_peak_bytes") == 9
    assert measure(cpu, "eval_peak_bytes") is None

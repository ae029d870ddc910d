"""Findings -> comparisons, what a budget is spent on, and how an answer and its comparison become one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import verify_runs  # noqa: F401  (puts the checkout on the path)

from runtime_check.commandline import duration_s
from runtime_check.compare.answers import effect_record, noise_line, proposals_for, with_comparisons
from runtime_check.compare.budget import MOST_REPLICATES, bounded, least, spend
from runtime_check.compare.comparing import agreeing, distrusted
from runtime_check.compare.fixes import apply_edits, fixed_source, read_text, steers
from runtime_check.compare.memory import decide_counted
from runtime_check.compare.proposals import propose
from runtime_check.compare.records import Change, Comparisons, Decision, Design, Noise, Proposal, Samples
from runtime_check.compare.sizes import PAIR_ROUNDS, TOGGLE_ROUNDS, Pace, pair_cost_s, pair_size, toggle_size
from runtime_check.compare.verdicts import FEWEST, decide
from runtime_check.evidence import Answer, Evidence, Verdict
from runtime_check.findings import Finding, read_findings
from runtime_check.launch import Outcome, Pass

SCRIPT = """\
import gc

for step, loss in enumerate(losses):
    total += loss.item()
    if loss.item() > 3:
        break
    gc.collect()
    torch.cuda.synchronize()
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def finding(path: Path, code: str, row: int, claim: str = "sync", **more: Any) -> Finding:
    return Finding(code, more.pop("message", ""), str(path), path.name, row, row, claim, fingerprint=code, **more)


def result(**more: Any) -> dict[str, Any]:
    """A rank's result: twelve steps of 10 ms, half of each waiting for data."""
    steps = range(12)
    return {
        "warmup": 2,
        "boundaries_ns": [n * 10_000_000 for n in steps],
        "cpu_ns": [n * 9_000_000 for n in steps],
        "flags": {},
        "sums": {str(n): {"loader_ns": 5_000_000, "optimizer_ns": 200_000, "forward_ns": 4e6} for n in steps},
        "world": 1,
        "startup_s": 2.0,
        "loaders": [],
        **more,
    }


def outcome(name: str, **more: Any) -> Outcome:
    return Outcome(Pass(name), [result(**more)], 0, "script", 3.0, "")


def evidence(cuda: bool = False) -> Evidence:
    return Evidence(0.03, cuda, timed=outcome("timing"), broken_down=outcome("breakdown"))


# -- the text of a fix


def edit(content: str, begin: tuple[int, int], end: tuple[int, int]) -> dict[str, Any]:
    place = ({"row": row, "column": column} for row, column in (begin, end))
    return {"content": content, "location": next(place), "end_location": next(place)}


def test_edits_are_applied_where_they_say() -> None:
    text = "a = 1\r\nbé = 2\nc = 3"
    edits = [edit("9", (2, 6), (2, 7)), edit("", (1, 1), (2, 1)), edit("\nd = 4", (3, 6), (3, 6))]
    assert apply_edits(text, edits) == "bé = 9\nc = 3\nd = 4"


@pytest.mark.parametrize("edits", [[edit("x", (1, 1), (1, 3)), edit("y", (1, 2), (1, 4))], [edit("x", (9, 1), (9, 1))]])
def test_edits_that_cannot_be_meant_are_refused(edits: list[dict[str, Any]]) -> None:
    with pytest.raises(ValueError, match=r"overlap|no row"):
        apply_edits("abcdef\n", edits)


def test_the_fix_of_a_finding_is_read_from_its_json(script: Path) -> None:
    entry = {
        "code": "TL105",
        "filename": script.name,
        "location": {"row": 7, "column": 5},
        "claim": "time",
        "fix": {"applicability": "unsafe", "message": "Remove it", "edits": [edit("", (7, 1), (8, 1))]},
    }
    found = read_findings(json.dumps([entry]), script.parent)[0]
    assert fixed_source(found) == {str(script): SCRIPT.replace("    gc.collect()\n", "")}
    assert fixed_source(replace(found, fix=None)) is None
    broken = {"edits": [edit("(", (7, 1), (7, 1))]}
    assert fixed_source(replace(found, fix=broken)) is None


def test_a_declared_encoding_is_kept_to(tmp_path: Path) -> None:
    path = tmp_path / "latin.py"
    path.write_bytes("# coding: latin-1\nname = 'é'\n".encode("latin-1"))
    text = read_text(str(path))
    assert text is not None
    assert "'é'" in text


def test_what_a_line_decides_is_seen(script: Path) -> None:
    assert steers(str(script), 5, 5)
    assert not steers(str(script), 4, 4)
    assert steers(str(script.parent / "missing.py"), 1, 1)


# -- findings -> comparisons


def test_a_wait_is_toggled_on_cuda_only(script: Path) -> None:
    assert propose(finding(script, "TL101", 4), evidence()) is None
    proposal = propose(finding(script, "TL101", 4), evidence(cuda=True))
    assert proposal is not None
    assert (proposal.design, proposal.change.kind, proposal.upper_bound) == (Design.TOGGLE, "elide_sync", False)
    steering = propose(finding(script, "TL101", 5), evidence(cuda=True))
    assert steering is not None
    assert steering.upper_bound


@pytest.mark.parametrize(
    ("code", "row", "message", "cuda", "kind", "design"),
    [
        ("TL105", 7, "", False, "skip_call", Design.TOGGLE),
        ("TL104", 8, "", True, "skip_call", Design.TOGGLE),
        ("TL106", 4, "", True, "non_blocking", Design.TOGGLE),
        ("TL208", 1, "anomaly detection is on", False, "anomaly_off", Design.TOGGLE),
        ("TL410", 3, "", True, "flag", Design.TOGGLE),
        ("TL703", 3, "", True, "flag", Design.TOGGLE),
        ("TL704", 3, "", True, "optimizer", Design.TOGGLE),
        ("TL303", 3, "", False, "loader", Design.PAIRS),
        ("TL304", 3, "", True, "loader", Design.PAIRS),
        ("TL201", 3, "", False, "eval_no_grad", Design.MEMORY),
        ("TL203", 3, "", False, "backward_arguments", Design.MEMORY),
    ],
)
def test_each_claim_gets_its_design(
    script: Path, code: str, row: int, message: str, cuda: bool, kind: str, design: Design
) -> None:
    proposal = propose(finding(script, code, row, "time", message=message), evidence(cuda))
    assert proposal is not None
    assert (proposal.change.kind, proposal.design) == (kind, design)
    assert json.dumps(proposal.change.for_probe())


@pytest.mark.parametrize("code", ["TL104", "TL106", "TL304", "TL410", "TL703", "TL704", "TL601"])
def test_what_needs_a_gpu_is_not_tried_on_a_cpu(script: Path, code: str) -> None:
    fix = {"edits": [edit("", (7, 1), (8, 1))], "applicability": "safe", "message": "Fix it"}
    claim = "behaviour" if code == "TL601" else "time"
    assert propose(finding(script, code, 8, claim, fix=fix), evidence()) is None


def test_any_other_fix_is_compared_as_source(script: Path) -> None:
    fix = {"edits": [edit("", (7, 1), (8, 1))], "applicability": "unsafe", "message": "Remove it."}
    memory = propose(finding(script, "TL210", 7, "memory", fix=fix), evidence())
    time = propose(finding(script, "TL502", 7, "time", fix=fix), evidence())
    assert memory is not None
    assert time is not None
    assert (memory.design, memory.metric) == (Design.MEMORY, "train_peak_bytes")
    assert (time.design, time.change.title) == (Design.PAIRS, "fixed (Remove it, unsafe)")
    assert "gc.collect" not in time.change.overlay[str(script)]
    assert propose(finding(script, "TL305", 7, "loader", fix=fix), evidence()) is None


def test_what_was_refuted_by_counting_is_not_compared(script: Path) -> None:
    found = finding(script, "TL105", 7, "time")
    refuted = Answer(Verdict.REFUTED, "called 1 time in 20 steps")
    assert proposals_for([(found, refuted)], evidence()) == []
    assert len(proposals_for([(found, Answer(Verdict.CONFIRMED, "seen"))], evidence())) == 1


def test_a_gain_that_is_bounded_below_what_counts_needs_no_run(script: Path) -> None:
    slow = result()
    for sums in slow["sums"].values():
        sums["optimizer_ns"] = 50_000  # half a per cent
    shares = Evidence(0.03, True, timed=outcome("timing"), broken_down=replace(outcome("breakdown"), results=[slow]))
    proposal = propose(finding(script, "TL704", 3, "time"), shares)
    assert proposal is not None
    decision = bounded(proposal, 0.03)
    assert decision is not None
    assert decision.verdict is Verdict.REFUTED
    assert "at most 0.5%" in decision.why
    assert bounded(replace(proposal, gain=0.2), 0.03) is None


# -- sizes and budget

FAST, SLOW = Pace(0.010, 4.0, 5), Pace(1.5, 30.0, 5)


def proposal(gain: float, design: Design = Design.TOGGLE) -> Proposal:
    return Proposal(Change("flag", f"change {gain}"), design, "step_time", gain)


def test_rounds_fill_the_time_and_stay_within_their_bounds() -> None:
    assert toggle_size(FAST, 2, 8.0).rounds == 100
    assert toggle_size(SLOW, 2, 8.0).rounds == TOGGLE_ROUNDS[0]
    assert toggle_size(FAST, 1, 1e6).rounds == TOGGLE_ROUNDS[1]
    assert pair_size(SLOW, 1.0).rounds == PAIR_ROUNDS[0]
    assert toggle_size(FAST, 2, 8.0).block == 1
    assert toggle_size(Pace(0.01, 4.0, 5, cuda=True), 2, 8.0).block == 20


def test_a_block_of_a_pair_outlasts_what_workers_hold_ready() -> None:
    assert pair_size(FAST, 10.0).block == 15  # 150 ms
    assert pair_size(Pace(0.05, 4.0, 5, prefetched=8), 10.0).block == 17
    assert pair_size(FAST, 10.0, multiple=40).block == 40  # an epoch
    assert pair_size(FAST, 10.0, multiple=7).block == 21


def test_the_budget_goes_to_what_has_most_to_gain() -> None:
    asked = [proposal(0.1), proposal(0.9, Design.PAIRS), proposal(0.5, Design.MEMORY)]
    everything = spend(asked, FAST, 10.0, 3600.0)
    assert len(everything.planned) == 3
    assert everything.left_out == ()
    pair = everything.planned[0]
    assert pair.proposals[0].gain == 0.9
    assert pair.replicates == MOST_REPLICATES
    least = FEWEST * pair_cost_s(pair_size(FAST, 0.0), FAST)
    little = spend(asked, FAST, 10.0, least + 1.0)
    assert [planned.design for planned in little.planned] == [Design.PAIRS]
    assert {left.gain for left, _ in little.left_out} == {0.1, 0.5}
    assert all(cost > 0 for _, cost in little.left_out)
    assert spend(asked, FAST, 10.0, 0.0).planned == ()


def test_toggles_that_share_their_processes_gain_together() -> None:
    """Three of them against a pair that has more to gain than each: one experiment answers all three."""
    pace = Pace(0.05, 10.0, 5)
    asked = [proposal(0.8, Design.PAIRS), *(proposal(0.5) for _ in range(3))]
    cost = least(tuple(asked[1:]), pace, 0.0).cost_s
    spending = spend(asked, pace, 20.0, cost + 1.0)
    assert [len(planned.proposals) for planned in spending.planned] == [3]
    assert [left.design for left, _ in spending.left_out] == [Design.PAIRS]


@pytest.mark.parametrize("budget", [60.0, 300.0, 1200.0])
def test_what_is_planned_fits_the_budget(budget: float) -> None:
    asked = [proposal(g / 10, design) for g in range(1, 7) for design in Design]
    for pace in (FAST, SLOW, Pace(0.3, 8.0, 5), Pace(0.02, 10.0, 5, cuda=True)):
        spending = spend(asked, pace, 20.0, budget)
        assert sum(planned.cost_s for planned in spending.planned) <= budget + 1.0
        planned = sum(len(one.proposals) for one in spending.planned)
        assert planned + len(spending.left_out) == len(asked)


def test_toggles_that_do_not_all_fit_are_fewer() -> None:
    pace = Pace(0.5, 10.0, 5)
    asked = [proposal(g / 10) for g in range(1, 9)]
    spending = spend(asked, pace, 20.0, 250.0)
    (toggles,) = spending.planned
    kept = [p.gain for p in toggles.proposals]
    assert kept == sorted(kept, reverse=True)
    assert kept[0] == 0.8
    assert 0 < len(kept) < 8
    assert {left.gain for left, _ in spending.left_out} == {p.gain for p in asked} - set(kept)


# -- counted bytes


def counted(a: list[float], b: list[float], metric: str = "train_peak_bytes") -> Decision:
    return decide_counted(Proposal(Change("source", "fixed"), Design.MEMORY, metric), a, b, 0.03)


def test_counts_decide_by_their_range() -> None:
    assert counted([1000.0, 1000.0], [900.0, 900.0]).verdict is Verdict.CONFIRMED
    assert counted([1000.0, 1000.0], [1000.0, 1000.0]).verdict is Verdict.REFUTED
    assert counted([1000.0, 1000.0], [1100.0, 1100.0]).verdict is Verdict.REFUTED
    assert "makes it worse" in counted([1000.0, 1000.0], [1100.0, 1100.0]).why
    varying = counted([1000.0, 1100.0], [900.0, 1080.0])
    assert varying.verdict is Verdict.INCONCLUSIVE
    assert varying.settle is not None
    assert counted([], [900.0]).verdict is Verdict.INCONCLUSIVE


def test_growth_that_is_gone_is_confirmed_and_none_at_all_refuted() -> None:
    gone = counted([4096.0, 4096.0], [0.0, 0.5], "growth_per_step")
    assert gone.verdict is Verdict.CONFIRMED
    assert "memory growth per step" in gone.why
    assert counted([0.0, 1.0], [0.0, 0.0], "growth_per_step").verdict is Verdict.REFUTED


# -- answers


def decision(verdict: Verdict, found: Finding, values: list[float] | None = None) -> Decision:
    asked = Proposal(Change("skip_call", "without it"), Design.TOGGLE, "step_time", finding=found)
    if values is None:
        return Decision(asked, verdict, "not compared")
    return decide([Samples(asked, tuple(values), 10.0, 9.0, "ms", 50)], 0.03)[0]


def test_a_comparison_decides_and_the_observation_stands_beside_it(script: Path) -> None:
    found = finding(script, "TL105", 7)
    observed = Answer(Verdict.CONFIRMED, "called 20 times in 20 steps", evidence={"share": 0.4})
    made = decision(Verdict.REFUTED, found, [0.0, 0.001, -0.001, 0.0, 0.002])
    ((_, answer),) = with_comparisons([(found, observed)], Comparisons((made,)))
    assert answer.verdict is Verdict.REFUTED
    assert answer.why.endswith("; observed: called 20 times in 20 steps")
    assert answer.evidence == {"share": 0.4}
    assert answer.effect is not None
    assert answer.effect["replicates"] == 5
    json.dumps(answer.effect, allow_nan=False)


def test_a_comparison_that_was_not_made_leaves_the_observation(script: Path) -> None:
    found = finding(script, "TL105", 7)
    left_out = Comparisons((decision(Verdict.NOT_RUN, found),))
    ((_, answer),) = with_comparisons([(found, Answer(Verdict.CONFIRMED, "seen"))], left_out)
    assert (answer.verdict, answer.why) == (Verdict.CONFIRMED, "seen; not compared")
    ((_, answer),) = with_comparisons([(found, Answer(Verdict.NOT_RUN, "a reason"))], left_out)
    assert (answer.verdict, answer.why) == (Verdict.NOT_RUN, "not compared")


def test_inconclusive_answers_say_what_would_settle_them(script: Path) -> None:
    found = finding(script, "TL105", 7)
    made = decision(Verdict.INCONCLUSIVE, found, [-0.10, -0.02, -0.05, -0.09, -0.04])
    ((_, answer),) = with_comparisons([(found, Answer(Verdict.NOT_RUN, "-"))], Comparisons((made,)))
    assert answer.verdict is Verdict.INCONCLUSIVE
    assert "(to settle it: half-width" in answer.why
    assert "--budget" in answer.why


def test_verdicts_at_both_block_lengths_must_agree(script: Path) -> None:
    found = finding(script, "TL101", 4)
    asked = Proposal(Change("elide_sync", "without it"), Design.TOGGLE, "step_time", finding=found)

    def both(values: list[float]) -> tuple[Decision, Samples]:
        samples = Samples(asked, tuple(values), 10.0, 9.0, "ms", 50)
        return decide([samples], 0.03)[0], samples

    clear, nothing = both([-0.1, -0.11, -0.1, -0.1, -0.11]), both([0.0, 0.001, 0.0, -0.001, 0.0])
    assert agreeing(clear, clear)[0].verdict is Verdict.CONFIRMED
    assert agreeing(clear, nothing)[0].verdict is Verdict.INCONCLUSIVE
    assert "with blocks twice as long" in agreeing(clear, nothing)[0].why
    assert agreeing(clear, None)[0].verdict is Verdict.INCONCLUSIVE
    failed = (Decision(asked, Verdict.NOT_RUN, "not reached"), clear[1])
    assert agreeing(failed, None) == failed
    assert distrusted(clear)[0].verdict is Verdict.INCONCLUSIVE
    assert distrusted(failed) == failed


def test_the_noise_line_says_how_much_a_change_of_nothing_measured() -> None:
    line = noise_line(Noise(5.1, 2, 0.021, -0.004, clock="on-CPU", threads=1))
    assert line.startswith("noise: load 5.1 on 2 cores; a change of nothing measured -0.4% ± 2.1%")
    assert "on-CPU" in line
    assert noise_line(Noise(None, 2)) == ""


def test_an_endless_interval_is_no_number_in_json(script: Path) -> None:
    few = decision(Verdict.INCONCLUSIVE, finding(script, "TL105", 7), [-0.1])
    json.dumps(effect_record(few), allow_nan=False)


@pytest.mark.parametrize(
    ("text", "seconds"), [("5m", 300.0), ("90s", 90.0), ("90", 90.0), ("0", 0.0), ("1.5h", 5400.0)]
)
def test_a_budget_is_a_time(text: str, seconds: float) -> None:
    assert duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "five", "-3m", "inf", "nan", "5x"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="--budget"):
        duration_s(text)

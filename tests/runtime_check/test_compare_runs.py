"""Comparisons as they are run: what the arms are, that nothing is left of them, what is answered."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from verify_runs import SCRIPTS, Launcher

from runtime_check.compare.memory import RUNS, Memory, measure, memory_pass
from runtime_check.compare.pairs import Pairs, run_pair
from runtime_check.compare.records import Change, Design, Proposal
from runtime_check.compare.replicates import toggle_rounds
from runtime_check.compare.sizes import Size
from runtime_check.compare.toggle import Toggles
from runtime_check.evidence import Verdict
from runtime_check.findings import Finding
from runtime_check.keeper import descendants
from runtime_check.launch import Pass, Session
from runtime_check.verify import verify

pytestmark = pytest.mark.torch


def row(script: str, text: str) -> int:
    return next(n for n, line in enumerate((SCRIPTS / script).read_text().splitlines(), 1) if text in line)


def without(script: str, text: str, instead: str = "pass") -> dict[str, str]:
    """The script's text with one statement replaced."""
    lines = (SCRIPTS / script).read_text().splitlines(keepends=True)
    at = row(script, text) - 1
    lines[at] = lines[at][: len(lines[at]) - len(lines[at].lstrip())] + instead + "\n"
    return {str(SCRIPTS / script): "".join(lines)}


@pytest.fixture
def session(launch: Launcher, request: pytest.FixtureRequest) -> Any:
    """`session(script, **options)`: closed at the end."""
    made: list[Session] = []

    def make(script: str, **changes: Any) -> Session:
        made.append(Session(launch.options(script, **changes)))
        return made[-1]

    yield make
    for one in made:
        one.close()


def skipped(script: str, text: str, call: str) -> Proposal:
    at = row(script, text)
    return Proposal(
        Change("skip_call", f"without {call}", str(SCRIPTS / script), (at, at), {"call": call}),
        Design.TOGGLE,
        "step_time",
    )


def test_findings_share_one_process_in_rounds_of_abba(session: Any) -> None:
    script = "planted.py"
    proposals = [
        skipped(script, "planted: first", "torch.bmm"),
        skipped(script, "import argparse", "torch.bmm"),  # a line that never calls it
    ]
    toggles = Toggles(session(script, arguments=("--products", "40", "1", "1")), proposals, Size(1, 6, 60.0, 3), "wall")
    toggles.replicate()
    outcome = toggles.outcomes[0]
    assert outcome.probe_errors == []
    result = outcome.results[0]
    assert result["why"] == "steps"
    for slot in range(3):
        rounds = toggle_rounds(result, slot)
        assert [[block.on for block in blocks] for blocks in rounds[:2]] == [
            [False, True, True, False],
            [True, False, False, True],
        ]
        assert len(rounds) == 6
    first, never = toggles.samples()
    assert len(first.log_ratios) == 1
    assert first.rounds == 6
    assert first.failure is None
    assert never.failure is not None
    assert "not reached" in never.failure
    assert toggles.null().failure is None
    # In arm B of its own rounds (prelude and six rounds, two blocks of one step each) and never else.
    assert result["toggle"]["slots"][1]["used"] == 2 * 7


def test_the_order_is_swapped_with_each_process(session: Any) -> None:
    toggles = Toggles(session("planted.py"), [], Size(1, 2, 60.0, 1), "wall")
    toggles.replicate()
    toggles.replicate()
    orders = [[block.on for block in toggle_rounds(o.results[0], 0)[0]] for o in toggles.outcomes]
    assert orders == [[False, True, True, False], [True, False, False, True]]


def test_fixed_text_is_served_under_the_files_own_names(session: Any) -> None:
    main, model = SCRIPTS / "two_files.py", SCRIPTS / "two_files_model.py"
    texts = {
        str(main): main.read_text().replace('print("width"', 'print("fixed width"'),
        str(model): model.read_text().replace("16", "32"),
    }
    run = Pass("overlay", overlay=texts)
    outcome = session("two_files.py").launch(run)
    assert outcome.stepped
    assert f"main __main__ two_files.py two_files.py {SCRIPTS.name}" in outcome.log_tail
    assert "fixed width 32 source True" in outcome.log_tail
    assert "16" in model.read_text()


def test_workers_under_spawn_get_the_fixed_text(session: Any) -> None:
    text = (SCRIPTS / "slow_loader.py").read_text().replace("time.sleep(0.002)", 'print("fixed worker", flush=True)')
    path = str(SCRIPTS / "slow_loader.py")
    run = Pass("overlay", overlay={path: text}, start_method="spawn", few_steps=True)
    outcome = session("slow_loader.py", arguments=("--workers", "1")).launch(run)
    assert "fixed worker" in outcome.log_tail


def test_a_pair_takes_turns_and_leaves_nothing(session: Any) -> None:
    before = set(descendants(os.getpid()))
    change = Change("source", "without the products", overlay=without("planted.py", "planted: first"))
    made = session("planted.py", arguments=("--products", "400", "1", "1"))
    pair = run_pair(made, change, Size(4, 3, 60.0), swapped=True)
    assert pair.ended is None
    assert [[block.on for block in blocks] for blocks in pair.rounds[:2]] == [
        [True, False, False, True],
        [False, True, True, False],
    ]
    assert {block.steps for blocks in pair.rounds for block in blocks} == {4}
    assert pair.a is not None
    assert pair.b is not None
    assert pair.a.results[0]["why"] == pair.b.results[0]["why"] == "steps"
    on = sum(block.cpu_ns for blocks in pair.rounds for block in blocks if block.on)
    off = sum(block.cpu_ns for blocks in pair.rounds for block in blocks if not block.on)
    assert on < off  # 400 products are a third of the step
    assert set(descendants(os.getpid())) <= before
    assert list(made.folder.glob("turn*")) == []


def test_an_arm_that_fails_is_a_reason_and_no_verdict(session: Any) -> None:
    change = Change("source", "fixed", overlay=without("planted.py", "planted: first", "raise SystemExit('broken')"))
    proposal = Proposal(change, Design.PAIRS, "step_time")
    pairs = Pairs(session("planted.py"), proposal, Size(4, 3, 60.0))
    pairs.replicate()
    failure = pairs.samples()[0].failure
    assert failure is not None
    assert "the script with the change ended before the comparison was over (broken)" in failure


def test_a_script_that_ends_before_the_comparison_is_told_to_go_on_longer(session: Any) -> None:
    """Its last line is no reason: nothing failed."""
    script = SCRIPTS / "few_steps.py"
    change = Change("source", "fixed", overlay={str(script): script.read_text()})
    made = session("few_steps.py")
    pairs = Pairs(made, Proposal(change, Design.PAIRS, "step_time"), Size(4, 3, 60.0))
    pairs.replicate()
    needed = made.options.warmup + 1 + 7 * 4
    assert pairs.samples()[0].failure == (
        f"the script ends after 7 steps, and this comparison takes {needed} at least: let it make more epochs"
    )


def test_a_script_that_ends_before_a_round_of_toggles_is_told_to_go_on_longer(session: Any) -> None:
    made = session("few_steps.py")
    proposal = Proposal(Change("tf32", "TF32"), Design.TOGGLE, "step_time")
    toggles = Toggles(made, [proposal], Size(1, 6, 60.0, 2), "wall")
    toggles.replicate()
    needed = made.options.warmup + 1 + 16
    assert toggles.samples()[0].failure == (
        f"the script ends after 7 steps, and this comparison takes {needed} at least: let it make more epochs"
    )


def test_an_interrupt_ends_both_arms(session: Any) -> None:
    before = set(descendants(os.getpid()))
    made = session("planted.py")

    def interrupt() -> None:
        end = time.monotonic() + 100
        while time.monotonic() < end and len(list(made.folder.glob("*/torch-*.json"))) < 2:
            time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    change = Change("source", "the same", overlay=without("planted.py", "planted: nothing"))
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    try:
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            run_pair(made, change, Size(1, 100_000, 300.0), swapped=False)
    finally:
        thread.join()
        signal.signal(signal.SIGINT, handler)
    assert set(descendants(os.getpid())) <= before
    assert not made.cancelled.is_set()


def test_bytes_are_counted_with_the_change_and_without(session: Any) -> None:
    script = "planted.py"
    change = Change("source", "without the buffer", overlay=without(script, "planted: buffer", "buffer = None"))
    proposal = Proposal(change, Design.MEMORY, "train_peak_bytes")
    counted = Memory(session(script, arguments=("--buffer", "1000000")), proposal)
    while not counted.complete:
        counted.replicate()
    assert len(counted.outcomes) == 2 * RUNS
    decision = counted.decide(0.03)
    assert decision.verdict is Verdict.CONFIRMED
    assert decision.effect is not None
    assert decision.effect.a - decision.effect.b == pytest.approx(4_000_000, rel=0.01)
    assert decision.effect.low == decision.effect.high  # a count is the same each time


@pytest.mark.slow
def test_findings_are_answered_by_comparisons(tmp_path: Path, launch: Launcher) -> None:
    """Evaluation without a graph (counted) and a loader with workers (pairs), in one verify."""
    script = "slow_loader.py"

    def finding(code: str, text: str, claim: str) -> Finding:
        at = row(script, text)
        return Finding(code, "", str(SCRIPTS / script), script, at, at, claim, fingerprint=code)

    options = replace(launch.options(script, cwd=tmp_path), budget_s=400.0, timeout_s=900.0)
    found = [
        finding("TL201", "for inputs, labels in loader:", "memory"),
        finding("TL303", "train_loader = DataLoader", "loader"),
    ]
    report = verify(options, found)
    answers = {f.code: answer for f, answer in report.answers}
    assert answers["TL201"].verdict is Verdict.CONFIRMED
    assert answers["TL303"].verdict is Verdict.CONFIRMED
    assert "this costs" in answers["TL303"].why
    assert answers["TL303"].effect is not None
    assert answers["TL303"].effect["replicates"] >= 5
    assert report.comparisons is not None
    assert report.comparisons.noise is not None


@pytest.mark.parametrize(
    ("kind", "metric", "least"),
    [
        ("checkpoint", "train_peak_bytes", 0.2),
        ("autocast", "train_peak_bytes", 0.1),
        ("set_to_none", "train_peak_bytes", 0.03),
        ("eval_no_grad", "eval_peak_bytes", 0.3),
    ],
)
def test_memory_of_usual_advice_is_counted(
    launch: Launcher, session: Any, kind: str, metric: str, least: float
) -> None:
    script = "blocks.py"
    proposal = Proposal(Change(kind, kind), Design.MEMORY, metric)
    as_it_is = launch(script, "memory", until_eval=True)
    changed = session(script).launch(memory_pass(proposal))
    for outcome in (as_it_is, changed):
        assert outcome.probe_errors == []
        assert outcome.stepped, (outcome.why, outcome.exit_code, outcome.log_tail)
    assert changed.results[0]["changes"][0]["used"] > 0
    before, after = measure(as_it_is, metric), measure(changed, metric)
    assert before is not None
    assert after is not None
    assert 1 - after / before > least

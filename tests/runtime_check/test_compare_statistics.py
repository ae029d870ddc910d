"""Intervals, verdicts and Holm, on numbers whose truth is known."""

from __future__ import annotations

import math
import random
import statistics

import pytest
import verify_runs  # noqa: F401  (puts the checkout on the path)

from runtime_check.compare.intervals import p_below, replicates_needed, t_cdf, t_interval, t_quantile
from runtime_check.compare.records import Change, Decision, Design, Proposal, Samples
from runtime_check.compare.replicates import Block, plain, replicate
from runtime_check.compare.verdicts import decide, effect_of, settled, verdict_of
from runtime_check.evidence import Verdict

DELTA = 0.03
MEASURED_SD = 0.0127  # of one toggle process (docs/verify-measured.md)


def samples(log_ratios: list[float], design: Design = Design.TOGGLE, **changes: object) -> Samples:
    upper_bound = bool(changes.pop("upper_bound", False))
    proposal = Proposal(Change("skip_call", "without it"), design, "step_time", upper_bound=upper_bound)
    return Samples(proposal, tuple(log_ratios), 10.0, 9.0, "ms", rounds=100, **changes)  # type: ignore[arg-type]


def draws(random_: random.Random, effect: float, sd: float, n: int = 5) -> list[float]:
    return [random_.gauss(math.log1p(-effect), sd) for _ in range(n)]


# -- Student's t


@pytest.mark.parametrize(
    ("probability", "freedom", "table"),
    [
        (0.975, 1, 12.706), (0.975, 4, 2.776), (0.975, 7, 2.365), (0.995, 4, 4.604), (0.995, 9, 3.250),
        (0.95, 10, 1.812), (0.975, 200, 1.972), (0.9995, 4, 8.610),
    ],
)  # fmt: skip
def test_quantiles_are_those_of_the_tables(probability: float, freedom: int, table: float) -> None:
    assert t_quantile(probability, freedom) == pytest.approx(table, abs=6e-4)
    assert t_quantile(1 - probability, freedom) == pytest.approx(-table, abs=6e-4)


@pytest.mark.parametrize("freedom", [1, 2, 5, 30, 500])
def test_the_quantile_is_the_inverse_of_the_distribution(freedom: int) -> None:
    for probability in (0.001, 0.1, 0.5, 0.9, 0.9999):
        assert t_cdf(t_quantile(probability, freedom), freedom) == pytest.approx(probability, abs=1e-9)


def test_a_quantile_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="quantile"):
        t_quantile(1.0, 4)


def test_one_value_says_nothing() -> None:
    interval = t_interval([0.1])
    assert (interval.low, interval.high) == (-math.inf, math.inf)
    assert p_below([0.1], 5.0) == 1.0


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    random_ = random.Random(1)
    for confidence in (0.95, 0.99):
        covered = 0
        for _ in range(4000):
            interval = t_interval([random_.gauss(0.2, 1.0) for _ in range(5)], confidence)
            covered += interval.low <= 0.2 <= interval.high
        assert covered / 4000 == pytest.approx(confidence, abs=0.012)


def test_the_p_value_agrees_with_the_interval() -> None:
    random_ = random.Random(2)
    for _ in range(500):
        values = draws(random_, 0.05, 0.02)
        wholly_below = t_interval(values).high < math.log1p(-DELTA)
        assert (p_below(values, math.log1p(-DELTA)) < 0.025) == wholly_below


def test_values_without_spread_decide_at_once() -> None:
    assert p_below([-0.1] * 5, -0.03) == 0.0
    assert p_below([-0.03] * 5, -0.03) == 1.0


# -- the rule


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.04, 0.09, Verdict.CONFIRMED),
        (-0.01, 0.02, Verdict.REFUTED),
        (-0.30, -0.20, Verdict.REFUTED),  # it makes things slower: no equivalence test would settle that
        (0.02, 0.05, Verdict.INCONCLUSIVE),
        (0.03, 0.05, Verdict.INCONCLUSIVE),
        (-math.inf, math.inf, Verdict.INCONCLUSIVE),
    ],
)
def test_the_interval_against_the_least_that_counts(low: float, high: float, verdict: Verdict) -> None:
    assert verdict_of(low, high, DELTA) is verdict


def verdicts(effect: float, sd: float, trials: int, seed: int, n: int = 5) -> dict[Verdict, int]:
    random_ = random.Random(seed)
    counts = dict.fromkeys(Verdict, 0)
    for _ in range(trials):
        counts[decide([samples(draws(random_, effect, sd, n))], DELTA)[0].verdict] += 1
    return counts


def test_a_change_of_nothing_is_never_confirmed_and_almost_always_refuted() -> None:
    counts = verdicts(0.0, MEASURED_SD, 2000, seed=3)
    assert counts[Verdict.CONFIRMED] <= 2
    assert counts[Verdict.REFUTED] >= 1900


def test_on_a_noisy_machine_the_answer_is_inconclusive_not_wrong() -> None:
    nothing, something = verdicts(0.0, 0.08, 1000, seed=4), verdicts(0.10, 0.08, 1000, seed=5)
    assert nothing[Verdict.CONFIRMED] <= 12
    assert nothing[Verdict.INCONCLUSIVE] >= 850
    assert something[Verdict.REFUTED] <= 15


def test_the_border_itself_is_confirmed_no_more_often_than_one_time_in_forty() -> None:
    assert verdicts(DELTA, MEASURED_SD, 4000, seed=6)[Verdict.CONFIRMED] / 4000 == pytest.approx(0.025, abs=0.008)


@pytest.mark.parametrize(("effect", "least"), [(0.05, 0.4), (0.09, 0.99), (0.20, 1.0)])
def test_planted_effects_are_found(effect: float, least: float) -> None:
    counts = verdicts(effect, MEASURED_SD, 1000, seed=7)
    assert counts[Verdict.CONFIRMED] >= least * 1000
    assert counts[Verdict.REFUTED] <= 5


def test_a_fix_that_slows_down_is_refuted() -> None:
    assert verdicts(-0.05, MEASURED_SD, 500, seed=8)[Verdict.REFUTED] == 500
    decision = decide([samples([0.05, 0.052, 0.049, 0.051, 0.05])], DELTA)[0]
    assert "makes it worse: step time 5.2 % more [" in decision.why


def test_early_looks_do_not_add_to_the_false_verdicts() -> None:
    """Looks after 5, 6 and 7 replicates at 99 %, the last after 8 at 95 %: at the border itself."""
    random_ = random.Random(9)
    confirmed = 0
    for _ in range(3000):
        values = draws(random_, DELTA, MEASURED_SD, 8)
        looks = [decide([samples(values[:n])], DELTA, last_look=n == 8)[0].verdict for n in (5, 6, 7, 8)]
        confirmed += next((v for v in looks if v is not Verdict.INCONCLUSIVE), None) is Verdict.CONFIRMED
    assert confirmed / 3000 <= 0.045


def test_fewer_than_five_replicates_decide_nothing() -> None:
    decision = decide([samples([-0.5, -0.5, -0.5, -0.5])], DELTA)[0]
    assert decision.verdict is Verdict.INCONCLUSIVE
    assert "only 4 of 5" in decision.why


def test_a_failure_is_not_a_verdict() -> None:
    decision = decide([samples([], failure="the line was not reached")], DELTA)[0]
    assert (decision.verdict, decision.why) == (Verdict.NOT_RUN, "the line was not reached")
    assert settled([decision])


def test_what_is_said_holds_the_numbers() -> None:
    confirmed = decide([samples([-0.094, -0.10, -0.09, -0.096, -0.092])], DELTA)[0]
    assert confirmed.why.startswith("this costs 9.0 % of step time [8.6, 9.4]: without it, 10.00 ms -> 9.00 ms")
    refuted = decide([samples([-0.001, 0.001, 0.0, 0.002, -0.002])], DELTA)[0]
    assert "saves at most 0.2 % of step time here" in refuted.why
    assert refuted.settle is None


def test_inconclusive_says_what_would_settle_it() -> None:
    decision = decide([samples([-0.10, -0.02, -0.05, -0.09, -0.04], seconds_each=20.0)], DELTA)[0]
    assert decision.verdict is Verdict.INCONCLUSIVE
    assert decision.settle is not None
    needed = replicates_needed(statistics.stdev([0.10, 0.02, 0.05, 0.09, 0.04]), 0.06 + math.log1p(-DELTA))
    assert f"about {needed} processes would settle it: --budget " in decision.settle
    near = decide([samples([-0.08, 0.02, -0.03, -0.07, 0.005])], DELTA)[0]
    assert near.settle is not None
    assert "another --min-effect, or a quieter machine" in near.settle


def test_the_number_of_replicates_makes_the_interval_narrow_enough() -> None:
    needed = replicates_needed(0.02, 0.01)
    assert needed is not None
    assert t_quantile(0.975, needed - 1) * 0.02 / math.sqrt(needed) < 0.01
    assert t_quantile(0.975, needed - 2) * 0.02 / math.sqrt(needed - 1) >= 0.01
    assert replicates_needed(0.02, 0.0) is None
    assert replicates_needed(10.0, 0.001) is None


def test_an_upper_bound_can_refute_and_cannot_confirm() -> None:
    large = decide([samples([-0.30, -0.31, -0.29, -0.30, -0.30], upper_bound=True)], DELTA)[0]
    assert large.verdict is Verdict.INCONCLUSIVE
    assert "upper bound" in large.why
    small = decide([samples([0.0, 0.001, -0.001, 0.0, 0.0005], upper_bound=True)], DELTA)[0]
    assert small.verdict is Verdict.REFUTED


# -- Holm


def test_several_findings_together_need_stronger_evidence() -> None:
    borderline = [-0.07, -0.06, -0.03, -0.05, -0.06]
    alone = decide([samples(borderline)], DELTA)[0]
    assert alone.verdict is Verdict.CONFIRMED
    nothing = [0.0, 0.01, -0.01, 0.002, -0.003]
    among = decide([samples(borderline), *[samples(nothing)] * 9], DELTA)
    assert among[0].verdict is Verdict.INCONCLUSIVE
    assert "does not stand among 10 findings" in among[0].why
    assert among[0].settle
    assert {decision.verdict for decision in among[1:]} == {Verdict.REFUTED}


def test_holm_steps_down_past_what_is_clear() -> None:
    clear, good = [-0.30, -0.301, -0.299, -0.30, -0.3], [-0.09, -0.08, -0.085, -0.095, -0.08]
    decisions = decide([samples(good), samples(clear), samples([0.0, 0.01, -0.01, 0.0, 0.0])], DELTA)
    assert [d.verdict for d in decisions] == [Verdict.CONFIRMED, Verdict.CONFIRMED, Verdict.REFUTED]


def test_the_chance_of_any_false_confirmation_stays_bounded() -> None:
    random_ = random.Random(10)
    runs_with_one = 0
    for _ in range(1000):
        measured = [samples(draws(random_, DELTA, MEASURED_SD)) for _ in range(6)]  # all at the border
        runs_with_one += any(d.verdict is Verdict.CONFIRMED for d in decide(measured, DELTA))
    assert runs_with_one / 1000 <= 0.04


# -- blocks and rounds


def blocks(off: float, on: float, *, why: str = "", steps: int = 1) -> list[Block]:
    marks = frozenset((why,)) if why else frozenset()
    return [Block(arm, steps * (on if arm else off), 0.0, steps, why=marks) for arm in (False, True, True, False)]


def test_a_round_is_the_log_ratio_of_its_arms_and_a_process_their_median() -> None:
    found = replicate([blocks(10e6, 9e6), blocks(10e6, 5e6), blocks(10e6, 9e6)])
    assert found is not None
    assert found.log_ratio == pytest.approx(math.log(0.9))
    assert (found.a_ms, found.b_ms, found.rounds) == (pytest.approx(10.0), pytest.approx(9.0), 3)


def test_linear_drift_cancels_within_a_round() -> None:
    drift = [Block(arm, 10e6 + 1e6 * n, 0.0, 1) for n, arm in enumerate((False, True, True, False))]
    found = replicate([drift])
    assert found is not None
    assert found.log_ratio == pytest.approx(0.0)


def test_rounds_with_an_evaluation_or_a_save_are_left_out() -> None:
    rounds = [blocks(10e6, 9e6), blocks(10e6, 30e6, why="eval"), blocks(10e6, 9e6), blocks(10e6, 9e6)[:3]]
    assert len(plain(rounds)) == 2


def test_what_marks_every_round_marks_none() -> None:
    rounds = [blocks(10e6, 9e6, why="loader_started")] * 4 + [blocks(10e6, 9e6, why="eval")]
    assert len(plain(rounds)) == 4


def test_batches_of_other_sizes_are_compared_per_sample() -> None:
    pair = [Block(arm, 10e6, 0.0, 1, samples=64 if arm else 32) for arm in (False, True, True, False)]
    found = replicate([pair], per_sample=True)
    assert found is not None
    assert found.log_ratio == pytest.approx(math.log(0.5))


def test_no_plain_round_is_no_replicate() -> None:
    assert replicate([]) is None
    assert replicate([blocks(10e6, 9e6)[:2]]) is None


def test_intervals_of_savings_are_in_order() -> None:
    effect = effect_of(samples([-0.1, -0.12, -0.09, -0.11, -0.1]), DELTA)
    assert effect.low < effect.saving < effect.high
    assert isinstance(decide([samples([-0.1] * 4 + [-0.11])], DELTA)[0], Decision)

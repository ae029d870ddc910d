"""What the run showed about learning: seen on the steps that ran, not timed."""

from __future__ import annotations

from typing import Any

from runtime_check.evidence import Answer, Evidence, Experiment, Verdict, no_steps
from runtime_check.findings import Finding
from runtime_check.statistics import share


def _behaviours(evidence: Evidence) -> dict[str, Any] | None:
    result = evidence.first(evidence.observed)
    return result.get("behaviours") if result else None


def _forwards(behaviours: dict[str, Any], phase: str) -> list[dict[str, Any]]:
    return [forward for forward in behaviours["forwards"] if forward["phase"] == phase]


def gradients_cleared(finding: Finding, evidence: Evidence) -> Answer:
    seen = _behaviours(evidence)
    if not seen or not seen["first_backwards"]:
        return no_steps("backward")
    dirty, total = seen["uncleared"], seen["first_backwards"]
    facts = {"uncleared": dirty, "steps_seen": total}
    text = f"gradients of the step before were still there at {dirty} of {total} first backwards"
    return Answer(Verdict.CONFIRMED if dirty * 2 >= total else Verdict.REFUTED, text, "uncleared_gradients", facts)


def gradients_missing(finding: Finding, evidence: Evidence) -> Answer:
    seen = _behaviours(evidence)
    if not seen or not seen["steps"]:
        return no_steps("gradients")
    empty, total = seen["steps_without_gradients"], seen["steps"]
    facts = {"steps_without_gradients": empty, "steps_seen": total}
    text = f"the optimizer found no gradient other than zero on {empty} of {total} steps"
    if empty * 2 >= total:
        return Answer(Verdict.CONFIRMED, text, "steps_without_gradients", facts)
    if empty:
        return Answer(Verdict.INCONCLUSIVE, text, "steps_without_gradients", facts)
    return Answer(Verdict.REFUTED, text, "steps_without_gradients", facts)


def evaluation_mode(finding: Finding, evidence: Evidence) -> Answer:
    seen = _behaviours(evidence)
    if not seen:
        return no_steps("forward")
    forwards = _forwards(seen, "eval")
    if not forwards:
        return Answer(
            Verdict.INCONCLUSIVE, "no evaluation was reached within the steps that ran", "eval_forwards_in_train_mode"
        )
    training = sum(forward["count"] for forward in forwards if forward["training"])
    total = sum(forward["count"] for forward in forwards)
    text = f"{training} of {total} evaluation forwards ran in training mode"
    facts = {"in_train_mode": training, "eval_forwards": total}
    return Answer(
        Verdict.CONFIRMED if training * 2 >= total else Verdict.REFUTED, text, "eval_forwards_in_train_mode", facts
    )


def training_mode(finding: Finding, evidence: Evidence) -> Answer:
    seen = _behaviours(evidence)
    if not seen:
        return no_steps("forward")
    if not _forwards(seen, "eval"):
        return Answer(
            Verdict.INCONCLUSIVE, "no evaluation was reached within the steps that ran", "train_forwards_in_eval_mode"
        )
    forwards = _forwards(seen, "train") + _forwards(seen, "other")
    in_eval = sum(forward["count"] for forward in forwards if not forward["training"] and forward["grad"])
    total = sum(forward["count"] for forward in forwards)
    facts = {"in_eval_mode": in_eval, "train_forwards": total}
    text = f"{in_eval} of {total} training forwards ran in eval mode"
    return Answer(Verdict.CONFIRMED if in_eval else Verdict.REFUTED, text, "train_forwards_in_eval_mode", facts)


def epoch_order(finding: Finding, evidence: Evidence) -> Answer:
    seen = _behaviours(evidence)
    if not seen:
        return no_steps("epoch")
    orders = [order["hashes"] for order in seen["orders"] if order["shuffles"] and len(order["hashes"]) > 1]
    if not orders:
        return Answer(
            Verdict.INCONCLUSIVE, "no second epoch of a shuffling DistributedSampler was reached", "epoch_order"
        )
    same = max((len(hashes) for hashes in orders if len(set(hashes)) == 1), default=0)
    facts = {"epochs_seen": max(len(hashes) for hashes in orders), "same_order": same}
    if same:
        return Answer(Verdict.CONFIRMED, f"{same} epochs went through the data in the same order", "epoch_order", facts)
    return Answer(Verdict.REFUTED, f"{facts['epochs_seen']} epochs had different orders", "epoch_order", facts)


def half_without_scaler(finding: Finding, evidence: Evidence) -> Answer:
    seen, result = _behaviours(evidence), evidence.first(evidence.observed)
    if not seen or result is None:
        return no_steps("forward")
    types = {
        kind for forward in seen["forwards"] if forward["phase"] in ("train", "start") for kind in forward["autocast"]
    }
    facts = {
        "autocast": sorted(types),
        "scaler_steps": result["scaler_steps"],
        "zero_gradient_share": seen["zero_gradient_share"],
    }
    if not types:
        why = "autocast was off on this machine" if not evidence.cuda else "no training forward ran under autocast"
        return Answer(Verdict.INCONCLUSIVE, why, "autocast_dtype", facts)
    if "torch.float16" not in types:
        return Answer(Verdict.REFUTED, f"training forwards ran in {', '.join(sorted(types))}", "autocast_dtype", facts)
    if result["scaler_steps"]:
        return Answer(Verdict.REFUTED, f"a GradScaler made {result['scaler_steps']} steps", "scaler_steps", facts)
    zero = seen["zero_gradient_share"]
    text = f"float16 training forwards and no GradScaler; up to {zero or 0:.0%} of the gradients were zero"
    return Answer(Verdict.CONFIRMED, text, "scaler_steps", facts)


def optimizers_made(finding: Finding, evidence: Evidence) -> Answer:
    result = evidence.first(evidence.observed)
    if result is None:
        return no_steps("optimizer step")
    by_type: dict[str, int] = {}
    for optimizer in result["optimizers"]:
        by_type[optimizer["type"]] = by_type.get(optimizer["type"], 0) + 1
    most = max(by_type.values(), default=0)
    facts = {"optimizers": by_type}
    text = f"{most} optimizers of one type made steps"
    if most >= 3:
        return Answer(Verdict.CONFIRMED, text, "optimizers", facts)
    if most == 1:
        return Answer(Verdict.REFUTED, "one optimizer made all steps that ran", "optimizers", facts)
    return Answer(Verdict.INCONCLUSIVE, f"{text}: more epochs would tell", "optimizers", facts)


def dropout_in_evaluation(finding: Finding, evidence: Evidence) -> Answer:
    seen = _behaviours(evidence)
    if not seen:
        return no_steps("forward")
    if not _forwards(seen, "eval"):
        return Answer(Verdict.INCONCLUSIVE, "no evaluation was reached within the steps that ran", "dropout_in_eval")
    calls = sum(d["calls"] for d in seen["dropout_in_eval"] if finding.covers(d["site"][0], d["site"][1]))
    text = f"dropout on this line was active {calls} times during evaluation"
    return Answer(Verdict.CONFIRMED if calls else Verdict.REFUTED, text, "dropout_in_eval", {"calls": calls})


def graph_breaks(finding: Finding, evidence: Evidence) -> Answer:
    result = evidence.first(evidence.timed)  # dispatch modes of the other passes turn torch.compile off
    counters = result.get("compile") if result else None
    if not counters:
        return Answer(Verdict.INCONCLUSIVE, "nothing was compiled in the steps that ran", "graph_breaks")
    text = f"{counters['graph_breaks']} graph breaks, {counters['graphs']} compiled graphs"
    verdict = Verdict.CONFIRMED if counters["graph_breaks"] else Verdict.REFUTED
    return Answer(verdict, text, "graph_breaks", dict(counters))


def housekeeping(finding: Finding, evidence: Evidence) -> Answer:
    """`gc.collect()`, `empty_cache()`: the host waits inside, so the time inside is the cost."""
    result, timing = evidence.first(evidence.broken_down), evidence.timing
    if result is None or timing is None:
        return no_steps("step times")
    calls = [call for call in result.get("housekeeping", ()) if finding.covers(call["file"], call["line"])]
    steps = max(1, len(result["boundaries_ns"]) - 1 - result["warmup"])
    count = sum(call["calls"] for call in calls)
    per_step_ms = sum(call["ns"] for call in calls) / 1e6 / steps
    part = share(per_step_ms, timing.median_ms)
    facts = {"calls_per_step": count / steps, "ms_per_step": per_step_ms, "share": part}
    text = f"called {count} times in {steps} steps, {per_step_ms:.2f} ms a step: {part:.1%} of it"
    if not evidence.cuda and calls and all(call["what"].endswith("empty_cache") for call in calls):
        return Answer(
            Verdict.INCONCLUSIVE, f"called {count} times in {steps} steps; its cost shows on a GPU only", "", facts
        )
    if count * 2 < steps:
        return Answer(
            Verdict.REFUTED, f"called {count} times in {steps} steps (claim: every step)", "time_share", facts
        )
    if part >= evidence.min_effect:
        return Answer(Verdict.CONFIRMED, text, "time_share", facts)
    verdict = Verdict.REFUTED if part < evidence.min_effect / 2 else Verdict.INCONCLUSIVE
    return Answer(verdict, text, "time_share", facts)


EXPERIMENTS: dict[str, Experiment] = {
    "dropout_in_evaluation": dropout_in_evaluation,
    "epoch_order": epoch_order,
    "evaluation_mode": evaluation_mode,
    "gradients_cleared": gradients_cleared,
    "gradients_missing": gradients_missing,
    "graph_breaks": graph_breaks,
    "half_without_scaler": half_without_scaler,
    "housekeeping": housekeeping,
    "optimizers_made": optimizers_made,
    "training_mode": training_mode,
}

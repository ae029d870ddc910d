"""Claims about loaders: does the step wait for data, and what does starting the loader cost?"""

from __future__ import annotations

from typing import Any

from runtime_check.evidence import Answer, Evidence, Experiment, Verdict, no_steps
from runtime_check.findings import Finding
from runtime_check.machine import usable_cpus
from runtime_check.measures import cores_text, steps_done
from runtime_check.statistics import median, share, span

ALL_BUSY = 0.9  # of the cores that there are: then no worker works beside the step
HANDOVER_MS = 1.0  # from a worker to the training process, a batch that is ready (0.8 to 1.2 ms where it was measured)


def loader_wait(finding: Finding, evidence: Evidence) -> Answer:
    """The wait bounds what a faster loader can save, roughly: moving the work out also speeds up the rest."""
    timing, waits = evidence.timing, evidence.wait_shares
    if timing is None or waits is None:
        return no_steps("step times")
    loaders = _loaders_at(finding, evidence)
    if loaders and all(loader["role"] != "train" for loader in loaders):
        return _not_for_training(loaders[0])
    delta = evidence.min_effect
    least, most = waits
    loader = _loader_at(finding, evidence)
    seen = {
        "loader_wait_share": timing.wait_share,
        "least": least,
        "most": most,
        "step_ms": timing.median_ms,
        "loader": loader,
    }
    workers = f" (num_workers={loader['workers']})" if loader else ""
    if most < delta / 2:
        text = f"the step waits {most:.1%} of its time for data{workers}: nothing to gain"
        return Answer(Verdict.REFUTED, text, "loader_wait_share", seen)
    handed = wait_of_a_batch_ms(loader) if loader else None
    if finding.code == "TL303" and least >= delta and handed is not None and handed < HANDOVER_MS:
        text = (
            f"the step waits {span(least, most)} of its {timing.median_ms:.1f} ms for data{workers}, but "
            f"{handed:.2f} ms a batch: a worker takes about {HANDOVER_MS:.0f} ms to hand one over, so only a comparison "
            "can tell"
        )
        return Answer(Verdict.INCONCLUSIVE, text, "loader_wait_share", seen)
    if finding.code == "TL303" and least >= delta and keeps_all_cores_busy(evidence):
        text = (
            f"the step waits {span(least, most)} of its {timing.median_ms:.1f} ms for data{workers}, but it keeps "
            f"{cores_text(usable_cpus())} busy all the time: workers would take turns with it, so only a comparison can tell"
        )
        return Answer(Verdict.INCONCLUSIVE, text, "loader_wait_share", seen)
    if least >= delta:
        text = f"the step waits {span(least, most)} of its {timing.median_ms:.1f} ms for data{workers}"
        return Answer(Verdict.CONFIRMED, text, "loader_wait_share", seen)
    why = "the launches disagree" if most >= delta else "near the least that counts"
    text = f"the step waits {span(least, most)} of its time for data: {why} ({delta:.0%})"
    return Answer(Verdict.INCONCLUSIVE, text, "loader_wait_share", seen)


def keeps_all_cores_busy(evidence: Evidence) -> bool:
    """Without a GPU, data that is computed competes with the step; data that is waited for does not."""
    timing = evidence.timing
    return timing is not None and not evidence.cuda and timing.cpu_share >= ALL_BUSY * usable_cpus()


def wait_of_a_batch_ms(loader: dict[str, Any]) -> float | None:
    """Of those after the first of an iterator, which has the start in it."""
    later = loader["batches"] - len(loader["start_ns"])
    return loader["wait_ns"] / later / 1e6 if later > 0 else None


def _not_for_training(loader: dict[str, Any]) -> Answer:
    waits = wait_of_a_batch_ms(loader)
    text = "the loader of this line is not the one that is trained on"
    if waits is not None:
        text += f"; it waits {waits:.2f} ms a batch"
    return Answer(Verdict.INCONCLUSIVE, f"{text}, and no share of an evaluation was measured", "", {"loader": loader})


def loader_start(finding: Finding, evidence: Evidence) -> Answer:
    """Making an iterator and getting its first batch, against the steps between two of them."""
    timing = evidence.timing
    if timing is None:
        return no_steps("step times")
    starts, loader = _starts(finding, evidence)
    if loader is None:
        return Answer(Verdict.INCONCLUSIVE, "no loader that was made on this line was iterated", "loader_start_share")
    cost_ms = median(starts[1:] or starts) / 1e6
    if loader["role"] != "train":
        text = (
            f"each new iterator costs {cost_ms:.0f} ms before its first batch; it is not the one that is trained on, "
        )
        text += "and how much lies between two evaluations was not measured"
        return Answer(
            Verdict.INCONCLUSIVE, text, "", {"start_ms": cost_ms, "starts_seen": len(starts), "loader": loader}
        )
    batches = _batches_per_turn(loader)
    batch_ms = timing.median_ms / _batches_per_step(loader, evidence)
    epoch_ms = batches * batch_ms
    part = share(cost_ms, epoch_ms + cost_ms)
    seen = {
        "start_ms": cost_ms,
        "batches_per_turn": batches,
        "share": part,
        "starts_seen": len(starts),
        "loader": loader,
    }
    turn = f"{batches:.0f} batches of {batch_ms:.1f} ms"
    text = f"each new iterator costs {cost_ms:.0f} ms before its first batch, for {turn}"
    if len(starts) < 2:
        return Answer(Verdict.INCONCLUSIVE, text + "; only one start was seen", "loader_start_share", seen)
    if part >= evidence.min_effect:
        return Answer(Verdict.CONFIRMED, f"{text}: {part:.0%} of the time", "loader_start_share", seen)
    if part < evidence.min_effect / 2:
        return Answer(Verdict.REFUTED, f"{text}: {part:.1%} of the time", "loader_start_share", seen)
    return Answer(Verdict.INCONCLUSIVE, f"{text}: {part:.1%} of the time", "loader_start_share", seen)


def _loaders_at(finding: Finding, evidence: Evidence) -> list[dict[str, Any]]:
    """From the pass that had most turns: the timing pass rarely reaches a second epoch."""
    found: list[dict[str, Any]] = []
    for outcome in (evidence.timed, evidence.broken_down):
        result = evidence.first(outcome)
        here = [
            loader
            for loader in (result or {}).get("loaders", ())
            if finding.covers(loader["site"][0], loader["site"][1])
        ]
        if sum(loader["iterators"] for loader in here) > sum(loader["iterators"] for loader in found):
            found = here
    return found


def _loader_at(finding: Finding, evidence: Evidence) -> dict[str, Any] | None:
    result = evidence.first(evidence.timed)
    loaders = (result or {}).get("loaders", [])
    here = [loader for loader in loaders if finding.covers(loader["site"][0], loader["site"][1])]
    trained = here or [loader for loader in loaders if loader["role"] == "train"]
    return trained[0] if trained else None


def _starts(finding: Finding, evidence: Evidence) -> tuple[list[float], dict[str, Any] | None]:
    loaders = _loaders_at(finding, evidence)
    if not loaders:  # TL315 points at `next(iter(loader))`, not at the loader
        result = evidence.first(evidence.timed)
        loaders = [loader for loader in (result or {}).get("loaders", ()) if loader["role"] == "train"][:1]
    starts = [float(start) for loader in loaders for start in loader["start_ns"]]
    return starts, (loaders[0] if loaders else None)


def _batches_per_step(loader: dict[str, Any], evidence: Evidence) -> int:
    """More than one under gradient accumulation."""
    result = evidence.first(evidence.timed)
    steps = steps_done(result) if result is not None else 0
    return max(1, round(share(float(loader["batches"]), float(steps))))


def _batches_per_turn(loader: dict[str, Any]) -> float:
    taken = share(float(loader["batches"]), float(loader["iterators"]))
    if loader["length"] and (loader["ended_early"] or loader["iterators"] < 3):
        return float(loader["length"])  # turns were cut short by us, or by the end of the run
    return max(1.0, taken)


EXPERIMENTS: dict[str, Experiment] = {"loader_wait": loader_wait, "loader_start": loader_start}

"""Does the line make the host wait for the device, and on how many of the steps?"""

from __future__ import annotations

from runtime_check.evidence import Answer, Evidence, Experiment, Verdict, no_steps
from runtime_check.findings import Finding
from runtime_check.measures import sums

RARE = 0.5  # a line that ran on fewer steps than this is not "on every step"


def syncs(finding: Finding, evidence: Evidence) -> Answer:
    """The claim is a count per step.

    What it costs in time takes a comparison: the host would have waited later anyway.
    """
    steps = evidence.observed_steps
    result = evidence.first(evidence.observed)
    if result is None or not steps:
        return no_steps("synchronisations")
    hits = [site for site in result.get("syncs", ()) if finding.covers(site["file"], site["line"])]
    on_steps = max((site["steps"] for site in hits), default=0)
    calls = sum(site["calls"] for site in hits)
    steps = max(steps, on_steps)  # a run that ended within a step has seen a part of one more
    eval_batches = int(sums(result, "eval_batches", range(len(result["boundaries_ns"]) + 1)))
    in_eval = max((site["eval_batches"] for site in hits), default=0)
    eval_batches = max(eval_batches, in_eval)
    seen = {
        "kind": result.get("syncs_kind"),
        "calls": calls,
        "count_per_step": calls / steps,
        "steps_with_it": on_steps,
        "steps_seen": steps,
        "eval_batches_with_it": in_eval,
        "eval_batches_seen": eval_batches,
        "what": sorted({site["what"] for site in hits}),
    }
    line = f"line {finding.row}"
    would = "synchronised" if evidence.cuda else "would synchronise a GPU"
    if on_steps >= RARE * steps:
        why = f"{line} {would} on {on_steps} of {steps} steps, {calls / steps:.1f} times a step"
        return Answer(Verdict.CONFIRMED, why + _cost(evidence), "syncs_per_step", seen)
    if eval_batches and in_eval >= RARE * eval_batches:
        why = f"{line} {would} on {in_eval} of {eval_batches} evaluation batches"
        return Answer(Verdict.CONFIRMED, why + _cost(evidence), "syncs_per_eval_batch", seen)
    did = "synchronised" if evidence.cuda else "would have synchronised"
    why = f"{line} {did} on {on_steps} of {steps} steps (claim: every step)"
    return Answer(Verdict.REFUTED, why, "syncs_per_step", seen)


def _cost(evidence: Evidence) -> str:
    if evidence.cuda:
        return ""  # that is for a comparison to say
    return "; a CPU has nothing to wait for, so its cost in time shows on a GPU only"


EXPERIMENTS: dict[str, Experiment] = {"syncs": syncs}

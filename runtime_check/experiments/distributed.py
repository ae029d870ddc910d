"""Claims about several ranks: collectives and DDP's gradient reductions per step, counted."""

from __future__ import annotations

from runtime_check.evidence import Answer, Evidence, Experiment, Verdict, no_steps
from runtime_check.findings import Finding

REDUCTION = "gradient reduction (DDP)"


def reductions(finding: Finding, evidence: Evidence) -> Answer:
    result = evidence.first(evidence.observed)
    steps = evidence.collective_steps
    if result is None or not steps:
        return no_steps("collectives")
    if result["world"] < 2:
        return Answer(Verdict.NOT_RUN, 'ran with one rank: give --launcher "torchrun --nproc_per_node=2"')
    count = sum(call["calls"] for call in result.get("collectives", ()) if call["what"] == REDUCTION)
    per_step = count / steps
    facts = {"reductions_per_step": per_step, "steps_seen": steps}
    text = f"gradients are reduced {per_step:.1f} times per optimizer step"
    if per_step > 1.5:
        return Answer(Verdict.CONFIRMED, f"{text}; once is enough", "reductions_per_step", facts)
    return Answer(Verdict.REFUTED, text, "reductions_per_step", facts)


def collectives(finding: Finding, evidence: Evidence) -> Answer:
    result = evidence.first(evidence.observed)
    steps = evidence.collective_steps
    if result is None or not steps:
        return no_steps("collectives")
    if result["world"] < 2:
        return Answer(Verdict.NOT_RUN, 'ran with one rank: give --launcher "torchrun --nproc_per_node=2"')
    calls = [call for call in result.get("collectives", ()) if finding.covers(call["file"], call["line"])]
    count = sum(call["calls"] for call in calls)
    facts = {"calls_per_step": count / steps, "what": sorted({call["what"] for call in calls})}
    if count * 2 >= steps:
        text = f"line {finding.row} runs {count / steps:.1f} collectives a step; their cost in time was not compared"
        return Answer(Verdict.CONFIRMED, text, "collectives_per_step", facts)
    return Answer(
        Verdict.REFUTED, f"{count} collectives in {steps} steps (claim: every step)", "collectives_per_step", facts
    )


EXPERIMENTS: dict[str, Experiment] = {"collectives": collectives, "reductions": reductions}

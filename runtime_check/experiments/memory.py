"""Claims about memory: counted bytes, not timed."""

from __future__ import annotations

from typing import Any

from runtime_check.evidence import Answer, Evidence, Experiment, Verdict, no_steps
from runtime_check.findings import Finding
from runtime_check.measures import bytes_text
from runtime_check.statistics import Slope, slope

KEPT_NUMBERS = 1024.0  # a step: two numbers that are kept take this much, detached or not
NOISE_BYTES = 64.0  # growth per step below this is no growth: storages are rounded up to 512 bytes


def _memory(evidence: Evidence) -> dict[str, Any] | None:
    result = evidence.first(evidence.memory)
    return result.get("memory") if result else None


def evaluation_graph(finding: Finding, evidence: Evidence) -> Answer:
    """Bytes that autograd saved during evaluation, for a backward that never comes."""
    memory = _memory(evidence)
    if memory is None:
        return no_steps("memory counts")
    forwards = memory["eval_graph"]
    if not forwards:
        return Answer(Verdict.INCONCLUSIVE, "no evaluation was reached within the steps that ran", "eval_graph_bytes")
    held = max(forward["bytes"] for forward in forwards)
    peak = memory["phases"].get("eval", {}).get("peak", 0)
    seen = {"eval_graph_bytes": held, "eval_peak_bytes": peak, "eval_batches_seen": len(forwards)}
    if held == 0:
        return Answer(
            Verdict.REFUTED, f"autograd kept nothing in {len(forwards)} evaluation batches", "eval_graph_bytes", seen
        )
    growth = slope(memory["eval_bytes"])
    text = f"evaluation held {bytes_text(held)} of graph per batch, at a peak of {bytes_text(peak)}"
    if growth is not None and growth.low > NOISE_BYTES:
        text += f", and {bytes_text(growth.value)} more with each batch"
        seen["growth_per_eval_batch"] = growth.value
    elif peak and held < evidence.min_effect * peak:
        return Answer(Verdict.REFUTED, f"{text}: less than {evidence.min_effect:.0%} of it", "eval_graph_bytes", seen)
    return Answer(Verdict.CONFIRMED, text, "eval_graph_bytes", seen)


def growth(finding: Finding, evidence: Evidence) -> Answer:
    """Live bytes at the step boundaries, against the step."""
    memory = _memory(evidence)
    result = evidence.first(evidence.memory)
    if memory is None or result is None:
        return no_steps("memory counts")
    error = _second_backward(evidence)
    if finding.code == "TL206" and error:
        return Answer(Verdict.CONFIRMED, f"backward ran through the graph of an earlier step: {error}", "crash")
    found = growth_per_step(result)
    if found is None:
        return Answer(Verdict.INCONCLUSIVE, "too few steps to see a growth", "growth_per_step")
    at_line = [line for line in memory["grown_by_line"] if finding.covers(line["file"], line["line"])]
    seen = {
        "bytes_per_step": found.value,
        "interval": [found.low, found.high],
        "points": found.points,
        "bytes_kept_by_the_line": sum(line["bytes"] for line in at_line),
    }
    interval = f"[{bytes_text(found.low)}, {bytes_text(found.high)}]"
    text = f"live tensor bytes rise by {bytes_text(found.value)} a step {interval}"
    if finding.code == "TL202" and NOISE_BYTES < found.low <= KEPT_NUMBERS:
        text += ": as much as kept numbers take without their graph, so only a comparison can tell"
        return Answer(Verdict.INCONCLUSIVE, text, "growth_per_step", seen)
    if found.low > NOISE_BYTES:
        return Answer(Verdict.CONFIRMED, text, "growth_per_step", seen)
    if found.high <= NOISE_BYTES:
        text = f"live tensor bytes do not rise over {found.points} steps"
        if finding.code == "TL202":
            text += " (a graph's nodes, which hold no tensors after a backward, are not counted)"
        return Answer(Verdict.REFUTED, text, "growth_per_step", seen)
    return Answer(Verdict.INCONCLUSIVE, text + ": more steps would tell", "growth_per_step", seen)


def growth_per_step(result: dict[str, Any]) -> Slope | None:
    """Slope of the live bytes over the plain boundaries after the warm-up."""
    memory = result.get("memory")
    if not memory:
        return None
    values = memory["boundary_bytes"]
    first = int(result["warmup"]) + 1
    plain = [value for n, value in enumerate(values) if n >= first and not _disturbed(result, n)]
    return slope(plain)


def _disturbed(result: dict[str, Any], boundary: int) -> bool:
    return bool(set(result["flags"].get(str(boundary), ())) & {"eval", "loader_started"})


def _second_backward(evidence: Evidence) -> str:
    for outcome in (evidence.failed, evidence.memory, evidence.observed):
        for error in outcome.errors if outcome is not None else ():
            if "backward through the graph a second time" in error["message"]:
                return str(error["message"]).splitlines()[0][:160]
    return ""


def evaluation_growth(finding: Finding, evidence: Evidence) -> Answer:
    """Tensors of each evaluation batch that stay alive."""
    memory = _memory(evidence)
    if memory is None:
        return no_steps("memory counts")
    found = slope(memory["eval_bytes"])
    if found is None:
        return Answer(Verdict.INCONCLUSIVE, "fewer than four evaluation batches were reached", "growth_per_eval_batch")
    seen = {"bytes_per_batch": found.value, "interval": [found.low, found.high], "points": found.points}
    if found.low > NOISE_BYTES:
        text = f"each evaluation batch leaves {bytes_text(found.value)} behind"
        return Answer(Verdict.CONFIRMED, text, "growth_per_eval_batch", seen)
    if found.high <= NOISE_BYTES:
        text = f"evaluation batches leave nothing behind ({found.points} seen)"
        return Answer(Verdict.REFUTED, text, "growth_per_eval_batch", seen)
    return Answer(
        Verdict.INCONCLUSIVE, "live bytes during evaluation neither rise nor stay: more batches would tell", "", seen
    )


def idle_parameters(finding: Finding, evidence: Evidence) -> Answer:
    """Parameters that the optimizer holds and that never got a gradient."""
    result = evidence.first(evidence.observed)
    behaviours = result.get("behaviours") if result else None
    if not behaviours or behaviours["idle_parameter_bytes"] is None:
        return no_steps("gradients")
    idle = behaviours["idle_parameter_bytes"]
    seen = {"idle_parameter_bytes": idle, "steps_seen": behaviours["steps"]}
    if idle:
        text = f"parameters of {bytes_text(idle)} got no gradient on any of {behaviours['steps']} steps"
        return Answer(Verdict.CONFIRMED, text, "idle_parameter_bytes", seen)
    return Answer(
        Verdict.REFUTED, f"every parameter of the optimizer got a gradient ({behaviours['steps']} steps)", "", seen
    )


EXPERIMENTS: dict[str, Experiment] = {
    "evaluation_graph": evaluation_graph,
    "evaluation_growth": evaluation_growth,
    "growth": growth,
    "idle_parameters": idle_parameters,
}

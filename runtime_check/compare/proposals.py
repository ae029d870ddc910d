"""Findings -> comparisons that would answer them, with the most that each could save. Pure but for reading sources."""

from __future__ import annotations

import os
from collections.abc import Callable

from runtime_check.compare.fixes import fixed_source, read_text, steers
from runtime_check.compare.records import Change, Design, Proposal
from runtime_check.evidence import Evidence
from runtime_check.findings import Finding

PREFETCH = 2  # batches that each worker holds ready, by default

#: What makes the comparison of one finding; None: this finding needs none, or none can be made here.
Maker = Callable[[Finding, Evidence], "Proposal | None"]

#: Answered well enough by what was observed: a comparison between blocks of steps cannot see the start of a loader.
_OBSERVED_ONLY = frozenset(("TL305", "TL307", "TL315", "TL306", "TL309", "TL314"))


def propose(finding: Finding, evidence: Evidence) -> Proposal | None:
    """The comparison for one finding. A virtual change, toggled in one process, goes before a fix of the source."""
    return _MAKERS.get(finding.code, _from_fix)(finding, evidence)


def _rows(finding: Finding) -> tuple[int, int]:
    return finding.row, finding.end_row


def _at(finding: Finding, kind: str, title: str, **parameters: object) -> Change:
    return Change(kind, title, finding.path, _rows(finding), dict(parameters))


# -- time, by a toggle


def _elided(finding: Finding, evidence: Evidence) -> Proposal | None:
    if not evidence.cuda:
        return None  # a CPU has nothing to wait for
    title = f"without the wait on line {finding.row}"
    change = _at(finding, "elide_sync", title)
    return Proposal(change, Design.TOGGLE, "step_time", 1.0, finding, steers(finding.path, *_rows(finding)))


def _without_synchronize(finding: Finding, evidence: Evidence) -> Proposal | None:
    return _skipped(finding, "torch.cuda.synchronize") if evidence.cuda else None


def _without_housekeeping(finding: Finding, evidence: Evidence) -> Proposal | None:
    lines = (read_text(finding.path) or "").splitlines()[finding.row - 1 : finding.end_row]
    if any("collect" in line for line in lines):
        return _skipped(finding, "gc.collect")
    if not evidence.cuda:
        return None
    return _skipped(finding, "torch.cuda.empty_cache")


def _skipped(finding: Finding, call: str) -> Proposal:
    return Proposal(_at(finding, "skip_call", f"without {call}()", call=call), Design.TOGGLE, "step_time", 1.0, finding)


def _not_blocking(finding: Finding, evidence: Evidence) -> Proposal | None:
    if not evidence.cuda:
        return None
    change = _at(finding, "non_blocking", "with non_blocking=True")
    return Proposal(change, Design.TOGGLE, "step_time", _share(evidence, "host_to_device", "forward"), finding)


def _without_anomaly(finding: Finding, evidence: Evidence) -> Proposal | None:
    if "anomaly" not in finding.message:
        return None
    change = Change("anomaly_off", "without anomaly detection")
    return Proposal(change, Design.TOGGLE, "step_time", 1.0, finding)


def _tf32(finding: Finding, evidence: Evidence) -> Proposal | None:
    if not evidence.cuda:
        return None
    flags = {"backends.cuda.matmul.allow_tf32": True, "backends.cudnn.allow_tf32": True}
    change = Change("flag", "with TF32", parameters={"flags": flags})
    return Proposal(change, Design.TOGGLE, "step_time", _share(evidence, "forward", "backward"), finding)


def _without_benchmark(finding: Finding, evidence: Evidence) -> Proposal | None:
    if not evidence.cuda:
        return None
    change = Change("flag", "without cudnn.benchmark", parameters={"flags": {"backends.cudnn.benchmark": False}})
    return Proposal(change, Design.TOGGLE, "step_time", _share(evidence, "forward", "backward"), finding)


def _fused(finding: Finding, evidence: Evidence) -> Proposal | None:
    if not evidence.cuda:
        return None
    change = Change("optimizer", "with fused=True", parameters={"options": {"fused": True, "foreach": False}})
    return Proposal(change, Design.TOGGLE, "step_time", _share(evidence, "optimizer"), finding)


# -- loaders, by pairs


def _workers(finding: Finding, evidence: Evidence) -> Proposal | None:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    count = 4 if cores >= 8 else 2
    change = _at(finding, "loader", f"num_workers={count}", options={"num_workers": count})
    timing = evidence.timing
    # Slack on purpose: moving the work out also speeds up the rest.
    gain = 1.0 if timing is None else min(1.0, 2 * timing.wait_share)
    return Proposal(change, Design.PAIRS, "step_time", gain, finding, block=count * PREFETCH + 1)


def _pinned(finding: Finding, evidence: Evidence) -> Proposal | None:
    if not evidence.cuda:
        return None
    change = _at(finding, "loader", "pin_memory=True", options={"pin_memory": True})
    return Proposal(change, Design.PAIRS, "step_time", _share(evidence, "host_to_device", "loader"), finding)


# -- memory


def _eval_no_grad(finding: Finding, evidence: Evidence) -> Proposal | None:
    change = Change("eval_no_grad", "evaluation without a graph")
    return Proposal(change, Design.MEMORY, "eval_peak_bytes", 1.0, finding)


def _without_retain_graph(finding: Finding, evidence: Evidence) -> Proposal | None:
    change = _at(finding, "backward_arguments", "without retain_graph", arguments={"retain_graph": False})
    return Proposal(change, Design.MEMORY, "train_peak_bytes", 1.0, finding)


def _growth(metric: str) -> Maker:
    def make(finding: Finding, evidence: Evidence) -> Proposal | None:
        texts = fixed_source(finding)
        return _source(finding, texts, Design.MEMORY, metric, 1.0) if texts else None

    return make


def _no_sync(finding: Finding, evidence: Evidence) -> Proposal | None:
    result = evidence.first(evidence.observed)
    micro = round(evidence.micro_batches)
    if result is None or result["world"] < 2 or micro < 2:
        return None
    title = "no_sync on all micro-batches but the last"
    change = Change("no_sync", title, parameters={"micro_batches": micro})
    return Proposal(change, Design.TOGGLE, "step_time", 1.0, finding)


_MAKERS: dict[str, Maker] = {
    "TL101": _elided,
    "TL102": _elided,
    "TL103": _elided,
    "TL104": _without_synchronize,
    "TL105": _without_housekeeping,
    "TL106": _not_blocking,
    "TL109": _elided,
    "TL201": _eval_no_grad,
    "TL202": _growth("growth_per_step"),
    "TL203": _without_retain_graph,
    "TL205": _growth("growth_per_eval_batch"),
    "TL206": _growth("growth_per_step"),
    "TL207": _eval_no_grad,
    "TL208": _without_anomaly,
    "TL209": _eval_no_grad,
    "TL303": _workers,
    "TL304": _pinned,
    "TL410": _tf32,
    "TL503": _no_sync,
    "TL703": _without_benchmark,
    "TL704": _fused,
}


# -- whatever else has a fix: the fixed source against the original


def _from_fix(finding: Finding, evidence: Evidence) -> Proposal | None:
    if finding.code in _OBSERVED_ONLY or finding.claim not in _BY_CLAIM:
        return None
    if finding.claim == "sync" and not evidence.cuda:
        return None  # a CPU has nothing to wait for
    texts = fixed_source(finding)
    if texts is None:
        return None
    return _source(finding, texts, *_BY_CLAIM[finding.claim], 1.0)


_BY_CLAIM = {
    "time": (Design.PAIRS, "step_time"),
    "loader": (Design.PAIRS, "step_time"),
    "sync": (Design.PAIRS, "step_time"),
    "memory": (Design.MEMORY, "train_peak_bytes"),
}


def _source(finding: Finding, texts: dict[str, str], design: Design, metric: str, gain: float) -> Proposal:
    fix = finding.fix or {}
    message = str(fix.get("message") or "the fix").strip().rstrip(".")
    unsafe = ", unsafe" if fix.get("applicability") == "unsafe" else ""
    change = Change("source", f"fixed ({message}{unsafe})", finding.path, _rows(finding), overlay=texts)
    return Proposal(change, design, metric, gain, finding)


def _share(evidence: Evidence, *phases: str) -> float:
    shares = evidence.shares
    return 1.0 if shares is None else min(1.0, sum(shares.get(phase, 0.0) for phase in phases))

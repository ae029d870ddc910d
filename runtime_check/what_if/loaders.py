"""Candidates that are options of the training loader. Pure but for reading sources."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from runtime_check import machine
from runtime_check.compare.proposals import PREFETCH
from runtime_check.compare.records import Change, Design, Proposal
from runtime_check.evidence import Evidence
from runtime_check.statistics import median
from runtime_check.what_if import edits
from runtime_check.what_if.parts import NO_CUDA, UNKNOWN, Parts, share_of
from runtime_check.what_if.records import Candidate, not_run

_NO_LOADER = "the script trains from no DataLoader"
_NO_WORKERS = "the training loader has no workers"


def workers(evidence: Evidence, parts: Parts) -> list[Candidate]:
    """0, 2, 4, and as many as cores."""
    loader = parts.training_loader
    if loader is None:
        return not_run("workers", "num_workers", _NO_LOADER)
    now, found = loader["workers"], []
    for count in sorted({0, 2, 4, machine.usable_cpus()} - {now}):
        gain = _waits(evidence) if count > now else UNKNOWN
        block = max(count, now) * _prefetched(loader) + 1
        found.append(_loader(loader, "workers", f"num_workers={count}", {"num_workers": count}, gain, block))
    return found


def persistent(evidence: Evidence, parts: Parts) -> list[Candidate]:
    """Workers that live on: what an epoch saves is their start, so blocks are whole epochs."""
    loader, title, name = parts.training_loader, "persistent_workers=True", "persistent-workers"
    if loader is None:
        return not_run(name, title, _NO_LOADER)
    if not loader["workers"]:
        return not_run(name, title, _NO_WORKERS)
    if loader["persistent_workers"]:
        return not_run(name, title, "the workers live on already")
    if parts.world > 1:
        return not_run(name, title, "whole epochs are compared on one rank only")
    if not loader["length"]:
        return not_run(name, title, "how many batches an epoch has is not known")
    steps = max(1, math.ceil(loader["length"] / parts.backwards_per_step))
    gain = _start_share(evidence, loader, steps)
    made = _loader(loader, name, title, {"persistent_workers": True}, gain, steps)
    remark = f"over whole epochs of {steps} steps, with all that they hold"
    return [replace(made, remark=remark)]


def prefetch(evidence: Evidence, parts: Parts) -> list[Candidate]:
    """Twice as many batches ahead."""
    loader, title, name = parts.training_loader, "prefetch_factor", "prefetch-factor"
    if loader is None:
        return not_run(name, title, _NO_LOADER)
    if not loader["workers"]:
        return not_run(name, title, _NO_WORKERS)
    factor = 2 * _prefetched(loader)
    block = loader["workers"] * factor + 1
    title = f"prefetch_factor={factor}"
    return [_loader(loader, name, title, {"prefetch_factor": factor}, _waits(evidence), block)]


def pinned(evidence: Evidence, parts: Parts) -> list[Candidate]:
    loader, title = parts.training_loader, "pin_memory=True"
    if not evidence.cuda:
        return not_run("pin-memory", title, NO_CUDA)
    if loader is None:
        return not_run("pin-memory", title, _NO_LOADER)
    if loader["pin_memory"]:
        return not_run("pin-memory", title, "the loader pins already")
    gain = 2 * share_of(evidence, "host_to_device", "loader")
    return [_loader(loader, "pin-memory", title, {"pin_memory": True}, gain)]


def batch_size(evidence: Evidence, parts: Parts) -> list[Candidate]:
    loader = parts.training_loader
    if loader is None or not loader["batch_size"]:
        reason = "the script trains from no DataLoader with a batch size"
        return not_run("batch-size", "batch_size", reason)
    found = []
    for size in batch_sizes(loader["batch_size"]):
        made = _loader(loader, "batch-size", f"batch_size={size}", {"batch_size": size}, UNKNOWN)
        assert made.time is not None
        time = replace(made.time, metric="sample_time")
        memory = Proposal(time.change, Design.MEMORY, "train_peak_bytes", UNKNOWN)
        remark = "per sample; a batch of another size learns otherwise, and wants another learning rate"
        found.append(replace(made, time=time, memory=memory, remark=remark))
    return found


def batch_sizes(now: int) -> list[int]:
    """Half, double, and the next multiple of 8."""
    sizes = {now // 2, 2 * now, -(-now // 8) * 8}
    return sorted(sizes - {now, 0})


def _waits(evidence: Evidence) -> float:
    """Bound on what faster data saves. Slack on purpose: moving the work out also speeds up the rest."""
    timing = evidence.timing
    return UNKNOWN if timing is None else min(1.0, 2 * timing.wait_share)


def _prefetched(loader: dict[str, Any]) -> int:
    return int(loader.get("prefetch_factor") or PREFETCH)


def _start_share(evidence: Evidence, loader: dict[str, Any], steps: int) -> float:
    """Of a whole epoch: from making the loader's iterator to its first batch."""
    timing = evidence.timing
    if timing is None or not loader["start_ns"]:
        return UNKNOWN
    start_ms = median(loader["start_ns"]) / 1e6
    return start_ms / (start_ms + steps * timing.median_ms)


def _loader(
    loader: dict[str, Any], name: str, title: str, options: dict[str, object], gain: float, block: int = 1
) -> Candidate:
    site: edits.Site = list(loader["site"])
    known = bool(site[1])
    change = Change(
        "loader", title, site[0] if known else None, (site[1], site[1]) if known else None, {"options": options}
    )
    keywords = {key: repr(value) for key, value in options.items()}
    lines = edits.call_with(site, ("DataLoader",), keywords)
    return Candidate(name, title, Proposal(change, Design.PAIRS, "step_time", gain, block=block), edits=lines)

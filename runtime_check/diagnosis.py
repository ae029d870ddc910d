"""What holds the run back, without any finding: the answer that a person would otherwise work out by hand.

One bottleneck is named, in the order in which they hide one another: memory (nothing runs without it), data,
synchronisation, compute.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from runtime_check.evidence import Evidence
from runtime_check.experiments.loader import HANDOVER_MS, keeps_all_cores_busy, wait_of_a_batch_ms
from runtime_check.experiments.memory import growth_per_step
from runtime_check.machine import Utilisation
from runtime_check.measures import bytes_text, steps_seen
from runtime_check.statistics import median, quantile, span

INPUT_BOUND = 0.15  # share of the step spent waiting for data from which on data is the bottleneck
UNCLAIMED = 0.5  # share of the step in no known part from which on it is not called computing: it may only wait
NEARLY_FULL = 0.9  # of the device's memory
IDLE_GPU = 0.5
JITTERY = 1.0  # the middle 80 % of the steps spread by the median step
TOP_LINES = 10
STRAGGLER_STEPS = 5  # at least, before a rank is called slow
START_COUNTS = 0.9  # of the peak of the first steps, beside the one of the steps after them


@dataclass(frozen=True)
class Hotspot:
    """A source line, with what it is listed for."""

    file: str
    line: int
    amount: float  # bytes, or calls per step
    what: str


@dataclass(frozen=True)
class Diagnosis:
    bound: str  # input-bound, sync-bound, compute-bound, memory-bound, unknown
    because: str
    next_step: str
    breakdown: dict[str, float] = field(default_factory=dict)
    peak: dict[str, int] = field(default_factory=dict)  # phase -> bytes
    peak_by_category: dict[str, int] = field(default_factory=dict)
    growth_per_step: float | None = None
    memory_lines: tuple[Hotspot, ...] = ()
    sync_lines: tuple[Hotspot, ...] = ()
    notes: tuple[str, ...] = ()


def diagnose(evidence: Evidence, utilisation: Utilisation | None, ran_out_of_memory: bool = False) -> Diagnosis:
    bound, because, next_step = _bottleneck(evidence, utilisation, ran_out_of_memory)
    memory = _memory(evidence)
    phases = _phase_peaks(memory)
    growth = growth_per_step(evidence.first(evidence.memory) or {}) if memory else None
    grows = growth is not None and growth.low > 0
    return Diagnosis(
        bound=bound,
        because=because,
        next_step=next_step,
        breakdown=evidence.shares or {},
        peak=phases,
        peak_by_category=_largest_phase(memory).get("by_category", {}),
        growth_per_step=growth.value if growth is not None and grows else (0.0 if growth is not None else None),
        memory_lines=_memory_lines(evidence, memory),
        sync_lines=_sync_lines(evidence),
        notes=tuple(_notes(evidence, memory, growth.value if growth is not None and grows else 0.0)),
    )


def _bottleneck(evidence: Evidence, utilisation: Utilisation | None, ran_out: bool) -> tuple[str, str, str]:
    if ran_out:
        return "memory-bound", "the run ran out of memory", "free memory first: see what held it"
    timing, waits = evidence.timing, evidence.wait_shares
    if timing is None or waits is None:
        return (
            "unknown",
            "no step was timed",
            "make the script reach some five steps: more data, more epochs, more time",
        )
    full = _device_memory(evidence)
    if full is not None and full >= NEARLY_FULL:
        because = f"the peak takes {full:.0%} of the device's memory"
        return "memory-bound", because, "activation checkpointing or autocast; then a larger batch"
    if waits[0] >= INPUT_BOUND:  # in each launch that looked at it
        because = f"the step waits {span(*waits)} of its time for data"
        return "input-bound", because, _loader_advice(evidence)
    if waits[1] >= INPUT_BOUND and waits[1] - waits[0] > INPUT_BOUND:  # a stall of the machine, or rare slow batches
        because = f"in one launch the step waits {waits[0]:.0%} of its time for data, in another {waits[1]:.0%}"
        return "unknown", because, "run it with more --steps, on a quieter machine"
    syncs = _syncs_per_step(evidence)
    gpu = utilisation.gpu if utilisation is not None else None
    if evidence.cuda and syncs >= 1 and gpu is not None and gpu < IDLE_GPU:
        because = f"the GPU is busy {gpu:.0%} of the time while the host waits for it {syncs:.1f} times a step"
        return "sync-bound", because, "take the synchronising lines below out of the step"
    shares = evidence.shares or {}
    rest = [name for name in shares if name != "loader"]  # its share was said already, from both launches
    largest = max(rest, key=lambda name: shares[name]) if rest else "the step"
    because = f"waiting for data takes {span(*waits)} of the step"
    if shares:
        because += f"; {_PHASE_NAMES.get(largest, largest)} takes {shares[largest]:.0%}"
    late = _straggler(evidence)
    if late is not None:
        if largest == "backward" and late.rank != 0:  # the parts are those of rank 0: it waits for the others there
            because += f", which waits for rank {late.rank}"
        return "compute-bound", because, f"find what rank {late.rank} does before its first backward: all wait for it"
    if largest == "other" and not evidence.cuda and shares["other"] >= UNCLAIMED:  # on CUDA the host waits there
        return "unknown", because, _compute_advice(largest, evidence, gpu)
    return "compute-bound", because, _compute_advice(largest, evidence, gpu)


_PHASE_NAMES = {
    "loader": "waiting for data",
    "host_to_device": "host to device",
    "forward": "forward and loss",
    "backward": "backward",
    "optimizer": "optimizer",
    "other": "other",
}


def phase_name(phase: str) -> str:
    return _PHASE_NAMES.get(phase, phase)


def _loader_advice(evidence: Evidence) -> str:
    result = evidence.first(evidence.timed) or {}
    loaders = [loader for loader in result.get("loaders", ()) if loader["role"] == "train"]
    if not loaders:
        return "load the data in worker processes"
    loader = max(loaders, key=lambda loader: loader["wait_ns"])
    place = f"{loader['site'][0]}:{loader['site'][1]}"
    waits = wait_of_a_batch_ms(loader)
    if loader["workers"] and waits is not None and waits < HANDOVER_MS:
        return (
            f"larger batches, or num_workers=0 at {place}: a worker takes about {HANDOVER_MS:.0f} ms to hand over "
            f"a batch, and this is all of the wait ({waits:.2f} ms)"
        )
    if not loader["workers"] and waits is not None and waits < HANDOVER_MS:
        return (
            f"larger batches, or a whole batch by one index at {place}: a worker takes about as long to hand over "
            f"a batch as this one takes to make it ({waits:.2f} ms)"
        )
    if not loader["workers"] and keeps_all_cores_busy(evidence):
        return (
            f"less work per item at {place}: all cores are busy already, so that workers would take turns with the step"
        )
    if not loader["workers"]:
        return f"num_workers=2 and more at {place} (it is 0)"
    return f"more than num_workers={loader['workers']} at {place}, or less work per item"


def _compute_advice(largest: str, evidence: Evidence, gpu: float | None) -> str:
    if evidence.cuda and gpu is not None and gpu < IDLE_GPU:
        return f"the GPU is busy {gpu:.0%} of the time: a larger batch, torch.compile, or a fused optimizer"
    if largest == "other":
        return "the largest part is outside forward, backward and optimizer: look at what the loop does between them"
    if largest == "optimizer" and _calls_closure(evidence):
        return "fewer iterations in each step of the optimizer (max_iter), or one that takes a single backward a step"
    if largest == "optimizer":
        return "a fused or foreach optimizer, or fewer, larger parameters"
    return "autocast and torch.compile on a GPU; a larger batch where memory allows"


def _calls_closure(evidence: Evidence) -> bool:
    """LBFGS has neither a fused nor a foreach form: a step of it is a search with a closure."""
    result = evidence.first(evidence.timed) or {}
    anchor = result.get("anchor")
    return anchor is not None and result["optimizers"][anchor]["type"] == "LBFGS"


def _syncs_per_step(evidence: Evidence) -> float:
    result = evidence.first(evidence.observed)
    steps = evidence.observed_steps
    if result is None or not steps:
        return 0.0
    return float(sum(site["calls"] for site in result.get("syncs", ())) / steps)


def _device_memory(evidence: Evidence) -> float | None:
    result = evidence.first(evidence.memory)
    cuda = result.get("cuda_memory") if result else None
    if not cuda or not cuda["steps"]:
        return None
    return float(max(step["reserved"] for step in cuda["steps"]) / cuda["total"])


def _memory(evidence: Evidence) -> dict[str, Any]:
    result = evidence.first(evidence.memory)
    return dict(result.get("memory") or {}) if result else {}


def _phase_peaks(memory: dict[str, Any]) -> dict[str, int]:
    """`train` takes in the steps of the warm-up."""
    phases = {name: phase["peak"] for name, phase in memory.get("phases", {}).items()}
    train = max(phases.pop("start", 0), phases.get("train", 0))
    return (
        {"train": train, **{name: peak for name, peak in phases.items() if name == "eval"}} if phases or train else {}
    )


def _largest_phase(memory: dict[str, Any]) -> dict[str, Any]:
    phases = list(memory.get("phases", {}).items())
    if not phases:
        return {}
    # Not "start" for a little more: in it activations and gradients of the first steps are not told apart yet.
    largest = max(phases, key=lambda item: item[1]["peak"] * (START_COUNTS if item[0] == "start" else 1.0))
    return dict(largest[1])


def _memory_lines(evidence: Evidence, memory: dict[str, Any]) -> tuple[Hotspot, ...]:
    cuda = (evidence.first(evidence.memory) or {}).get("cuda_memory")
    entries = cuda["by_line"] if cuda and cuda["by_line"] else _largest_phase(memory).get("by_line", ())
    return tuple(Hotspot(e["file"], e["line"], e["bytes"], e.get("category", "")) for e in entries[:TOP_LINES])


def _sync_lines(evidence: Evidence) -> tuple[Hotspot, ...]:
    result = evidence.first(evidence.observed)
    steps = evidence.observed_steps
    if result is None or not steps:
        return ()
    sites = [site for site in result.get("syncs", ()) if site["calls"]]
    return tuple(
        Hotspot(s["file"], s["line"], s["calls"] / max(steps, s["steps"]), s["what"]) for s in sites[:TOP_LINES]
    )


def _notes(evidence: Evidence, memory: dict[str, Any], growth: float) -> list[str]:
    notes: list[str] = []
    timing = evidence.timing
    if timing is not None and timing.jitter >= JITTERY and len(timing.steps_ms) >= 5:
        notes.append(f"step times spread widely: p10 {timing.p10_ms:.1f} ms, p90 {timing.p90_ms:.1f} ms")
    if growth > 0:
        notes.append(f"live tensor bytes rise by {bytes_text(growth)} a step")
    if memory.get("compiled"):
        notes.append("memory by line is for the eager program (torch.compile is off under the tracker)")
    notes.extend(_straggler_notes(evidence))
    observed = evidence.first(evidence.observed)
    behaviours = (observed or {}).get("behaviours") or {}
    if behaviours.get("not_finite_gradients"):
        notes.append(
            f"{behaviours['not_finite_gradients']} gradients were not finite in {steps_seen(observed or {})} steps"
        )
    return notes


def _straggler_notes(evidence: Evidence) -> list[str]:
    late = _straggler(evidence)
    if late is None:
        return []
    told = (
        f"its first backward comes after {late.ms:.1f} ms, that of rank {late.fastest} after {late.fastest_ms:.1f} ms"
    )
    return [f"rank {late.rank} is a straggler: {told}"]


@dataclass(frozen=True)
class _Straggler:
    """A rank that comes late to its first backward, and the one that comes first."""

    rank: int
    ms: float
    fastest: int
    fastest_ms: float


def _straggler(evidence: Evidence) -> _Straggler | None:
    """DDP makes all ranks' steps equally long; a slow one shows in the time to its first backward."""
    from runtime_check.measures import timing

    each = {}
    for result in evidence.ranks(evidence.timed):
        measured = timing(result)
        if measured is not None and len(measured.to_backward_each) >= STRAGGLER_STEPS:
            each[result["rank"]] = measured.to_backward_each
    if len(each) < 2:
        return None
    times = {rank: median(ms) for rank, ms in each.items()}
    slow, fast = max(times, key=lambda rank: times[rank]), min(times, key=lambda rank: times[rank])
    timing_ = evidence.timing
    if timing_ is None:
        return None
    # The delay comes again with each micro-batch: it is compared with what one of them takes.
    turn_ms = timing_.median_ms / max(1.0, evidence.micro_batches)
    if times[slow] - times[fast] < max(1.0, 0.2 * turn_ms):
        return None
    if quantile(each[slow], 0.25) <= quantile(each[fast], 0.75):  # on too few cores now one comes late, now the other
        return None
    return _Straggler(slow, times[slow], fast, times[fast])

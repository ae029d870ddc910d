"""`--predict`: the real step on fake tensors, as it is and with the changes that matter for memory.

Ratios first: they rest on the same counting on both sides. Absolutes are estimates, and say by how much they may be off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from runtime_check.compare.records import Change
from runtime_check.evidence import Evidence
from runtime_check.launch import Outcome, Pass, Session
from runtime_check.measures import bytes_text
from runtime_check.what_if.candidates import candidates

#: Of activation bytes: CPU and CUDA save different things for the same operation (attention, autocast, dropout masks).
ERROR = 0.35
CONTEXT_BYTES = int(0.6 * 2**30)  # of CUDA itself
EXACT = ("parameters", "gradients", "optimizer state")
USABLE = 0.9  # of the memory that a card's maker gives, at least
EXCLUDED = "without the CUDA context (0.3 to 0.6 GiB), cuBLAS and cuDNN workspaces, fragmentation and NCCL"
STEPS, WARMUP = 2, 1


@dataclass(frozen=True)
class Estimate:
    """What was alive at the peak of a training step."""

    title: str
    peak: int
    by_category: dict[str, int]

    @property
    def exact(self) -> int:
        return sum(self.by_category.get(name, 0) for name in EXACT)

    @property
    def rest(self) -> int:
        """Activations and temporaries: what an estimate of the CPU's may be off by `ERROR`."""
        return max(0, self.peak - self.exact)

    @property
    def low(self) -> int:
        return int(self.exact + (1 - ERROR) * self.rest)

    @property
    def high(self) -> int:
        return int(self.exact + (1 + ERROR) * self.rest)


@dataclass(frozen=True)
class Prediction:
    """`failure`: why there is none."""

    as_it_is: Estimate | None = None
    variants: tuple[Estimate, ...] = ()
    left_out: tuple[str, ...] = ()  # variants that could not be made, with the reason
    gpu: str | None = None
    gpu_bytes: int | None = None
    failure: str | None = None


def predict(
    session: Session,
    gpu: str | None,
    gpu_bytes: int | None,
    show: Callable[[str, int, int], None],
    outcomes: list[Outcome],
) -> Prediction:
    asked = Prediction(gpu=gpu, gpu_bytes=gpu_bytes)
    show("prediction: as it is", 0, 4)
    outcome = _launch(session, (), outcomes)
    as_it_is = estimate_of("as it is", outcome)
    if as_it_is is None:
        return replace(asked, failure=why_none(outcome))
    variants, left_out = [], []
    changes, reasons = variants_of(outcome)
    left_out += reasons
    for number, change in enumerate(changes, 1):
        if session.left_s() < 10:
            left_out.append(f"{change.title}: the time was up (--timeout)")
            continue
        show(f"prediction: {change.title}", number, 1 + len(changes))
        changed = _launch(session, (change,), outcomes)
        estimate = estimate_of(change.title, changed)
        if estimate is None:
            left_out.append(f"{change.title}: {why_none(changed)}")
        else:
            variants.append(estimate)
    return replace(asked, as_it_is=as_it_is, variants=tuple(variants), left_out=tuple(left_out))


def _launch(session: Session, changes: Sequence[Change], outcomes: list[Outcome]) -> Outcome:
    extra: dict[str, Any] = {"steps": STEPS, "warmup": WARMUP}
    if changes:
        extra["changes"] = [change.for_probe() for change in changes]
    outcome = session.launch(Pass("predict", ("memory", "parts", "predict"), extra=extra))
    outcomes.append(outcome)
    return outcome


def variants_of(outcome: Outcome) -> tuple[list[Change], list[str]]:
    """Twice the batch, autocast, checkpointing: what changes memory most, where the script has a place for it."""
    evidence = Evidence(0.0, False, observed=outcome, memory=outcome)
    changes, reasons = [], []
    for candidate in candidates(("batch-size", "amp", "checkpoint"), evidence):
        if candidate.reason is not None:
            reasons.append(f"{candidate.title}: {candidate.reason}")
        elif candidate.memory is not None and (
            candidate.name != "batch-size" or _doubles(candidate.memory.change, outcome)
        ):
            changes.append(candidate.memory.change)
    return changes, reasons


def _doubles(change: Change, outcome: Outcome) -> bool:
    now = [loader["batch_size"] for loader in outcome.results[0].get("loaders", ()) if loader["role"] == "train"]
    return any(change.parameters["options"]["batch_size"] == 2 * (size or 0) for size in now)


def estimate_of(title: str, outcome: Outcome) -> Estimate | None:
    """None: no whole step after the first was made, or no model was replaced."""
    if outcome.errors or not outcome.results:
        return None
    result = outcome.results[0]
    if len(result["boundaries_ns"]) < WARMUP + STEPS or not result.get("predicted", {}).get("models"):
        return None
    if any(facts["failure"] or not facts["used"] for facts in result.get("changes", ())):
        return None
    phases = result["memory"]["phases"]
    phase = max((name for name in ("start", "train") if name in phases), key=lambda name: phases[name]["peak"])
    return Estimate(title, phases[phase]["peak"], phases[phase]["by_category"])


def why_none(outcome: Outcome) -> str:
    for error in outcome.errors:
        first = (str(error["message"]).splitlines() or [""])[0][:160]
        where = f"{error['site'][0]}:{error['site'][1]}"
        if error["type"] in ("DynamicOutputShapeException", "DataDependentOutputException"):
            return f"the shapes of the step depend on its data at {where}: fake tensors have none"
        return f"the step does not run on fake tensors: {error['type']} at {where}: {first}"
    for result in outcome.results[:1]:
        if result["world"] > 1:
            return "a prediction is made for one rank: give no --launcher"
        for facts in result.get("changes", ()):
            if facts["failure"] or not facts["used"]:
                return str(facts["failure"] or "the change took no effect")
        if not result.get("predicted", {}).get("models"):
            return "no call of a model was seen"
    last = outcome.log_tail.rstrip().splitlines()[-1:]
    return f"the script made no {STEPS} steps on fake tensors ({' '.join(last).strip()[:160]})"


def fits(estimate: Estimate, card: int) -> str:
    """ "no" only where what is exact and the least of the rest exceed the card alone."""
    if estimate.low > card:
        return "no"
    return "yes" if estimate.high + CONTEXT_BYTES <= USABLE * card else "open"


def text_of(made: Prediction) -> list[str]:
    if made.failure is not None or made.as_it_is is None:
        return [f"no prediction: {made.failure}"]
    base = made.as_it_is
    lines = ["predicted on fake tensors: nothing was computed, no device was used"]
    lines += [
        f"  {variant.title}: peak memory x{variant.peak / base.peak:.2f}" for variant in made.variants if base.peak
    ]
    lines += [f"  not predicted: {reason}" for reason in made.left_out]
    exact = ", ".join(f"{name} {bytes_text(base.by_category[name])}" for name in EXACT if base.by_category.get(name))
    lines.append(
        f"estimated peak allocated, as it is: {bytes_text(base.peak)} [{bytes_text(base.low)}, {bytes_text(base.high)}]: "
        f"of that {exact or 'nothing'} exact, activations and temporaries {bytes_text(base.rest)} ±{ERROR:.0%}; {EXCLUDED}"
    )
    if made.gpu_bytes is not None:
        lines += [_card_text(estimate, made) for estimate in (base, *made.variants)]
    return lines


def _card_text(estimate: Estimate, made: Prediction) -> str:
    assert made.gpu_bytes is not None
    card = f"{made.gpu} ({bytes_text(made.gpu_bytes)})"
    span = f"estimate {bytes_text(estimate.low)} to {bytes_text(estimate.high)}"
    answer = fits(estimate, made.gpu_bytes)
    if answer == "no":
        return f"  {estimate.title}: will not fit {card}: {span}, at least {bytes_text(estimate.low)}"
    if answer == "yes":
        return f"  {estimate.title}: should fit {card}: {span}"
    return f"  {estimate.title}: too near {card} to tell: {span}"


def to_object(made: Prediction) -> dict[str, Any]:
    base = made.as_it_is
    return {
        "kind": "estimate",
        "error_of_activations": ERROR,
        "failure": made.failure,
        "gpu": made.gpu,
        "gpu_bytes": made.gpu_bytes,
        "as_it_is": _estimate_object(base, base, made) if base is not None else None,
        "variants": [_estimate_object(variant, base, made) for variant in made.variants],
        "left_out": list(made.left_out),
        "excluded": EXCLUDED,
    }


def _estimate_object(estimate: Estimate, base: Estimate | None, made: Prediction) -> dict[str, Any]:
    return {
        "title": estimate.title,
        "ratio": round(estimate.peak / base.peak, 4) if base is not None and base.peak else None,
        "peak_bytes": estimate.peak,
        "low_bytes": estimate.low,
        "high_bytes": estimate.high,
        "exact_bytes": estimate.exact,
        "by_category": estimate.by_category,
        "fits": fits(estimate, made.gpu_bytes) if made.gpu_bytes is not None else None,
    }

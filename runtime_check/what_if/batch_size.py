"""`--find-batch-size`: the largest batch that fits, by running the script with others. The search itself is pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from runtime_check import machine
from runtime_check.compare.records import Change
from runtime_check.launch import Outcome, Pass, Session
from runtime_check.measures import bytes_text, steps_done
from runtime_check.what_if import edits
from runtime_check.what_if.records import Edit

NO_LOADER = (
    "the script trains from no DataLoader with a batch size; give the sizes by an argument of its own, after `--`, "
    "and compare the peak of live tensors that each report has"
)
MOST_TRIALS = 24
FURTHEST = 4  # times the largest size that is known to fit: no trial asks for much more than what was seen
STEPS, WARMUP = 2, 1  # the optimizer's state is there from the second step on


@dataclass(frozen=True)
class Trial:
    """One size that was run. `peak` is what was reached; where it did not fit, before it was stopped."""

    size: int
    fits: bool
    peak: int
    why: str = ""
    short: bool = False  # the data set gave no larger batches than that, though they were asked for
    memory: bool = True  # where it does not fit: memory is why. Else the script fails, or makes too few steps


@dataclass(frozen=True)
class BatchSearch:
    """What was found: `largest` fits, `smallest` above it does not (None: none was found that does not)."""

    largest: int | None = None
    smallest: int | None = None
    start: int | None = None
    limit: int | None = None
    headroom: float = 0.1
    trials: tuple[Trial, ...] = ()
    cuda: bool = False
    ended: str | None = None  # why the search stopped before both ends met
    reason: str | None = None  # not run, because ...
    edits: tuple[Edit, ...] = ()

    @property
    def by_memory(self) -> bool:
        """What lies above the largest is too much for memory, as far as was seen."""
        return all(trial.memory for trial in self.trials if trial.size == self.smallest)

    @property
    def peak(self) -> int | None:
        return next((trial.peak for trial in self.trials if trial.size == self.largest), None)


def search(start: int, limit: float, run: Callable[[int], Trial | None]) -> tuple[list[Trial], str | None]:
    """Try sizes until the largest that fits is known; None from `run` ends it (no time is left).

    Bytes grow nearly in a line with the batch, so the next size is where the line through what was seen meets the limit;
    never more than `FURTHEST` times what fits.
    """
    trials: list[Trial] = []
    size = start
    while len(trials) < MOST_TRIALS:
        trial = run(size)
        if trial is None:
            return trials, "the time was up (--timeout)"
        trials.append(trial)
        if trial.short:
            return trials, f"the data gives no batch of more than {trial.size}"
        following = next_size(trials, limit)
        if following is None:
            return trials, None
        size = following
    return trials, f"{MOST_TRIALS} sizes were tried"


def next_size(trials: list[Trial], limit: float) -> int | None:
    """None: both ends are as near to each other as they need to be."""
    fitting = sorted({trial.size: trial for trial in trials if trial.fits}.items())
    failing = min((trial.size for trial in trials if not trial.fits), default=None)
    if not fitting:
        assert failing is not None
        return failing // 2 or None
    largest = fitting[-1][0]
    grain = 8 if largest >= 64 else 1
    if failing is not None and failing - largest <= grain:
        return None
    guess = _where_the_line_meets(fitting, limit)
    if failing is not None and (guess is None or guess >= failing):
        guess = (largest + failing) // 2
    guess = min(guess or 2 * largest, FURTHEST * largest)
    guess -= guess % grain
    if failing is not None and guess >= failing:
        guess = failing - 1
    return max(guess, largest + grain if failing is None else largest + 1)


def _where_the_line_meets(fitting: list[tuple[int, Trial]], limit: float) -> int | None:
    """The size at which the line through the two largest that fit reaches the limit. None: there is no such line."""
    if len(fitting) < 2 or limit == float("inf"):
        return None
    (size_a, a), (size_b, b) = fitting[-2:]
    slope = (b.peak - a.peak) / (size_b - size_a)
    return int(size_b + (limit - b.peak) / slope) if slope > 0 else None


def find(
    session: Session,
    loader: dict[str, Any] | None,
    cuda: bool,
    show: Callable[[str, int, int], None],
    outcomes: list[Outcome],
) -> BatchSearch:
    """`loader`: the training loader's facts, of a run that reached a step."""
    options = session.options
    asked = BatchSearch(headroom=options.headroom, cuda=cuda)
    if loader is None or not loader["batch_size"]:
        return replace(asked, reason=NO_LOADER)
    refused = _refused(options.memory_limit, cuda)
    if refused is not None:
        return replace(asked, reason=refused)
    site = loader["site"]
    limits: list[int] = []

    def run(size: int) -> Trial | None:
        if session.left_s() < 10:
            return None
        show(f"batch size {size}", len(limits), MOST_TRIALS)
        outcome = session.launch(trial_pass(site, size, options.memory_limit, options.headroom, cuda))
        outcomes.append(outcome)
        trial = trial_of(size, outcome)
        limits.append(limit_of(outcome) or 0)
        return trial

    start = int(loader["batch_size"])
    known = (options.memory_limit or 0) * (1 - options.headroom) or float("inf")
    trials, ended = search(start, known, run)
    fitting = [trial.size for trial in trials if trial.fits]
    largest = max(fitting, default=None)
    failing = [trial.size for trial in trials if not trial.fits and trial.size > (largest or 0)]
    lines = edits.call_with(site, ("DataLoader",), {"batch_size": str(largest)}) if largest not in (None, start) else ()
    return replace(
        asked,
        largest=largest,
        smallest=min(failing, default=None),
        start=start,
        limit=options.memory_limit or max(limits, default=0) or None,
        trials=tuple(trials),
        ended=ended,
        edits=lines,
    )


def trial_pass(site: list[Any], size: int, limit: int | None, headroom: float, cuda: bool) -> Pass:
    known = bool(site[1])
    rows = (site[1], site[1]) if known else None
    change = Change("loader", f"batch_size={size}", site[0] if known else None, rows, {"options": {"batch_size": size}})
    extra = {
        "changes": [change.for_probe()],
        "memory_limit": {"bytes": limit, "headroom": headroom},
        "steps": STEPS,
        "warmup": WARMUP,
    }
    return Pass(f"batch size {size}", ("limit",) if cuda else ("memory", "limit"), extra=extra)


def trial_of(size: int, outcome: Outcome) -> Trial:
    """One launch's answer. Out of memory in any rank is one that does not fit."""
    peak = max((result["limit"]["peak"] for result in outcome.results if "limit" in result), default=0)
    over = [result["limit"]["over"] for result in outcome.results if result.get("limit", {}).get("over")]
    if over:
        return Trial(size, False, max(over), "counted bytes passed the limit")
    out = next((error for error in outcome.errors if error["out_of_memory"]), None)
    if out is not None:
        return Trial(size, False, peak, f"out of memory at {out['site'][0]}:{out['site'][1]}")
    if not outcome.results or len(outcome.results[0]["boundaries_ns"]) < WARMUP + 1:
        return Trial(size, False, peak, _no_trial(outcome), memory=False)
    made = max((loader["largest_batch"] for loader in _trained(outcome)), default=0) or size
    if made < size:  # what it did give has fitted
        return Trial(made, True, peak, f"batches of {size} were asked for", short=True)
    return Trial(size, True, peak)


def _no_trial(outcome: Outcome) -> str:
    """Why there is no measurement, though memory did not run out."""
    for error in outcome.errors:
        first = (str(error["message"]).splitlines() or [""])[0]
        return f"the script fails: {error['type']}: {first[:160]}"
    if outcome.exit_code == 0:
        made = max((steps_done(result) for result in outcome.results), default=0)
        return f"the script ends after {made} of {WARMUP + STEPS} steps: its data gives too few such batches"
    last = outcome.log_tail.rstrip().splitlines()[-1:]
    return f"the script made no step ({' '.join(last).strip()[:160]})"


def _trained(outcome: Outcome) -> list[dict[str, Any]]:
    return [loader for loader in outcome.results[0].get("loaders", ()) if loader["role"] == "train"]


def limit_of(outcome: Outcome) -> int | None:
    return next((result["limit"].get("bytes") for result in outcome.results if "limit" in result), None)


def _refused(limit: int | None, cuda: bool) -> str | None:
    if cuda:
        return None
    if limit is None:
        return "on a CPU it takes a --memory-limit (4GiB): the machine itself is never filled up to find out"
    free = machine.available_bytes()
    if free is not None and limit > free / 2:
        return f"--memory-limit {bytes_text(limit)} is more than half of the {bytes_text(free)} that are free here"
    return None


def text_of(made: BatchSearch) -> list[str]:
    """What to say of it, a line each."""
    if made.reason is not None:
        return [f"batch size not searched: {made.reason}"]
    what = "allocated" if made.cuda else "of live tensors"
    limit = f" of {bytes_text(made.limit)}" if made.limit else ""
    if made.largest is None:
        tried = ", ".join(str(trial.size) for trial in made.trials)
        why = next((trial.why for trial in reversed(made.trials) if trial.why), "")
        if made.trials and not made.trials[-1].memory:
            return [f"no batch size could be run (tried {tried}; {why})"]
        return [f"no batch size fits{limit} with {made.headroom:.0%} headroom (tried {tried}; {why})"]
    peak = bytes_text(made.peak or 0)
    now = f"largest batch that {'fits' if made.by_memory else 'ran'}: {made.largest} (it is {made.start} now)"
    lines = [f"{now}: peak {peak} {what}{limit}, {made.headroom:.0%} headroom kept"]
    if made.smallest is not None:
        failed = next(trial for trial in made.trials if trial.size == made.smallest)
        what = f"{made.smallest} does not" if failed.memory else f"with {made.smallest} it is not memory that ends it"
        lines.append(f"{what}: {failed.why}")
    if made.ended is not None:
        lines.append(f"the search ended there: {made.ended}")
    told = [f"{t.size}: {bytes_text(t.peak)}{'' if t.fits else ' (no)'}" for t in made.trials if t.fits or t.memory]
    told += [f"{t.size} (not run)" for t in made.trials if not t.fits and not t.memory]
    tried = ", ".join(told)
    lines.append(f"tried {tried}")
    return lines


def to_object(made: BatchSearch) -> dict[str, Any]:
    return {
        "largest": made.largest,
        "smallest_that_does_not_fit": made.smallest,
        "now": made.start,
        "limit_bytes": made.limit,
        "headroom": made.headroom,
        "kind": "cuda_allocated" if made.cuda else "live_tensor_bytes",
        "trials": [vars(trial) for trial in made.trials],
        "ended": made.ended,
        "reason": made.reason,
        "edits": [vars(edit) for edit in made.edits],
    }

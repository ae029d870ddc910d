"""The wait for data, what each loader is for, and loops that are ended early so that evaluation is reached in
seconds.
"""

from __future__ import annotations

import functools
import math
import time
from typing import Any, ClassVar

import _trainlint_probe as probe
from _trainlint_probe.clock import CLOCK
from _trainlint_probe.sites import UNKNOWN, user_site

now = time.perf_counter_ns

PATIENCE_NS = 10_000_000_000  # past the counted steps, on the way to an evaluation
EVALUATION_AFTER = 3  # batches in a row without a backward (two in a row is also what a prefetcher does)


class LoaderFacts:
    """One DataLoader, or what a framework rebuilt from it at the same line."""

    def __init__(self, loader: Any) -> None:
        self.site = getattr(loader, "_trainlint_site", UNKNOWN)
        self.workers = loader.num_workers
        self.batch_size = loader.batch_size
        self.pinned = bool(loader.pin_memory)
        self.prefetch = (loader.prefetch_factor or 2) if loader.num_workers else 0  # batches ahead, of each worker
        self.persistent = bool(getattr(loader, "persistent_workers", False))
        self.length = _length(loader)
        self.data = getattr(loader, "dataset", None)
        self.order = type(getattr(loader, "sampler", None))
        self.role: str | None = None
        self.iterators = 0
        self.start_ns: list[int] = []  # making the iterator and getting its first batch: workers start here
        self.batches = 0
        self.wait_ns = 0  # without first batches
        self.ended_early = 0
        self.samples = 0
        self.largest = 0  # samples of a batch: the last one of an epoch may hold fewer
        self.of_tokens = False


def _length(loader: Any) -> int | None:
    """Batches of a whole epoch; None where the data set has no length."""
    try:
        return len(loader)
    except Exception:
        return None


class Turn:
    """One pass over a loader."""

    def __init__(self, facts: LoaderFacts) -> None:
        self.facts = facts
        self.batches = 0
        self.since_backward = 0  # counted until the loader is known to train
        self.trained = False
        self.made_ns = 0


class Progress:
    loaders: ClassVar[dict[int, LoaderFacts]] = {}
    kept: ClassVar[list[Any]] = []  # loaders, so that ids stay unique
    evaluations_done = 0
    training_turns_done = 0


def backward_done() -> None:
    """The batch that was taken last was trained on: its loader is a training loader."""
    turn = CLOCK.latest_turn
    if turn is not None:
        turn.trained = True
        turn.since_backward = 0
        turn.facts.role = "train"


def install(torch: Any, config: dict[str, Any]) -> None:
    from torch.utils.data import dataloader

    _remember_where_made(dataloader.DataLoader)
    _watch(torch, dataloader._BaseDataLoaderIter, config)
    _leave_workers_alone()
    CLOCK.keep_going = functools.partial(_keep_going, config)
    CLOCK.on_finish.append(lambda: {"loaders": [_record(facts) for facts in Progress.loaders.values()]})


def _remember_where_made(loader_class: Any) -> None:
    original = loader_class.__init__

    @functools.wraps(original)
    def make(self: Any, *args: Any, **kwargs: Any) -> None:
        if probe.STATE.active:
            self.__dict__["_trainlint_site"] = user_site(2)
        original(self, *args, **kwargs)

    loader_class.__init__ = make


def _leave_workers_alone() -> None:
    """A worker that was forked holds our modes, one that was spawned has loaded the probe anew."""
    from torch.utils.data._utils import worker

    original = worker._worker_loop

    @functools.wraps(original)  # pickled by its name: under spawn the child finds its own wrapper
    def loop(*args: Any, **kwargs: Any) -> Any:
        probe.quiet()
        return original(*args, **kwargs)

    worker._worker_loop = loop


def _facts(loader: Any) -> LoaderFacts:
    facts = Progress.loaders.get(id(loader))
    if facts is None:
        facts = Progress.loaders[id(loader)] = LoaderFacts(loader)
        Progress.kept.append(loader)
        for known in Progress.loaders.values():
            if known is not facts and known.role and _rebuilt(facts, known):
                facts.role = known.role
    return facts


def _rebuilt(facts: LoaderFacts, known: LoaderFacts) -> bool:
    """A loader that is made anew each epoch keeps its role. The line alone does not tell: one function, or one line, may
    make the loaders of training and of evaluation.
    """
    same_place = known.site == facts.site and known.site != UNKNOWN
    return same_place and known.data is facts.data and known.order is facts.order


def _watch(torch: Any, iterator_class: Any, config: dict[str, Any]) -> None:
    original_init, original_next = iterator_class.__init__, iterator_class.__next__
    train_limit, eval_limit = config.get("limit_train_batches"), config.get("limit_eval_batches")
    cut = config.get("cut_evaluations", False)  # also those of loaders that are not known yet
    tensor, state, clock = torch.Tensor, probe.STATE, CLOCK

    @functools.wraps(original_init)
    def init(self: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
        if not probe.STATE.active:
            original_init(self, loader, *args, **kwargs)
            return
        facts = _facts(loader)
        facts.iterators += 1
        self._trainlint_turn = turn = Turn(facts)
        CLOCK.flag("loader_started")
        begun = now()
        original_init(self, loader, *args, **kwargs)
        turn.made_ns = now() - begun

    @functools.wraps(original_next)
    def take(self: Any) -> Any:
        turn = getattr(self, "_trainlint_turn", None)
        if turn is None or not state.active or clock.finished:
            return original_next(self)
        facts = turn.facts
        if facts.role == "train" and train_limit is None and (clock.phase == "train" or not clock.past_warmup):
            purpose = "train"
        else:
            purpose = _purpose(turn)
            # Not at none at all: scripts divide by the number of batches.
            limit = eval_limit if cut and purpose == "eval" else _limit(turn, train_limit, eval_limit)
            if limit is not None and turn.batches >= limit:
                facts.ended_early += 1
                _turn_done(turn)
                raise StopIteration
        begun = now()
        try:
            batch = original_next(self)
        except StopIteration:
            _turn_done(turn)
            raise
        waited = now() - begun
        clock.latest_turn = turn
        turn.batches += 1
        facts.batches += 1
        if turn.batches == 1:
            facts.start_ns.append(turn.made_ns + waited)
        else:
            facts.wait_ns += waited
        if purpose != "train":
            turn.since_backward += 1
        if turn.batches > 1 and type(batch) is list and batch and type(batch[0]) is tensor and batch[0].shape:
            shape = batch[0].shape
            samples, tokens = shape[0], shape[0] * shape[1] if facts.of_tokens and len(shape) == 2 else 0
        else:
            samples, tokens = batch_size(batch, tensor)
            facts.of_tokens = tokens > 0
        facts.samples += samples
        if samples > facts.largest:
            facts.largest = samples
        if purpose == "eval":
            clock.flag("eval")
            if clock.measuring:  # as what happens in them is counted
                clock.add("eval_batches", 1)
        else:
            clock.waited_ns += waited
            clock.batches += 1
            clock.samples += samples
            clock.tokens += tokens
        if clock.anchored is None:
            clock.batch_taken()
        elif purpose != "train":
            clock.batches_without_backward += 1  # tells the batches of an evaluation apart
        return batch

    iterator_class.__init__, iterator_class.__next__ = init, take


def _purpose(turn: Turn) -> str | None:
    """What the batch is for, as far as it is known; past the warm-up this is where a phase begins."""
    facts = turn.facts
    if turn.since_backward >= EVALUATION_AFTER and not turn.trained and facts.role is None:
        facts.role = "eval"
    purpose = facts.role or (
        "eval" if not turn.trained and "eval_mode" in CLOCK.flags.get(CLOCK.step_count, ()) else None
    )
    if purpose and CLOCK.past_warmup:
        CLOCK.set_phase(purpose)
    return purpose


def _limit(turn: Turn, train_limit: int | None, eval_limit: int | None) -> int | None:
    if turn.facts.role == "eval":
        return eval_limit
    if turn.facts.role != "train" or train_limit is None:
        return None
    if CLOCK.step_count > CLOCK.warmup + CLOCK.steps:
        # Enough steps were counted: on to the evaluation, and to the next epoch's order. One whole step of it, which may
        # be several micro-batches.
        return max(2, math.ceil(turn.facts.batches / CLOCK.step_count) + 1)
    return train_limit


def _turn_done(turn: Turn) -> None:
    facts = turn.facts
    if not turn.trained and turn.batches and facts.role is None:
        facts.role = "eval"  # a whole pass over it and no backward
    if facts.role == "eval":
        Progress.evaluations_done += 1
        CLOCK.flag("eval")
    elif turn.trained:
        Progress.training_turns_done += 1
        CLOCK.end_if_enough()  # an epoch that was cut short may hold no step
    if CLOCK.past_warmup:
        CLOCK.set_phase("other")
    turn.batches = turn.since_backward = 0
    turn.trained = False


def _keep_going(config: dict[str, Any], step: int) -> bool:
    """Past the asked-for steps only to reach an evaluation and a second epoch, and only while loaders lead there."""
    if not config.get("until_eval"):
        return False
    trains = any(facts.role == "train" for facts in Progress.loaders.values())
    enough = Progress.training_turns_done >= 2 or (Progress.evaluations_done and Progress.training_turns_done >= 1)
    target = CLOCK.warmup + CLOCK.steps
    counted_ns = CLOCK.boundaries[target] - CLOCK.boundaries[0]
    beyond_ns = now() - CLOCK.boundaries[target]
    too_long = step > 2 * target + 20 or beyond_ns > max(PATIENCE_NS, 3 * counted_ns)
    return trains and not enough and not too_long


def batch_size(batch: Any, tensor: Any) -> tuple[int, int]:
    """Samples and tokens of a batch, by its first tensor: tokens only where that is two-dimensional and of integers."""
    first = batch[0] if type(batch) in (list, tuple) and batch else batch
    if not isinstance(first, tensor):
        first = _first_tensor(batch, tensor, 0)
    shape = () if first is None else first.shape  # `len(first)` and `first.dim()` go through Python code of torch's
    if len(shape) != 2:
        return (shape[0], 0) if shape else (0, 0)
    dtype = first.dtype
    is_tokens = not dtype.is_floating_point and not dtype.is_complex
    return shape[0], shape[0] * shape[1] if is_tokens else 0


def _first_tensor(value: Any, tensor: Any, depth: int) -> Any:
    if isinstance(value, tensor):
        return value
    if depth > 3:
        return None
    values = value.values() if hasattr(value, "values") and hasattr(value, "keys") else value
    if isinstance(value, (list, tuple)) or values is not value:
        for item in values:
            found = _first_tensor(item, tensor, depth + 1)
            if found is not None:
                return found
    return None


def _record(facts: LoaderFacts) -> dict[str, Any]:
    return {
        "site": list(facts.site),
        "role": facts.role,
        "workers": facts.workers,
        "batch_size": facts.batch_size,
        "pin_memory": facts.pinned,
        "prefetch_factor": facts.prefetch,
        "persistent_workers": facts.persistent,
        "length": facts.length,
        "iterators": facts.iterators,
        "start_ns": facts.start_ns,
        "batches": facts.batches,
        "wait_ns": facts.wait_ns,
        "samples": facts.samples,
        "largest_batch": facts.largest,
        "ended_early": facts.ended_early,
    }

"""The step clock: where a training step begins and ends.

A step is a turn of the *anchor*, the least frequent optimizer of the cycle. Without an optimizer it is a backward
pass, without that a batch. Steps that GradScaler skips count too (their optimizer is never called). The step count
runs from 1; interval `n` is what lies between boundary `n` and boundary `n + 1`.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import _trainlint_probe as probe

now = time.perf_counter_ns
cpu_now = time.process_time_ns

FASTEST_TO_SLOWEST = 16  # an optimizer that steps more rarely than every 16th turn of the fastest is no anchor
BACKWARDS_WITHOUT_OPTIMIZER = 64  # after so many the script has no optimizer of torch's
BATCHES_WITHOUT_BACKWARD = 64
BEFORE_CHOICE = 3  # turns of the fastest optimizer before the anchor is chosen


class Clock:
    """What the hooks tell of a step.

    They run between kernels that have emptied the caches, where each object that is touched for the first time costs
    ten times what it does in a loop. So the usual case (the anchor is known) is short, and counts in plain attributes.
    """

    def __init__(self) -> None:
        self.torch: Any = None
        self.steps = 20
        self.warmup = 5
        self.unit = "auto"  # as asked for; `counted` is what was found
        self.counted = "optimizer"
        self.cuda = False
        self.optimizers: list[Any] = []  # kept alive: a reused id() would merge two optimizers
        self.counts: list[int] = []
        self.anchor: int | None = None
        self.anchored: Any = None  # the anchor itself
        self.latest_turn: Any = None  # of a loader: where the batch that was taken last came from
        self.order: list[int] = []  # optimizer events before the anchor is chosen
        self.boundaries: list[int] = []  # perf_counter_ns
        # At each boundary: on-CPU time, and the counts of batches to train on, as they stood then.
        self.marks: list[tuple[int, int, int, int, int]] = []
        self.cuda_events: list[Any] = []
        self.flags: dict[int, set[str]] = {}  # interval -> why it is not a plain step
        self.sums: dict[int, dict[str, float]] = {}  # interval -> counters (loader wait, samples, ...)
        self.waited_ns = self.batches = self.samples = self.tokens = 0  # of batches to train on, since the beginning
        self.to_backward_ns: dict[int, int] = {}  # interval -> from its start to its first backward
        self.skipped_by_scaler = 0
        self.scaler_steps = 0
        self.scaled_steps = 0  # of a scaler that is not switched off
        self.backwards = 0
        self.batches_without_backward = 0
        self.phase = "start"  # start | train | eval | other
        self.finished = False
        self.engine_depth = 0  # inside an engine that owns the step (DeepSpeed): its inner optimizer does not count
        self.on_boundary: list[Callable[[int], None]] = []
        self.on_phase: list[Callable[[str, str], None]] = []
        self.on_finish: list[Callable[[], dict[str, Any]]] = []
        self.keep_going: Callable[[int], bool] = lambda n: False

    # -- what the hooks report

    def optimizer_stepped(self, optimizer: Any, skipped: bool = False) -> None:
        if optimizer is self.anchored and not (skipped or self.engine_depth or self.finished) and probe.STATE.active:
            self.counts[self.anchor] += 1  # type: ignore[index]
            self.boundary()
            return
        if not probe.STATE.active or (self.engine_depth and not skipped):
            return
        if self.finished:
            self._stop()
            return
        index = self._index(optimizer)
        self.counts[index] += 1
        self.skipped_by_scaler += skipped
        if self.unit not in ("auto", "optimizer"):
            return
        self.counted = "optimizer"
        if self.anchor is not None:
            if index == self.anchor:
                self.boundary()
            return
        self.order.append(index)
        if max(self.counts) >= max(2, min(BEFORE_CHOICE, self.warmup)):
            self.anchor = choose_anchor(self.counts, self.order)
            self.anchored = self.optimizers[self.anchor]
            if self.anchor == index:
                self.boundary()

    def backward_done(self) -> None:
        """`backwards` holds it already."""
        self.batches_without_backward = 0
        if self.optimizers and self.unit != "backward":
            return
        if self.unit == "backward" or (self.unit == "auto" and self.backwards > BACKWARDS_WITHOUT_OPTIMIZER):
            self.counted = "backward"
            self.boundary()

    def batch_taken(self) -> None:
        self.batches_without_backward += 1
        nothing_else = not self.optimizers and not self.backwards
        if self.unit == "batch" or (
            self.unit == "auto" and nothing_else and self.batches_without_backward > BATCHES_WITHOUT_BACKWARD
        ):
            self.counted = "batch"
            self.boundary()

    def set_phase(self, phase: str) -> None:
        if phase != self.phase:
            for callback in self.on_phase:
                callback(self.phase, phase)
            self.phase = phase

    def flag(self, why: str) -> None:
        self.flags.setdefault(len(self.boundaries), set()).add(why)

    def add(self, name: str, value: float) -> None:
        sums = self.sums.setdefault(len(self.boundaries), {})
        sums[name] = sums.get(name, 0) + value

    @property
    def step_count(self) -> int:
        return len(self.boundaries)

    @property
    def past_warmup(self) -> bool:
        return len(self.boundaries) >= self.warmup

    @property
    def measuring(self) -> bool:
        """Within an interval that counts: after the boundary that ends the warm-up."""
        return len(self.boundaries) > self.warmup and not self.finished

    @property
    def has_seen_something(self) -> bool:
        return bool(self.boundaries or self.counts or self.backwards)

    # -- one step

    def boundary(self) -> None:
        n = len(self.boundaries)
        if self.cuda:
            if n == self.warmup:
                self.torch.cuda.synchronize()
            event = self.torch.cuda.Event(enable_timing=True)
            event.record()
            self.cuda_events.append(event)
        self.boundaries.append(now())
        self.marks.append((cpu_now(), self.waited_ns, self.batches, self.samples, self.tokens))
        n += 1
        for callback in self.on_boundary:
            callback(n)
        self.end_if_enough()

    def end_if_enough(self) -> None:
        n = len(self.boundaries)
        if n > self.warmup + self.steps and not self.keep_going(n):
            self.finish("steps")
            self._stop()

    def counted_in(self, n: int) -> dict[str, float]:
        """What was counted in interval `n`; of the open one, up to now."""
        marks = self.marks
        after = marks[n][1:] if n < len(marks) else (self.waited_ns, self.batches, self.samples, self.tokens)
        before = marks[n - 1][1:] if n else (0, 0, 0, 0)
        names = ("loader_ns", "batches", "samples", "tokens")
        counts: dict[str, float] = {name: b - a for name, a, b in zip(names, before, after, strict=True) if b != a}
        if n in self.to_backward_ns:
            counts["to_backward_ns"] = self.to_backward_ns[n]
        return {**counts, **self.sums.get(n, {})}

    def _index(self, optimizer: Any) -> int:
        for index, known in enumerate(self.optimizers):
            if known is optimizer:
                return index
        self.optimizers.append(optimizer)
        self.counts.append(0)
        if not self.cuda:
            cuda = self.torch.cuda
            self.cuda = bool(cuda.is_available() and cuda.is_initialized())
        if self.anchor is not None and len(self.boundaries) <= self.warmup:
            self._choose_again()  # a rarer optimizer shows up late (WGAN's generator)
        return len(self.optimizers) - 1

    def _choose_again(self) -> None:
        self.anchor = self.anchored = None
        self.waited_ns = self.batches = self.samples = self.tokens = 0
        for kept in (self.order, self.boundaries, self.marks, self.cuda_events):
            kept.clear()
        for named in (self.flags, self.sums, self.to_backward_ns):
            named.clear()
        self.counts = [0] * len(self.counts)

    # -- the end

    def script_ended(self) -> None:
        if self.has_seen_something:
            self.finish("script_ended")

    def finish(self, why: str) -> None:
        """Write this rank's result. The first reason wins; it does not stop the process."""
        if self.finished or not probe.STATE.active:
            return
        self.finished = True
        if self.cuda and why != "deadline":
            self.torch.cuda.synchronize()
        extra: dict[str, Any] = {}
        for collect in self.on_finish:
            try:
                extra.update(collect())
            except Exception:
                probe.note_error("result")
        result = {**self._record(why), **extra}
        name = f"result-rank{result['rank']}-pid{os.getpid()}.json"
        probe.write_json(os.path.join(probe.CONFIG["run_dir"], name), result)

    def _record(self, why: str) -> dict[str, Any]:
        from _trainlint_probe import script_end

        cuda_ms = None
        if self.cuda and len(self.cuda_events) > 1 and why != "deadline":
            cuda_ms = [a.elapsed_time(b) for a, b in zip(self.cuda_events, self.cuda_events[1:], strict=False)]
        return {
            "why": why,
            "pid": os.getpid(),
            "rank": rank(self.torch),
            "world": world(self.torch),
            "unit": self.counted,
            "anchor": self.anchor,
            "optimizers": [
                {"type": type(optimizer).__name__, "steps": count}
                for optimizer, count in zip(self.optimizers, self.counts, strict=True)
            ],
            "warmup": self.warmup,
            "boundaries_ns": list(self.boundaries),
            "since_boundary_s": (now() - self.boundaries[-1]) / 1e9 if self.boundaries else None,
            "cpu_ns": [mark[0] for mark in self.marks],
            "cuda_ms": cuda_ms,
            "flags": {str(k): sorted(v) for k, v in list(self.flags.items())},
            "sums": {str(n): self.counted_in(n) for n in range(len(self.boundaries) + 1)},
            "skipped_by_scaler": self.skipped_by_scaler,
            "scaler_steps": self.scaler_steps,
            "backwards": self.backwards,
            "compile": compile_counters(),
            "startup_s": (self.boundaries[0] - probe.STARTED_NS) / 1e9 if self.boundaries else None,
            "torch": self.torch.__version__,
            "threads": self.torch.get_num_threads(),
            "device": self.torch.cuda.get_device_name() if self.cuda else None,
            "error": dict(script_end.ERROR) or None,
        }

    def _stop(self) -> None:
        from _trainlint_probe import stop

        stop.end_process(world(self.torch))


def choose_anchor(counts: list[int], order: list[int]) -> int:
    """The least frequent optimizer of the cycle; of several, the one that comes last in it."""
    most = max(counts)
    candidates = [i for i, count in enumerate(counts) if count * FASTEST_TO_SLOWEST >= most]
    least = min(counts[i] for i in candidates)
    candidates = [i for i in candidates if counts[i] == least]
    return max(candidates, key=lambda i: len(order) - 1 - order[::-1].index(i))


def rank(torch: Any) -> int:
    if "RANK" in os.environ:
        return int(os.environ["RANK"])
    distributed = torch.distributed
    return distributed.get_rank() if distributed.is_available() and distributed.is_initialized() else 0


def world(torch: Any) -> int:
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_world_size()
    return int(os.environ.get("WORLD_SIZE", "1"))


def compile_counters() -> dict[str, int] | None:
    """Graph breaks and compiled graphs, where torch.compile was used (torch._dynamo.utils.counters)."""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)
    if not counters or not counters.get("stats"):
        return None
    return {
        "graph_breaks": sum(counters.get("graph_break", {}).values()),
        "graphs": counters["stats"].get("unique_graphs", 0),
    }


CLOCK = Clock()


def install(torch: Any, config: dict[str, Any]) -> None:
    CLOCK.torch = torch
    CLOCK.warmup = config["warmup"]
    CLOCK.steps = config["steps"]
    CLOCK.unit = config["unit"]
    _hook_optimizers(torch)
    _hook_scaler(torch)
    _hook_backward(torch)
    _hook_evaluation_mode(torch)


def _hook_optimizers(torch: Any) -> None:
    from torch.optim.optimizer import register_optimizer_step_post_hook

    # Inside a compiled step the hook would be traced; it has to run each time, outside the graph. The way out of the
    # graph costs more than the hook, so it is only taken where something is compiled.
    outside = getattr(torch, "_disable_dynamo", lambda function: function)(
        lambda optimizer: CLOCK.optimizer_stepped(optimizer)
    )
    compiles = _notice_compile(torch)

    def stepped(optimizer: Any, args: Any, kwargs: Any) -> None:
        if compiles:
            outside(optimizer)
        else:
            CLOCK.optimizer_stepped(optimizer)

    register_optimizer_step_post_hook(stepped)


def _notice_compile(torch: Any) -> list[bool]:
    """A list that is empty until torch.compile is used (also `Module.compile` comes through it)."""
    used: list[bool] = []
    original = getattr(torch, "compile", None)
    if original is not None:

        @functools.wraps(original)
        def compiling(*args: Any, **kwargs: Any) -> Any:
            used.append(True)
            return original(*args, **kwargs)

        torch.compile = compiling
    return used


def _hook_scaler(torch: Any) -> None:
    """When gradients overflowed, GradScaler.step returns without calling the optimizer: no hook fires."""
    try:
        from torch.amp.grad_scaler import GradScaler
    except ImportError:  # before torch 2.3
        from torch.cuda.amp.grad_scaler import GradScaler
    original = GradScaler.step

    @functools.wraps(original)
    def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        before = sum(CLOCK.counts)
        CLOCK.scaler_steps += 1
        CLOCK.scaled_steps += self.is_enabled()
        result = original(self, optimizer, *args, **kwargs)
        if sum(CLOCK.counts) == before and self.is_enabled():
            CLOCK.optimizer_stepped(optimizer, skipped=True)
        return result

    GradScaler.step = step


def _hook_backward(torch: Any) -> None:
    original = torch.autograd.backward

    from _trainlint_probe import loader

    state, clock, boundaries, trained_on_latest = probe.STATE, CLOCK, CLOCK.boundaries, loader.backward_done

    @functools.wraps(original)
    def backward(*args: Any, **kwargs: Any) -> Any:
        if not state.active:
            return original(*args, **kwargs)
        interval = len(boundaries)
        if interval not in clock.to_backward_ns and interval >= clock.warmup:
            # Up to the first backward no collective has run: this is where a slow rank shows.
            clock.to_backward_ns[interval] = now() - boundaries[-1]
        if clock.phase != "train" and interval >= clock.warmup:
            clock.set_phase("train")
        result = original(*args, **kwargs)
        turn = clock.latest_turn
        if turn is not None and (turn.since_backward or not turn.trained):
            trained_on_latest()
        clock.backwards += 1
        if clock.anchored is None:
            clock.backward_done()
        return result

    torch.autograd.backward = backward  # Tensor.backward looks it up there on each call


def _hook_evaluation_mode(torch: Any) -> None:
    """An interval in which a module was put into eval mode is no plain step, even where no loader is evaluated.

    Without any loader (nanoGPT's `estimate_loss`) the mode is also what tells evaluation from training.
    """
    from _trainlint_probe import loader

    original_eval, original_train = torch.nn.Module.eval, torch.nn.Module.train

    @functools.wraps(original_eval)
    def to_eval(self: Any) -> Any:
        if probe.STATE.active:
            CLOCK.flag("eval_mode")
            if CLOCK.past_warmup and not loader.Progress.loaders:
                CLOCK.set_phase("eval")
        return original_eval(self)

    @functools.wraps(original_train)
    def to_train(self: Any, mode: bool = True) -> Any:
        if mode and CLOCK.phase == "eval" and not loader.Progress.loaders:
            CLOCK.set_phase("train")
        return original_train(self, mode)

    torch.nn.Module.eval, torch.nn.Module.train = to_eval, to_train

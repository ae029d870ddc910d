"""Live tensor bytes, counted: what is alive at the peak, by the line that made it and by what it is for.

Deterministic, and the same on any machine. Allocations of one storage are rounded up to 512 bytes, as CUDA's caching
allocator does. Categories are settled late: that a storage is a gradient is known at the step's end, so a snapshot
keeps records, not numbers. Under this pass torch.compile runs eagerly (a dispatch mode turns it off): the report says
so.
"""

from __future__ import annotations

import functools
import weakref
from typing import Any

import _trainlint_probe as probe
from _trainlint_probe import memory_series, script_end
from _trainlint_probe.clock import CLOCK
from _trainlint_probe.memory_series import by_category
from _trainlint_probe.sites import UNKNOWN, user_site

ALLOCATOR_ROUND = 512
NEW_SNAPSHOT = 1.01  # a peak this much above the last snapshot's is worth a new one

PARAMETERS = "parameters"
GRADIENTS = "gradients"
OPTIMIZER = "optimizer state"
IN_OPTIMIZER = "optimizer temporaries"
ACTIVATIONS = "activations"
IN_BACKWARD = "backward temporaries"
BATCH = "batch"
OTHER = "made before the first step"


class Storage:
    """One storage that was or is alive."""

    __slots__ = ("bytes", "category", "phase", "site", "step")

    def __init__(self, size: int, category: str, site: tuple[Any, ...]) -> None:
        self.bytes = size
        self.category = category
        self.site = site
        self.step = CLOCK.step_count
        self.phase = CLOCK.phase


class Live:
    """The storages that are alive now, and the peaks."""

    def __init__(self) -> None:
        self.total = 0
        self.storages: dict[int, tuple[Any, Storage]] = {}
        self.peak = 0
        self.peak_step = 0
        self.peak_by_phase: dict[str, int] = {}
        self.snapshots: dict[str, list[Storage]] = {}
        self._snapshot_at: dict[str, int] = {}

    def add(self, tensor: Any, category: str, site: tuple[Any, ...] | None) -> None:
        try:
            storage = tensor.untyped_storage()
        except (RuntimeError, NotImplementedError):
            return
        key = storage._cdata
        if key in self.storages:
            return
        size = -(-storage.nbytes() // ALLOCATOR_ROUND) * ALLOCATOR_ROUND
        if not size or tensor.device.type == "meta":
            return
        record = Storage(size, category, site if site is not None else user_site(3))
        self.total += size

        def gone(_: Any) -> None:
            kept = self.storages.get(key)
            if kept is not None and kept[1] is record:
                del self.storages[key]
                self.total -= record.bytes

        self.storages[key] = (weakref.ref(storage, gone), record)
        self._look_for_peak()

    def records(self) -> list[Storage]:
        return [record for _, record in list(self.storages.values())]

    def forget(self) -> None:
        """Count from here: what is alive now weighs nothing, also in a view of it and when it goes."""
        for _, record in self.storages.values():
            record.bytes = 0
        self.snapshots.clear()
        self.peak_by_phase.clear()
        self._snapshot_at.clear()
        self.total = self.peak = 0

    def record_of(self, tensor: Any) -> Storage | None:
        try:
            kept = self.storages.get(tensor.untyped_storage()._cdata)
        except (RuntimeError, NotImplementedError):
            return None
        return kept[1] if kept else None

    def _look_for_peak(self) -> None:
        if self.total > self.peak:
            self.peak = self.total
            self.peak_step = CLOCK.step_count
        phase = CLOCK.phase
        if self.total > self.peak_by_phase.get(phase, 0):
            self.peak_by_phase[phase] = self.total
            if self.total > self._snapshot_at.get(phase, 0) * NEW_SNAPSHOT:
                self._snapshot_at[phase] = self.total
                self.snapshots[phase] = self.records()
        memory_series.look(self)


class _Where:
    optimizer = 0
    backward = 0


WHERE = _Where()
LIVE = Live()
BOUNDARY_BYTES: list[int] = []
EVAL_BYTES: list[int] = []  # live bytes at each evaluation batch
COMPILED: list[int] = []


def install(torch: Any, config: dict[str, Any]) -> None:
    from _trainlint_probe import graph

    _count_storages(torch)
    _mark_phases(torch)
    _mark_batches(torch)
    graph.install(torch)
    _notice_compile(torch)
    memory_series.install(LIVE)
    CLOCK.on_boundary.append(lambda n: _at_boundary(torch))
    CLOCK.on_finish.append(lambda: {"memory": _record()})
    script_end.ON_ERROR.append(_at_error)


def _count_storages(torch: Any) -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    tensor = torch.Tensor

    class Count(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            if isinstance(out, tensor):
                LIVE.add(out, _category(), None)
            elif isinstance(out, (tuple, list)):
                for value in out:
                    if isinstance(value, tensor):
                        LIVE.add(value, _category(), None)
            return out

    mode = Count()
    probe.MODES.append(mode)
    mode.__enter__()  # from the import of torch on: parameters are made before the first step


def _category() -> str:
    if WHERE.optimizer:
        return IN_OPTIMIZER
    if WHERE.backward:
        return IN_BACKWARD
    return ACTIVATIONS if CLOCK.step_count else OTHER


def _mark_phases(torch: Any) -> None:
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    def before(optimizer: Any, args: Any, kwargs: Any) -> None:
        WHERE.optimizer += 1
        _settle(optimizer)

    def after(optimizer: Any, args: Any, kwargs: Any) -> None:
        WHERE.optimizer = max(0, WHERE.optimizer - 1)
        for state in optimizer.state.values():
            for value in state.values() if isinstance(state, dict) else ():
                if isinstance(value, torch.Tensor):
                    _set(value, OPTIMIZER)

    outside = getattr(torch, "_disable_dynamo", lambda function: function)
    register_optimizer_step_pre_hook(outside(before))
    register_optimizer_step_post_hook(outside(after))
    original = torch.autograd.backward

    @functools.wraps(original)
    def backward(*args: Any, **kwargs: Any) -> Any:
        within_optimizer, WHERE.optimizer = WHERE.optimizer, 0  # a closure (LBFGS)
        WHERE.backward += 1
        try:
            return original(*args, **kwargs)
        finally:
            WHERE.backward -= 1
            WHERE.optimizer = within_optimizer

    torch.autograd.backward = backward


def _settle(optimizer: Any) -> None:
    """Name parameters and gradients, which no operation can be told by."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            _set(parameter, PARAMETERS)
            if parameter.grad is not None:
                _set(parameter.grad, GRADIENTS)


def _set(tensor: Any, category: str) -> None:
    record = LIVE.record_of(tensor)
    if record is not None:
        record.category = category


def _mark_batches(torch: Any) -> None:
    from torch.utils.data import dataloader

    original = dataloader._BaseDataLoaderIter.__next__

    @functools.wraps(original)
    def take(self: Any) -> Any:
        if CLOCK.phase == "eval":
            EVAL_BYTES.append(LIVE.total)
        batch = original(self)
        site = user_site(2)
        for value in tensors_in(torch, batch, 0):
            record = LIVE.record_of(value)
            if record is None:
                LIVE.add(value, BATCH, site)
            else:
                record.category, record.site = BATCH, site
        return batch

    dataloader._BaseDataLoaderIter.__next__ = take


def tensors_in(torch: Any, value: Any, depth: int) -> Any:
    if isinstance(value, torch.Tensor):
        yield value
    elif depth < 4:
        if hasattr(value, "keys") and hasattr(value, "values"):
            value = value.values()
        elif not isinstance(value, (list, tuple)):
            return
        for item in value:
            yield from tensors_in(torch, item, depth + 1)


def _notice_compile(torch: Any) -> None:
    original = getattr(torch, "compile", None)
    if original is None:
        return

    @functools.wraps(original)
    def compiling(*args: Any, **kwargs: Any) -> Any:
        COMPILED.append(1)
        return original(*args, **kwargs)

    torch.compile = compiling


def _at_boundary(torch: Any) -> None:
    BOUNDARY_BYTES.append(LIVE.total)


def _at_error(error: BaseException) -> None:
    """Where the memory was when it ran out, before the frames are let go."""
    if script_end.ERROR.get("out_of_memory"):
        for optimizer in CLOCK.optimizers:
            _settle(optimizer)
        script_end.ERROR["memory"] = _record(now=True)


def _record(now: bool = False) -> dict[str, Any]:
    from _trainlint_probe import graph

    alive = LIVE.records()
    phases = {
        phase: {"peak": LIVE.peak_by_phase[phase], "by_category": by_category(records), "by_line": by_line(records)}
        for phase, records in LIVE.snapshots.items()
    }
    result = {
        "kind": "live_tensor_bytes",
        "peak": LIVE.peak,
        "peak_step": LIVE.peak_step,
        "phases": phases,
        "boundary_bytes": BOUNDARY_BYTES,
        "grown_by_line": by_line(
            [r for r in alive if r.step > CLOCK.warmup and r.step < CLOCK.step_count - 2 and r.category != OPTIMIZER]
        ),
        "eval_graph": graph.SEEN,
        "eval_bytes": EVAL_BYTES[:256],
        "over_time": memory_series.STRETCHES,
        "compiled": bool(COMPILED),
    }
    if now:
        result["alive"] = {"bytes": LIVE.total, "by_category": by_category(alive), "by_line": by_line(alive)}
    return result


def by_line(records: list[Storage], limit: int = 25) -> list[dict[str, Any]]:
    """The lines that made the most of these bytes, with the category that most of a line's bytes have."""
    sums: dict[tuple[Any, ...], dict[str, int]] = {}
    for record in records:
        line = sums.setdefault(record.site or UNKNOWN, {})
        line[record.category] = line.get(record.category, 0) + record.bytes
    ordered = sorted(sums.items(), key=lambda item: -sum(item[1].values()))[:limit]
    return [
        {
            "file": site[0],
            "line": site[1],
            "function": site[2],
            "bytes": sum(shares.values()),
            "category": max(shares, key=lambda category: shares[category]),
        }
        for site, shares in ordered
    ]

"""Where the host waits for the device: which call, on which line of the user's, on how many steps.

Only the Python API that can wait is wrapped (exact lines, almost no cost). On CUDA the device of the tensor decides,
and `set_sync_debug_mode` adds what happens inside torch. Without a GPU a call counts if its tensor *would* be on the
device (`taint`). The time inside such a call is not its cost (the device would have been waited for later): it is not
recorded at all.
"""

from __future__ import annotations

import functools
import threading
import warnings
from typing import Any

import _trainlint_probe as probe
from _trainlint_probe.clock import CLOCK
from _trainlint_probe.sites import user_site

METHODS = (
    "item", "tolist", "numpy", "cpu", "__bool__", "__int__", "__float__", "__index__", "__contains__",
    "__array__", "nonzero", "is_nonzero", "masked_select", "unique", "unique_consecutive", "equal",
    "allclose", "__repr__", "__str__", "__format__",
)  # fmt: skip
FUNCTIONS = ("nonzero", "masked_select", "unique", "unique_consecutive", "is_nonzero", "equal", "allclose", "bincount")

SYNC_WARNING = "called a synchronizing CUDA operation"  # c10/cuda/CUDAFunctions.cpp, warn_or_error_on_sync


class SiteCount:
    """One call on one line. `steps` and `batches` count distinct ones, `calls` all."""

    __slots__ = ("calls", "eval_batches", "eval_calls", "last_batch", "last_step", "steps")

    def __init__(self) -> None:
        self.calls = self.steps = self.eval_calls = self.eval_batches = 0
        self.last_step = self.last_batch = -1


SITES: dict[tuple[Any, ...], SiteCount] = {}


class _Inside(threading.local):
    depth = 0


INSIDE = _Inside()  # within one wait, and while an instrument looks at tensors: nothing is counted


def record(what: str, depth: int = 2) -> None:
    if not probe.STATE.active or not CLOCK.measuring:
        return
    key = (*user_site(depth + 1), what)
    count = SITES.get(key)
    if count is None:
        count = SITES[key] = SiteCount()
    step = CLOCK.step_count
    if CLOCK.phase == "eval":
        count.eval_calls += 1
        batch = CLOCK.batches_without_backward
        if (step, batch) != count.last_batch:
            count.eval_batches += 1
            count.last_batch = (step, batch)  # type: ignore[assignment]
        return
    count.calls += 1
    if step != count.last_step:
        count.steps += 1
        count.last_step = step


def install(torch: Any, config: dict[str, Any]) -> None:
    on_cuda = torch.cuda.is_available()
    if on_cuda:
        lives_on_device = _is_on_device
    else:
        from _trainlint_probe import taint

        lives_on_device = taint.install(torch).holds
    for name in METHODS:
        _wrap(torch, torch.Tensor, name, lives_on_device)
    for name in FUNCTIONS:
        _wrap(torch, torch, name, lives_on_device)
    _wrap_move_to_host(torch, lives_on_device)
    for owner, name in ((torch.cuda, "torch.cuda"), (torch.cuda.Event, "Event"), (torch.cuda.Stream, "Stream")):
        _wrap_synchronize(owner, f"{name}.synchronize")
    if on_cuda:
        watch_cuda(torch)
    CLOCK.on_finish.append(lambda: {"syncs": _records(), "syncs_kind": "cuda" if on_cuda else "would be"})


def _is_on_device(tensor: Any) -> bool:
    return tensor.device.type not in ("cpu", "meta")


def _wrap(torch: Any, owner: Any, name: str, lives_on_device: Any) -> None:
    original = getattr(owner, name, None)
    if original is None:
        return
    tensor = torch.Tensor

    @functools.wraps(original)
    def waits(*args: Any, **kwargs: Any) -> Any:
        if INSIDE.depth or not args or not isinstance(args[0], tensor) or not lives_on_device(args[0]):
            return original(*args, **kwargs)
        INSIDE.depth += 1
        try:
            return original(*args, **kwargs)
        finally:
            INSIDE.depth -= 1
            record(name)

    setattr(owner, name, waits)


def _wrap_move_to_host(torch: Any, lives_on_device: Any) -> None:
    """`.to("cpu")`: by the devices on CUDA, by the source line without."""
    import sys

    from _trainlint_probe.taint import says_host

    original = torch.Tensor.to

    @functools.wraps(original)
    def to(self: Any, *args: Any, **kwargs: Any) -> Any:
        target = kwargs.get("device", args[0] if args else None)
        if INSIDE.depth or not isinstance(target, (str, torch.device)) or torch.device(target).type != "cpu":
            return original(self, *args, **kwargs)
        waits = lives_on_device(self) and (self.device.type != "cpu" or says_host(sys._getframe(1)))
        result = original(self, *args, **kwargs)
        if waits and not kwargs.get("non_blocking"):
            record("to(cpu)")
        return result

    torch.Tensor.to = to


def _wrap_synchronize(owner: Any, name: str) -> None:
    original = getattr(owner, "synchronize", None)
    if original is None:
        return

    @functools.wraps(original)
    def synchronize(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        record(name)
        return result

    owner.synchronize = synchronize


def watch_cuda(torch: Any) -> None:
    """Waits inside torch: the warnings of sync debug mode, counted at the user's line instead of shown.

    Not covered by it: the `synchronize` of torch.cuda, events and streams (wrapped above), pageable copies with
    non_blocking, kernels of others. Waits in backward are attributed to the `backward()` line.
    """
    original_show = warnings.showwarning

    def show(message: Any, category: Any, filename: Any, lineno: Any, file: Any = None, line: Any = None) -> None:
        if SYNC_WARNING not in str(message):
            original_show(message, category, filename, lineno, file, line)
        elif not INSIDE.depth:  # a wrapped call counts once, under its own name
            record("sync", depth=2)

    def arm(step: int) -> None:
        if step == CLOCK.warmup:
            torch.cuda.set_sync_debug_mode("warn")
        if step >= CLOCK.warmup:  # the script may have set filters since
            if warnings.showwarning is not show:
                warnings.showwarning = show
            warnings.filterwarnings("always", message=f".*{SYNC_WARNING}")

    CLOCK.on_boundary.append(arm)


def _records() -> list[dict[str, Any]]:
    ordered = sorted(SITES.items(), key=lambda item: -(item[1].calls + item[1].eval_calls))
    return [
        {
            "file": file,
            "line": line,
            "function": function,
            "what": what,
            "calls": count.calls,
            "steps": count.steps,
            "eval_calls": count.eval_calls,
            "eval_batches": count.eval_batches,
        }
        for (file, line, function, what), count in ordered
    ]

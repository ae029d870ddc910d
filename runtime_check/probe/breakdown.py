"""Where a step's time goes: wait for data, host to device, forward, backward, optimizer; the rest is "other".

A handful of clock reads per step, none per module: forward runs from the first module call after a batch, a backward
or an optimizer step, to the next backward (so it holds the loss). On CUDA these are host times: what the device does
meanwhile is not split.
"""

from __future__ import annotations

import functools
from typing import Any

import _trainlint_probe as probe
from _trainlint_probe.clock import CLOCK, now
from _trainlint_probe.loader import batch_size
from _trainlint_probe.sites import user_site


class _Marks:
    forward_since = 0
    armed: Any = None
    nested_ns = 0  # forward and backward time inside an optimizer's closure
    closure_counted = False  # a closure runs on the same batch again and again: its samples count once a step
    in_optimizer_since = 0


MARKS = _Marks()


def install(torch: Any, config: dict[str, Any]) -> None:
    _arm(torch)
    _forget_modules_of_the_loader(torch)
    _time_backward(torch)
    _time_optimizer(torch)
    _time_moves(torch)
    _time_housekeeping(torch)
    CLOCK.on_finish.append(lambda: {"housekeeping": _housekeeping()})


def _arm(torch: Any) -> None:
    """Wait for the next module call. The hook takes itself off, so that only one call per batch pays."""
    from torch.nn.modules import module as modules

    if MARKS.armed is not None:
        return

    def first_call(module: Any, args: Any) -> None:
        armed, MARKS.armed = MARKS.armed, None
        if armed is not None:
            armed.remove()
        if probe.STATE.active:
            MARKS.forward_since = now()
            if MARKS.in_optimizer_since:
                if MARKS.closure_counted:
                    return
                MARKS.closure_counted = True
            samples, tokens = batch_size(args, torch.Tensor)
            CLOCK.add("forward_samples", samples)
            CLOCK.add("forward_tokens", tokens)

    MARKS.armed = modules.register_module_forward_pre_hook(first_call)


def _forget_modules_of_the_loader(torch: Any) -> None:
    """Transforms are modules too (torchvision's): a call within a batch's loading begins no forward."""
    from torch.utils.data import dataloader

    original = dataloader._BaseDataLoaderIter.__next__

    @functools.wraps(original)
    def take(self: Any) -> Any:
        before = MARKS.forward_since
        batch = original(self)
        MARKS.forward_since = before
        _arm(torch)
        return batch

    dataloader._BaseDataLoaderIter.__next__ = take


def _forward_ends() -> None:
    if MARKS.forward_since:
        spent = now() - MARKS.forward_since
        CLOCK.add("forward_ns", spent)
        MARKS.nested_ns += spent
        MARKS.forward_since = 0


def _time_backward(torch: Any) -> None:
    original = torch.autograd.backward

    @functools.wraps(original)
    def backward(*args: Any, **kwargs: Any) -> Any:
        _forward_ends()
        interval = CLOCK.sums.setdefault(len(CLOCK.boundaries), {})
        begun = now()
        try:
            return original(*args, **kwargs)
        finally:
            spent = now() - begun
            interval["backward_ns"] = interval.get("backward_ns", 0) + spent
            MARKS.nested_ns += spent
            _arm(torch)

    torch.autograd.backward = backward


def _time_optimizer(torch: Any) -> None:
    from torch.optim import optimizer as optimizers

    def before(optimizer: Any, args: Any, kwargs: Any) -> None:
        _forward_ends()
        MARKS.nested_ns = 0
        MARKS.closure_counted = False
        MARKS.in_optimizer_since = now()

    outside = getattr(torch, "_disable_dynamo", lambda function: function)
    optimizers.register_optimizer_step_pre_hook(outside(before))
    stepped = CLOCK.optimizer_stepped

    def after(optimizer: Any, skipped: bool = False) -> None:
        if MARKS.in_optimizer_since and not CLOCK.finished:
            CLOCK.add("optimizer_ns", max(0, now() - MARKS.in_optimizer_since - MARKS.nested_ns))
            MARKS.in_optimizer_since = 0
        _arm(torch)
        stepped(optimizer, skipped)  # after: the boundary belongs to the interval that ends here

    CLOCK.optimizer_stepped = after  # type: ignore[method-assign]


def _time_moves(torch: Any) -> None:
    for name in ("to", "cuda"):
        setattr(torch.Tensor, name, _moving(torch, getattr(torch.Tensor, name)))


def _moving(torch: Any, original: Any) -> Any:
    @functools.wraps(original)
    def move(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.device.type != "cpu":
            return original(self, *args, **kwargs)
        begun = now()
        result = original(self, *args, **kwargs)
        if result.device.type != "cpu" and probe.STATE.active:
            CLOCK.add("host_to_device_ns", now() - begun)
        return result

    return move


HOUSEKEEPING: dict[tuple[Any, ...], list[float]] = {}  # site and call -> [calls, ns]


def _time_housekeeping(torch: Any) -> None:
    """`gc.collect()` and `empty_cache()` do their work while the host waits: the time inside is their cost."""
    import gc

    for owner, name, called in ((gc, "collect", "gc.collect"), (torch.cuda, "empty_cache", "torch.cuda.empty_cache")):
        setattr(owner, name, _timed(getattr(owner, name), called))


def _timed(original: Any, called: str) -> Any:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        begun = now()
        result = original(*args, **kwargs)
        if probe.STATE.active and CLOCK.measuring:
            kept = HOUSEKEEPING.setdefault((*user_site(2), called), [0, 0])
            kept[0] += 1
            kept[1] += now() - begun
        return result

    return call


def _housekeeping() -> list[dict[str, Any]]:
    return [
        {"file": file, "line": line, "function": function, "what": what, "calls": int(calls), "ns": int(spent)}
        for (file, line, function, what), (calls, spent) in list(HOUSEKEEPING.items())
    ]

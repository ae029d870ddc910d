"""Collectives per step: those that the script calls, and DDP's own reductions of gradients."""

from __future__ import annotations

import functools
from typing import Any

import _trainlint_probe as probe
from _trainlint_probe.clock import CLOCK
from _trainlint_probe.sites import user_site

CALLS = (
    "all_reduce", "reduce", "broadcast", "all_gather", "all_gather_object", "all_gather_into_tensor",
    "gather", "scatter", "barrier", "reduce_scatter", "reduce_scatter_tensor", "all_to_all",
    "all_to_all_single", "broadcast_object_list",
)  # fmt: skip
COUNTS: dict[tuple[Any, ...], int] = {}


def install(torch: Any, config: dict[str, Any]) -> None:
    distributed = torch.distributed
    if not distributed.is_available():
        return
    for name in CALLS:
        original = getattr(distributed, name, None)
        if original is not None:
            setattr(distributed, name, _counting(original, name))
    _count_reductions()
    CLOCK.on_finish.append(
        lambda: {
            "collective_steps": max(0, min(CLOCK.step_count - 1, CLOCK.warmup + CLOCK.steps) - CLOCK.warmup),
            "collectives": [
                {"file": file, "line": line, "function": function, "what": what, "calls": calls}
                for (file, line, function, what), calls in sorted(COUNTS.items(), key=lambda item: -item[1])
            ],
        }
    )


def _count(what: str) -> None:
    # Past the steps that were asked for, epochs are ended after two batches: micro-batches then belong to no step.
    if probe.STATE.active and CLOCK.measuring and CLOCK.step_count <= CLOCK.warmup + CLOCK.steps:
        key = (*user_site(3), what)
        COUNTS[key] = COUNTS.get(key, 0) + 1


def _counting(original: Any, name: str) -> Any:
    @functools.wraps(original)
    def collective(*args: Any, **kwargs: Any) -> Any:
        _count(name)
        return original(*args, **kwargs)

    return collective


def _count_reductions() -> None:
    """DDP reduces in C++ during backward, for each forward that was made while `require_backward_grad_sync` held."""
    from torch.nn.parallel.distributed import DistributedDataParallel

    original = DistributedDataParallel.forward

    @functools.wraps(original)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        import torch

        if torch.is_grad_enabled() and self.require_backward_grad_sync:
            _count("gradient reduction (DDP)")
        return original(self, *args, **kwargs)

    DistributedDataParallel.forward = forward  # type: ignore[method-assign]

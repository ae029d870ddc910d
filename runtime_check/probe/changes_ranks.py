"""Changes that only several ranks know."""

from __future__ import annotations

import functools
from typing import Any

from _trainlint_probe.clock import CLOCK
from _trainlint_probe.interventions import Change, Switch


def install_no_sync(torch: Any, change: Change) -> Switch:
    """Gradients are reduced on the last of `micro_batches` of a step only, as within `DDP.no_sync()`.

    All ranks make the same steps, so that all of them leave out the same reductions.
    """
    from torch.nn.parallel.distributed import DistributedDataParallel

    micro: int = change.facts["micro_batches"]
    original = DistributedDataParallel.forward
    forwards: dict[int, list[int]] = {}  # of each model: the step, and its forwards in it

    @functools.wraps(original)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return original(self, *args, **kwargs)
        step, done = forwards.get(id(self), [-1, 0])
        done = done + 1 if step == CLOCK.step_count else 1
        forwards[id(self)] = [CLOCK.step_count, done]
        if not change.on or done >= micro:
            return original(self, *args, **kwargs)
        change.count()
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            return original(self, *args, **kwargs)
        finally:
            self.require_backward_grad_sync = before

    DistributedDataParallel.forward = forward
    return lambda on: None

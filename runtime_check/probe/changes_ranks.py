"""Changes that only several ranks know."""

from __future__ import annotations

import functools
import inspect
import os
from typing import Any

import _trainlint_probe as probe
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


def install_distributed(torch: Any, change: Change) -> Switch:
    """A script that was written for DataParallel, on one rank for each device: the model is wrapped in
    DistributedDataParallel, each rank sees its own device only, and takes its part of each batch.
    """
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    if ranks < 2:
        return lambda on: None  # the launcher itself
    cuda = torch.cuda.is_available()
    if cuda:  # before CUDA is in use: each rank then calls its device "cuda", "cuda:0", or 0
        seen = os.environ.get("CUDA_VISIBLE_DEVICES")
        names = seen.split(",") if seen else [str(n) for n in range(ranks)]
        os.environ["CUDA_VISIBLE_DEVICES"] = names[int(os.environ.get("LOCAL_RANK", "0"))]
    parallel = torch.nn.parallel

    class Wrapped(parallel.DistributedDataParallel):  # type: ignore[misc, name-defined]
        """Takes DataParallel's arguments."""

        def __init__(self, module: Any, device_ids: Any = None, output_device: Any = None, dim: int = 0) -> None:
            change.count()
            distributed = torch.distributed
            if not distributed.is_initialized():
                distributed.init_process_group("nccl" if cuda else "gloo")
            super().__init__(module.cuda() if cuda else module, device_ids=[0] if cuda else None)

    torch.nn.DataParallel = parallel.DataParallel = parallel.data_parallel.DataParallel = Wrapped
    _divide_batches(torch, ranks)
    return lambda on: None


def _divide_batches(torch: Any, ranks: int) -> None:
    data = torch.utils.data
    original = data.DataLoader.__init__
    signature = inspect.signature(original)

    @functools.wraps(original)
    def make(self: Any, *args: Any, **kwargs: Any) -> None:
        given = dict(signature.bind_partial(self, *args, **kwargs).arguments)
        given.pop("self")
        given.update(given.pop("kwargs", {}))
        if not probe.STATE.active or given.get("batch_sampler") is not None or given.get("batch_size", 1) is None:
            original(self, *args, **kwargs)
            return
        given["batch_size"] = max(1, given.get("batch_size", 1) // ranks)
        if given.get("sampler") is None and not isinstance(given["dataset"], data.IterableDataset):
            rank = int(os.environ["RANK"])
            shuffle = bool(given.pop("shuffle", False))
            given["sampler"] = data.DistributedSampler(given["dataset"], ranks, rank, shuffle=shuffle)
        original(self, **given)

    data.DataLoader.__init__ = make

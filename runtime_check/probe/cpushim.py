"""Without a GPU, run scripts that hard-code `cuda` on the CPU. What it shows about memory, loaders and lines holds;
times do not.

Only used when the script failed without it, and the report says so.
"""

from __future__ import annotations

import functools
from typing import Any

_FACTORIES = (
    "zeros", "ones", "empty", "full", "rand", "randn", "randint", "arange", "tensor", "linspace",
    "logspace", "eye", "randperm", "as_tensor", "zeros_like", "ones_like", "rand_like", "randn_like",
    "randint_like", "full_like", "empty_like",
)  # fmt: skip
_NOTHING_TO_DO = (
    "synchronize", "empty_cache", "set_device", "manual_seed", "manual_seed_all",
    "reset_peak_memory_stats", "init", "ipc_collect", "reset_max_memory_allocated",
    "set_per_process_memory_fraction",
)  # fmt: skip
_ZERO = ("max_memory_allocated", "memory_allocated", "max_memory_reserved", "memory_reserved", "current_device")


def install(torch: Any) -> None:
    def is_cuda(device: Any) -> bool:
        if isinstance(device, torch.device):
            return device.type == "cuda"
        if isinstance(device, str):
            return device.startswith("cuda")
        return isinstance(device, int) and not isinstance(device, bool)

    def on_cpu(original: Any) -> Any:
        """A function that may be given a device, by keyword or as its first argument after self."""

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            for name in ("device", "map_location"):
                if kwargs.get(name) is not None and is_cuda(kwargs[name]):
                    kwargs[name] = torch.device("cpu")
            return original(*args, **kwargs)

        return call

    def moving(original: Any) -> Any:
        @functools.wraps(original)
        def to(self: Any, *args: Any, **kwargs: Any) -> Any:
            if args and is_cuda(args[0]):
                args = (torch.device("cpu"), *args[1:])
            if kwargs.get("device") is not None and is_cuda(kwargs["device"]):
                kwargs["device"] = torch.device("cpu")
            return original(self, *args, **kwargs)

        return to

    torch.Tensor.cuda = torch.nn.Module.cuda = lambda self, *args, **kwargs: self
    torch.Tensor.to, torch.nn.Module.to = moving(torch.Tensor.to), moving(torch.nn.Module.to)
    torch.Tensor.pin_memory = lambda self, *args, **kwargs: self
    torch.Tensor.is_pinned = lambda self, *args, **kwargs: False
    for name in (*_FACTORIES, "load"):
        setattr(torch, name, on_cpu(getattr(torch, name)))
    for name in _NOTHING_TO_DO:
        setattr(torch.cuda, name, lambda *args, **kwargs: None)
    for name in _ZERO:
        setattr(torch.cuda, name, lambda *args, **kwargs: 0)
    torch.cuda.get_device_name = lambda *args, **kwargs: "cpu (trainlint verify shim)"
    _distributed_on_gloo(torch)


def _distributed_on_gloo(torch: Any) -> None:
    distributed = torch.distributed
    if not distributed.is_available():
        return
    original = distributed.init_process_group

    @functools.wraps(original)
    def init_process_group(backend: Any = None, *args: Any, **kwargs: Any) -> Any:
        if isinstance(backend, str) and "nccl" in backend:
            backend = "gloo"
        kwargs.pop("device_id", None)
        return original(backend, *args, **kwargs)

    distributed.init_process_group = init_process_group
    from torch.nn.parallel.distributed import DistributedDataParallel

    original_init = DistributedDataParallel.__init__

    @functools.wraps(original_init)
    def init(
        self: Any, module: Any, device_ids: Any = None, output_device: Any = None, *args: Any, **kwargs: Any
    ) -> None:
        original_init(self, module, None, None, *args, **kwargs)

    DistributedDataParallel.__init__ = init  # type: ignore[method-assign]

"""On a run without a GPU: which tensors would live on one.

Roots are parameters and what `.to(device)` and `.cuda()` return; an operation with such an input has such outputs.
Without this, nanoGPT shows hundreds of reads of index tensors, and Adam its own step counters; with it, exactly the
line that would wait.
"""

from __future__ import annotations

import functools
import linecache
import re
import sys
import weakref
from typing import Any

import _trainlint_probe as probe

_TO_THE_HOST = re.compile(r"""\.to\(\s*(device\s*=\s*)?["']cpu["']|torch\.device\(\s*["']cpu["']""")


class Taint:
    def __init__(self, torch: Any) -> None:
        self.tensor = torch.Tensor
        self._storages: dict[int, Any] = {}

    def mark(self, tensor: Any) -> None:
        try:
            storage = tensor.untyped_storage()
        except (RuntimeError, NotImplementedError):  # sparse, meta and wrapper subclasses have none
            return
        key = storage._cdata
        if key not in self._storages:
            self._storages[key] = weakref.ref(storage, lambda _, key=key: self._storages.pop(key, None))

    def holds(self, tensor: Any) -> bool:
        if tensor.requires_grad:
            return True
        try:
            return tensor.untyped_storage()._cdata in self._storages
        except (RuntimeError, NotImplementedError):
            return False

    def any_of(self, values: Any) -> bool:
        for value in values:
            if isinstance(value, self.tensor):
                if self.holds(value):
                    return True
            elif isinstance(value, (list, tuple)) and self.any_of(value):
                return True
        return False


def install(torch: Any) -> Taint:
    taint = Taint(torch)
    _follow_operations(taint)
    _follow_moves(torch, taint)
    return taint


def _follow_operations(taint: Taint) -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Follow(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            if taint.any_of(args) or (kwargs and taint.any_of(kwargs.values())):
                for value in out if isinstance(out, (tuple, list)) else (out,):
                    if isinstance(value, taint.tensor):
                        taint.mark(value)
            return out

    mode = Follow()
    mode.__enter__()  # for the life of the process
    probe.MODES.append(mode)


def _follow_moves(torch: Any, taint: Taint) -> None:
    tensor = torch.Tensor
    original_to, original_cuda = tensor.to, tensor.cuda

    @functools.wraps(original_to)
    def to(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original_to(self, *args, **kwargs)
        target = kwargs.get("device", args[0] if args else None)
        by_number = isinstance(target, int) and not isinstance(target, bool)
        if (by_number or isinstance(target, (str, torch.device))) and not says_host(sys._getframe(1)):
            taint.mark(result)
        return result

    @functools.wraps(original_cuda)
    def cuda(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original_cuda(self, *args, **kwargs)
        taint.mark(result)
        return result

    tensor.to, tensor.cuda = to, cuda


def says_host(frame: Any) -> bool:
    """Without a GPU, `x.to(device)` and `x.to("cpu")` are the same call: the source line tells them apart."""
    return bool(_TO_THE_HOST.search(linecache.getline(frame.f_code.co_filename, frame.f_lineno)))

"""The step on fake tensors: shapes and sizes without memory or arithmetic, so that a model can be asked what it would
take on a card that is not here.

The script runs as it is up to its first call of a model: data, the model's construction and its checkpoints are real.
Then the model's parameters and buffers are replaced by fakes (of the CPU: those of CUDA do not survive a backward where
there is no GPU), and all that is computed from them is fake too. What the script reads back is a constant.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

from _trainlint_probe.clock import CLOCK
from _trainlint_probe.memory import LIVE, PARAMETERS
from _trainlint_probe.roots import Roots

OPTIMIZERS: list[Any] = []
SITES: dict[int, Any] = {}  # of storages that were made before the first call of a model
DONE: list[Any] = []  # models that were made fake, kept so that an id is not given twice


def install(torch: Any, config: dict[str, Any]) -> None:
    fake = importlib.import_module("torch._subclasses.fake_tensor")
    mode = fake.FakeTensorMode(allow_non_fake_inputs=True)
    known: set[int] = set()

    def before(module: Any, args: Any) -> None:
        if id(module) not in known:
            known.add(id(module))
            if not DONE:
                _forget_the_host()
            DONE.append(module)
            _make_fake(torch, mode, fake.FakeTensor, module)

    Roots(torch, before, lambda module, output: None)
    _remember_optimizers(torch)
    _read_constants(torch, fake.FakeTensor)
    _walk_as_on_cuda(torch)
    CLOCK.on_finish.append(lambda: {"predicted": {"models": len(DONE)}})


def _forget_the_host() -> None:
    """What is alive before a model is called (data sets, the models as they were made) lies in the host's memory."""
    SITES.update({key: record.site for key, (_, record) in LIVE.storages.items()})
    LIVE.forget()


def _make_fake(torch: Any, mode: Any, fake_tensor: type, model: Any) -> None:
    instead: dict[int, Any] = {}
    for module in model.modules():
        for registered in (module._parameters, module._buffers):
            for name, value in list(registered.items()):
                if value is None or isinstance(value, fake_tensor):
                    continue
                if id(value) not in instead:
                    instead[id(value)] = replacement = mode.from_tensor(value)
                    LIVE.add(replacement, PARAMETERS, SITES.get(value.untyped_storage()._cdata))
                registered[name] = instead[id(value)]
    for optimizer in OPTIMIZERS:
        for group in optimizer.param_groups:
            group["params"] = [instead.get(id(parameter), parameter) for parameter in group["params"]]


def _remember_optimizers(torch: Any) -> None:
    original = torch.optim.Optimizer.__init__

    @functools.wraps(original)
    def make(self: Any, *args: Any, **kwargs: Any) -> None:
        OPTIMIZERS.append(self)
        original(self, *args, **kwargs)

    torch.optim.Optimizer.__init__ = make


def _walk_as_on_cuda(torch: Any) -> None:
    """On CUDA optimizers walk over all parameters at once unless told otherwise, which takes memory of its own."""
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    def before(optimizer: Any, args: Any, kwargs: Any) -> None:
        for group in optimizer.param_groups:
            if group.get("foreach", False) is None and not group.get("fused"):
                group["foreach"] = True

    register_optimizer_step_pre_hook(before)


def _read_constants(torch: Any, fake_tensor: type) -> None:
    """A fake has no value: what reads one gets 1 (no division by it fails), comparisons are false, nothing is NaN."""

    def constant(tensor: Any) -> Any:
        if tensor.dtype == torch.bool:
            return False
        return 1.0 if tensor.dtype.is_floating_point else (1 + 0j if tensor.dtype.is_complex else 1)

    def real(tensor: Any) -> Any:
        return torch.full(tuple(tensor.shape), constant(tensor), dtype=tensor.dtype)

    readers = {
        "item": lambda self, *args: constant(self),
        "tolist": lambda self, *args: real(self).tolist(),
        "numpy": lambda self, *args, **kwargs: numpy(real(self)),
        "__bool__": lambda self: bool(constant(self)),
        "__int__": lambda self: int(constant(self)),
        "__float__": lambda self: float(constant(self)),
        "__index__": lambda self: int(constant(self)),
        "__format__": lambda self, spec: format(constant(self), spec) if self.dim() == 0 else "tensor(...)",
        "__repr__": lambda self, **kwargs: "tensor(...)",
        "__contains__": lambda self, value: False,
        "isnan": lambda self: torch.zeros(tuple(self.shape), dtype=torch.bool),
        "isinf": lambda self: torch.zeros(tuple(self.shape), dtype=torch.bool),
        "isfinite": lambda self: torch.ones(tuple(self.shape), dtype=torch.bool),
    }
    numpy = torch.Tensor.numpy

    def patch(owner: Any, name: str, reader: Any) -> None:
        original = getattr(owner, name)

        @functools.wraps(original)
        def read(self: Any, *args: Any, **kwargs: Any) -> Any:
            return reader(self, *args, **kwargs) if isinstance(self, fake_tensor) else original(self, *args, **kwargs)

        setattr(owner, name, read)

    for name, reader in readers.items():
        patch(torch.Tensor, name, reader)
        if name.startswith("is"):
            patch(torch, name, reader)

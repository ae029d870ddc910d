"""What the script is made of: its models and where it calls them, its optimizers, what a candidate could be applied to.

Part of the observing pass where `--try` or `--predict` asks for it.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

import _trainlint_probe as probe
from _trainlint_probe.changes_model import container_of
from _trainlint_probe.clock import CLOCK
from _trainlint_probe.roots import Roots
from _trainlint_probe.sites import user_site

_MOST = 64  # places where models are called
MODELS: dict[tuple[Any, ...], dict[str, Any]] = {}
OPTIMIZER_SITES: dict[int, tuple[Any, ...]] = {}
BACKWARDS: dict[tuple[Any, ...], int] = {}


def install(torch: Any, config: dict[str, Any]) -> None:
    Roots(torch, functools.partial(_called, torch), lambda module, output: None)
    _remember_optimizers(torch)
    _remember_backwards(torch)
    CLOCK.on_finish.append(lambda: {"parts": _record(torch)})


def _called(torch: Any, module: Any, args: Any) -> None:
    if not probe.STATE.active:
        return
    key = (*user_site(3), id(module), module.training, torch.is_grad_enabled())
    known = MODELS.get(key)
    if known is not None:
        known["calls"] += 1
    elif len(MODELS) < _MOST:
        MODELS[key] = {
            "site": list(key[:3]),
            "training": key[4],
            "grad": key[5],
            "calls": 1,
            **_facts(torch, module, args),
        }


def _facts(torch: Any, module: Any, args: Any) -> dict[str, Any]:
    wrapper = type(module).__name__
    inner = getattr(module, "module", None) or getattr(module, "_orig_mod", None) or module
    device = next(module.parameters()).device.type
    return {
        "class": type(inner).__name__,
        "wrapper": wrapper if inner is not module else None,
        "device": device,
        "autocast": _autocast(torch, device),
        "compiled": hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None,
        "dimensions": max((value.dim() for value in args if isinstance(value, torch.Tensor)), default=None),
        "convolutions": any(isinstance(m, (torch.nn.Conv2d, torch.nn.ConvTranspose2d)) for m in inner.modules()),
        "channels_last": any(p.dim() == 4 and _lies_channels_last(torch, p) for p in inner.parameters()),
        "blocks": _blocks(torch, inner),
    }


def _autocast(torch: Any, device: str) -> bool:
    try:
        return bool(torch.is_autocast_enabled(device))
    except TypeError:  # before torch 2.4
        return bool(torch.is_autocast_enabled() or torch.is_autocast_cpu_enabled())


def _lies_channels_last(torch: Any, parameter: Any) -> bool:
    """A 1x1 kernel lies in both orders."""
    last = parameter.is_contiguous(memory_format=torch.channels_last)
    return bool(last and not parameter.is_contiguous())


def _blocks(torch: Any, model: Any) -> dict[str, Any] | None:
    """What `--try checkpoint` would recompute, and where its owner's forward is written."""
    found = container_of(torch, model)
    if found is None:
        return None
    name, container = found
    owner = model.get_submodule(name.rpartition(".")[0])
    code = getattr(type(owner).forward, "__code__", None)
    written = code is not None and not code.co_filename.startswith(torch.__path__[0])
    return {
        "name": name,
        "count": len(container),
        "of": type(container).__name__,
        "file": code.co_filename if written and code is not None else None,
        "line": code.co_firstlineno if written and code is not None else None,
    }


def _remember_optimizers(torch: Any) -> None:
    original = torch.optim.Optimizer.__init__

    @functools.wraps(original)
    def make(self: Any, *args: Any, **kwargs: Any) -> None:
        if probe.STATE.active:
            OPTIMIZER_SITES[id(self)] = user_site(2)
        original(self, *args, **kwargs)

    torch.optim.Optimizer.__init__ = make


def _remember_backwards(torch: Any) -> None:
    original = torch.autograd.backward

    @functools.wraps(original)
    def backward(*args: Any, **kwargs: Any) -> Any:
        if probe.STATE.active and (len(BACKWARDS) < _MOST):
            site = user_site(2)
            BACKWARDS[site] = BACKWARDS.get(site, 0) + 1
        return original(*args, **kwargs)

    torch.autograd.backward = backward


def _record(torch: Any) -> dict[str, Any]:
    cuda = bool(torch.cuda.is_available())
    return {
        "models": list(MODELS.values()),
        "optimizers": [_optimizer(torch, optimizer) for optimizer in CLOCK.optimizers],
        "backwards": [{"site": list(site), "calls": calls} for site, calls in BACKWARDS.items()],
        "cuda": cuda,
        "devices": torch.cuda.device_count() if cuda else 0,
        "bfloat16": _bfloat16(torch) if cuda else True,
        "scaler": CLOCK.scaled_steps > 0,
        "platform": sys.platform,
    }


def _bfloat16(torch: Any) -> bool:
    """By hardware: torch says yes for older cards too, where it is emulated and slow."""
    return bool(torch.cuda.get_device_capability()[0] >= 8)


def _optimizer(torch: Any, optimizer: Any) -> dict[str, Any]:
    groups = optimizer.param_groups
    parameters = [parameter for group in groups for parameter in group["params"]]
    return {
        "type": type(optimizer).__name__,
        "site": list(OPTIMIZER_SITES.get(id(optimizer), ("?", 0, "?"))),
        "knows_fused": all("fused" in group for group in groups),
        "fused": any(group.get("fused") for group in groups),
        "floating": all(parameter.dtype.is_floating_point for parameter in parameters),
        "bytes": sum(parameter.numel() * parameter.element_size() for parameter in parameters),
    }

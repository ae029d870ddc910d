"""Changes to how the model runs: autocast around its forward, its blocks recomputed in backward, its memory format."""

from __future__ import annotations

from typing import Any

import _trainlint_probe as probe
from _trainlint_probe.clock import CLOCK
from _trainlint_probe.interventions import Change, Switch
from _trainlint_probe.roots import Roots, in_backward, is_model


def install_autocast(torch: Any, change: Change) -> Switch:
    """The outermost forward runs under autocast, and gives float32 back, as Accelerate does it."""
    dtype = getattr(torch, change.facts.get("dtype", "bfloat16"))
    entered: list[Any] = []

    def before(module: Any, args: Any) -> None:
        if change.on and not entered:
            parameter = next(module.parameters())
            context = torch.autocast(parameter.device.type, dtype=dtype)
            context.__enter__()
            entered.append(context)
            change.count()

    def after(module: Any, output: Any) -> Any:
        if not entered:
            return None
        entered.pop().__exit__(None, None, None)
        return _to_float32(torch, output, 0)

    Roots(torch, before, after)
    return lambda on: None


def _to_float32(torch: Any, value: Any, depth: int) -> Any:
    if isinstance(value, torch.Tensor):
        return value.float() if value.dtype in (torch.float16, torch.bfloat16) else value
    if depth > 3:
        return value
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple(_to_float32(torch, item, depth + 1) for item in value)
    if isinstance(value, list):
        return [_to_float32(torch, item, depth + 1) for item in value]
    if isinstance(value, dict) and type(value) is dict:
        return {key: _to_float32(torch, item, depth + 1) for key, item in value.items()}
    return value


def install_checkpoint(torch: Any, change: Change) -> Switch:
    """The elements of the model's largest Sequential or ModuleList are recomputed in backward."""
    from torch.utils.checkpoint import checkpoint

    wrapped: set[int] = set()
    kept: list[Any] = []  # so that an id is not given twice

    def before(module: Any, args: Any) -> None:
        if id(module) in wrapped or not change.on:
            return
        wrapped.add(id(module))
        kept.append(module)
        for block in largest_container(torch, module):
            _recompute(torch, block, checkpoint, change)

    Roots(torch, before, lambda module, output: None)
    return lambda on: None


def largest_container(torch: Any, model: Any) -> list[Any]:
    """Elements of `container_of` that hold parameters."""
    found = container_of(torch, model)
    return [] if found is None else [element for element in found[1] if next(element.parameters(), None) is not None]


def container_of(torch: Any, model: Any) -> tuple[str, Any] | None:
    """The Sequential or ModuleList that holds most of the model, with its name: of those with at least half as many
    parameters as the largest, the one with the most elements. Recomputing one block that is all of the model saves
    nothing.
    """
    containers = (torch.nn.Sequential, torch.nn.ModuleList)
    found = [(name, m) for name, m in model.named_modules() if isinstance(m, containers) and len(m) > 1]
    if not found:
        return None
    size = {name: sum(p.numel() for p in m.parameters()) for name, m in found}
    most = max(size.values())
    return max((entry for entry in found if 2 * size[entry[0]] >= most), key=lambda entry: len(entry[1]))


def _recompute(torch: Any, block: Any, checkpoint: Any, change: Change) -> None:
    original = block.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        if not change.on or not torch.is_grad_enabled() or not block.training:
            return original(*args, **kwargs)
        change.count()
        return checkpoint(original, *args, use_reentrant=False, **kwargs)

    block.forward = forward


def install_channels_last(torch: Any, change: Change) -> Switch:
    """Four-dimensional parameters and inputs lie in channels_last order."""
    done: dict[int, bool] = {}
    kept: list[Any] = []

    def before(module: Any, args: Any) -> Any:
        if done.get(id(module), False) is not change.on:
            done[id(module)] = change.on
            kept.append(module)
            module.to(memory_format=torch.channels_last if change.on else torch.contiguous_format)
        if not change.on:
            return None
        change.count()
        return tuple(
            arg.contiguous(memory_format=torch.channels_last)
            if isinstance(arg, torch.Tensor) and arg.dim() == 4
            else arg
            for arg in args
        )

    Roots(torch, before, lambda module, output: None)
    return lambda on: None


def install_compile(torch: Any, change: Change) -> Switch:
    """The modules that the step calls are compiled with the defaults, once each, before they are first trained.

    For a whole launch: `Module.__call__` is wrapped until the first step is done, and then as it was, so that nothing of
    this is traced or timed.
    """
    module_class = torch.nn.Module
    original = module_class.__call__
    depth = [0]

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        outermost = depth[0] == 0 and probe.STATE.active and not in_backward(torch)
        if outermost and change.on and self.training and torch.is_grad_enabled() and is_model(torch, self):
            if getattr(self, "_compiled_call_impl", None) is None and not hasattr(self, "_orig_mod"):
                self.compile()
                change.count()
        depth[0] += 1
        try:
            return original(self, *args, **kwargs)
        finally:
            depth[0] -= 1

    def at_boundary(n: int) -> None:
        if module_class.__call__ is call:
            module_class.__call__ = original

    module_class.__call__ = call
    CLOCK.on_boundary.append(at_boundary)
    return lambda on: None


def install_scaled_float16(torch: Any, change: Change) -> Switch:
    """`autocast` in float16, with a GradScaler around backward and step: where bfloat16 is not in hardware.

    As in `GradScaler.step`, a step whose gradients overflowed is left out: it finds no gradients.
    """
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    change.facts.setdefault("dtype", "float16")
    switch = install_autocast(torch, change)
    scalers: dict[str, Any] = {}
    scaled: list[bool] = []  # a backward since the last boundary was scaled
    unscaled: list[Any] = []  # optimizers that are in their step
    original = torch.Tensor.backward

    def backward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not change.on:
            return original(self, *args, **kwargs)
        scaled.append(True)
        return original(_scaler(torch, scalers, self.device.type).scale(self), *args, **kwargs)

    def before(optimizer: Any, args: Any, kwargs: Any) -> None:
        if not scaled:
            return
        parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        if not parameters:
            return
        scaler = _scaler(torch, scalers, parameters[0].device.type)
        scaler.unscale_(optimizer)
        unscaled.append(scaler)
        if any(bool(found.item()) for found in scaler._found_inf_per_device(optimizer).values()):
            for parameter in parameters:
                parameter.grad = None

    def after(optimizer: Any, args: Any, kwargs: Any) -> None:
        if unscaled:
            unscaled.pop().update()

    torch.Tensor.backward = backward
    CLOCK.on_boundary.append(lambda n: scaled.clear())
    register_optimizer_step_pre_hook(before)
    register_optimizer_step_post_hook(after)
    return switch


def _scaler(torch: Any, made: dict[str, Any], device: str) -> Any:
    if device not in made:
        made[device] = torch.amp.GradScaler(device)
    return made[device]

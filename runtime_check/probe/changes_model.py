"""Changes to how the model runs: autocast around its forward, its blocks recomputed in backward, its memory format."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from _trainlint_probe.interventions import Change, Switch


class Roots:
    """The modules that the script itself calls, and what is done around their forward."""

    def __init__(self, torch: Any, before: Callable[[Any, Any], Any], after: Callable[[Any, Any], Any]) -> None:
        from torch.nn.modules import module as modules

        self._depth = 0
        self._torch = torch

        def enter(module: Any, args: Any) -> Any:
            self._depth += 1
            return before(module, args) if self._depth == 1 and _is_model(torch, module) else None

        def leave(module: Any, args: Any, output: Any) -> Any:
            self._depth = max(0, self._depth - 1)
            return after(module, output) if self._depth == 0 and _is_model(torch, module) else None

        modules.register_module_forward_pre_hook(enter)
        modules.register_module_forward_hook(leave, always_call=True)


def _is_model(torch: Any, module: Any) -> bool:
    """A module with parameters; a loss, which has none, is called by the script too."""
    return next(module.parameters(), None) is not None


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
    """Elements of the Sequential or ModuleList that holds most of the model: of those with at least half as many
    parameters as the largest, the one with the most elements. Recomputing one block that is all of the model saves
    nothing.
    """
    containers = (torch.nn.Sequential, torch.nn.ModuleList)
    found = [m for m in model.modules() if isinstance(m, containers) and len(m) > 1]
    if not found:
        return []
    size = {id(m): sum(p.numel() for p in m.parameters()) for m in found}
    most = max(size.values())
    chosen = max((m for m in found if 2 * size[id(m)] >= most), key=len)
    return [element for element in chosen if next(element.parameters(), None) is not None]


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

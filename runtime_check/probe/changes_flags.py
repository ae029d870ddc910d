"""Changes of settings: global flags of torch, anomaly detection, how the optimizer walks over its parameters."""

from __future__ import annotations

import functools
from typing import Any

from _trainlint_probe.clock import CLOCK
from _trainlint_probe.interventions import Change, Switch


def install_flag(torch: Any, change: Change) -> Switch:
    """`flags`: attribute below torch -> value ("backends.cuda.matmul.allow_tf32": True). What the script had set is
    looked up at each switch, and given back.
    """
    flags: dict[str, Any] = change.facts["flags"]
    before: dict[str, Any] = {}

    def switch(on: bool) -> None:
        for path, value in flags.items():
            owner, leaf = _below(torch, path)
            if on and path not in before:
                before[path] = getattr(owner, leaf)
                setattr(owner, leaf, value)
                change.count()
            elif not on and path in before:
                setattr(owner, leaf, before.pop(path))

    for path in flags:
        owner, leaf = _below(torch, path)
        getattr(owner, leaf)  # a flag that this torch does not have is said at once
    return switch


def _below(torch: Any, path: str) -> tuple[Any, str]:
    owner = torch
    *parts, leaf = path.split(".")
    for name in parts:
        owner = getattr(owner, name)
    return owner, leaf


def install_anomaly_off(torch: Any, change: Change) -> Switch:
    """Anomaly detection does nothing, however the script turns it on: once, or around each step."""
    kept: dict[str, Any] = {}

    def turn_off() -> None:
        if torch.is_anomaly_enabled():
            change.count()
            torch.set_anomaly_enabled(False)

    def wrap(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        @functools.wraps(original)
        def turn_on(self: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(self, *args, **kwargs)
            if change.on:
                turn_off()
            return result

        setattr(owner, name, turn_on)

    modes = torch.autograd.anomaly_mode
    wrap(modes.detect_anomaly, "__enter__")
    wrap(modes.set_detect_anomaly, "__init__")

    def switch(on: bool) -> None:
        if on and "enabled" not in kept:
            kept["enabled"] = torch.is_anomaly_enabled()
            kept["check_nan"] = torch.is_anomaly_check_nan_enabled()
            turn_off()
        elif not on and kept:
            torch.set_anomaly_enabled(kept.pop("enabled"), kept.pop("check_nan"))

    return switch


def install_optimizer(torch: Any, change: Change) -> Switch:
    """`options` of the parameter groups (`fused`, `foreach`), of all optimizers that know them."""
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    options: dict[str, Any] = change.facts["options"]
    before: dict[tuple[int, int, str], Any] = {}  # keyed by the optimizer's id: the clock keeps it alive
    seen: set[int] = set()

    def switch_one(optimizer: Any, on: bool) -> None:
        for place, group in enumerate(optimizer.param_groups):
            for name, value in options.items():
                key = (id(optimizer), place, name)
                if on and name in group and key not in before:
                    before[key] = group[name]
                    group[name] = value
                    change.count()
                elif not on and key in before:
                    group[name] = before.pop(key)
        _place_step_counts(torch, optimizer)

    def switch(on: bool) -> None:
        for optimizer in CLOCK.optimizers:
            switch_one(optimizer, on)

    def at_step(optimizer: Any, args: Any, kwargs: Any) -> None:
        """A launch that is changed as a whole was switched on before there was any optimizer."""
        if id(optimizer) not in seen:
            seen.add(id(optimizer))
            if change.on:
                switch_one(optimizer, True)

    register_optimizer_step_pre_hook(at_step)
    return switch


def _place_step_counts(torch: Any, optimizer: Any) -> None:
    """A fused kernel wants the step counts beside the parameters, the others want them on the host."""
    for group in optimizer.param_groups:
        beside = bool(group.get("fused") or group.get("capturable"))
        for parameter in group["params"]:
            state = optimizer.state.get(parameter)
            count = state.get("step") if isinstance(state, dict) else None
            if isinstance(count, torch.Tensor):
                target = parameter.device if beside else torch.device("cpu")
                if count.device != target:
                    state["step"] = count.to(target)


def install_set_to_none(torch: Any, change: Change) -> Switch:
    """`zero_grad` lets gradients go instead of filling them with zeros."""

    def wrap(owner: Any) -> None:
        original = owner.zero_grad

        @functools.wraps(original)
        def zero_grad(self: Any, set_to_none: bool = True) -> Any:
            if change.on:
                change.count()
                set_to_none = True
            return original(self, set_to_none=set_to_none)

        owner.zero_grad = zero_grad

    wrap(torch.optim.Optimizer)
    wrap(torch.nn.Module)
    return lambda on: None

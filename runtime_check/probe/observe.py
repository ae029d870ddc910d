"""What a run shows about learning: modes, gradients, precision, the order of epochs. Seen, not timed."""

from __future__ import annotations

import functools
from typing import Any, ClassVar

import _trainlint_probe as probe
from _trainlint_probe.clock import CLOCK
from _trainlint_probe.roots import in_backward
from _trainlint_probe.sites import user_site
from _trainlint_probe.syncs import INSIDE

GRADIENTS_LOOKED_AT = 64  # tensors per step: enough to see underflow, cheap enough for a large model


class Seen:
    forwards: ClassVar[
        dict[tuple[Any, ...], list[Any]]
    ] = {}  # (phase, training, grad) -> [count, site, autocast dtypes]
    first_backwards = 0
    uncleared = 0
    zero_share: ClassVar[list[float]] = []
    steps = 0
    steps_without_gradients = 0
    idle_bytes: int | None = None  # of parameters in the optimizer that never got a gradient
    dropout_in_eval: ClassVar[dict[tuple[Any, ...], int]] = {}
    not_finite = 0
    orders: ClassVar[dict[int, dict[str, Any]]] = {}


def install(torch: Any, config: dict[str, Any]) -> None:
    _look_at_forwards(torch)
    _look_at_gradients(torch)
    _look_at_orders()
    _look_at_dropout(torch)
    CLOCK.on_finish.append(lambda: {"behaviours": _record()})


def _look_at_forwards(torch: Any) -> None:
    from torch.nn.modules import module as modules

    depth = [0]

    def before(module: Any, args: Any) -> None:
        depth[0] += 1
        if depth[0] != 1 or not probe.STATE.active or not CLOCK.step_count or not _is_trained(torch, module):
            return
        if in_backward(torch):
            return  # a part that checkpointing computes again
        key = (CLOCK.phase, module.training, torch.is_grad_enabled())
        seen = Seen.forwards.get(key)
        if seen is None:
            seen = Seen.forwards[key] = [0, user_site(2), set()]
        seen[0] += 1
        if torch.is_autocast_enabled():
            seen[2].add(str(torch.get_autocast_gpu_dtype()))
        elif getattr(torch, "is_autocast_cpu_enabled", bool)():
            seen[2].add(str(torch.get_autocast_cpu_dtype()))

    def after(module: Any, args: Any, output: Any) -> None:
        depth[0] = max(0, depth[0] - 1)

    modules.register_module_forward_pre_hook(before)
    modules.register_module_forward_hook(after, always_call=True)


def _is_trained(torch: Any, module: Any) -> bool:
    """Loss modules and frozen modules have no parameter to train; their mode says nothing."""
    return any(parameter.requires_grad for parameter in module.parameters())


def _look_at_gradients(torch: Any) -> None:
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    fresh = [False]
    CLOCK.on_boundary.append(lambda n: fresh.__setitem__(0, True))
    original = torch.autograd.backward

    @functools.wraps(original)
    def backward(*args: Any, **kwargs: Any) -> Any:
        if fresh[0] and probe.STATE.active and CLOCK.anchor is not None:
            fresh[0] = False
            Seen.first_backwards += 1
            gradients = _gradients(CLOCK.optimizers[CLOCK.anchor], 4)
            INSIDE.depth += 1
            try:
                Seen.uncleared += any(bool(gradient.ne(0).any()) for gradient in gradients)
            finally:
                INSIDE.depth -= 1
        return original(*args, **kwargs)

    torch.autograd.backward = backward

    def before_step(optimizer: Any, args: Any, kwargs: Any) -> None:
        if not probe.STATE.active or not CLOCK.measuring:
            return
        Seen.steps += 1
        idle = _idle_bytes(optimizer)
        Seen.idle_bytes = idle if Seen.idle_bytes is None else min(idle, Seen.idle_bytes)
        zeros = total = 0
        INSIDE.depth += 1
        try:
            for gradient in _gradients(optimizer, GRADIENTS_LOOKED_AT):
                if gradient.is_sparse:
                    continue
                total += gradient.numel()
                zeros += gradient.numel() - int(torch.count_nonzero(gradient))
                Seen.not_finite += not bool(torch.isfinite(gradient).all())
        finally:
            INSIDE.depth -= 1
        if total:
            Seen.zero_share.append(zeros / total)
        Seen.steps_without_gradients += zeros == total

    outside = getattr(torch, "_disable_dynamo", lambda function: function)
    register_optimizer_step_pre_hook(outside(before_step))


def _idle_bytes(optimizer: Any) -> int:
    return sum(
        parameter.numel() * parameter.element_size()
        for group in optimizer.param_groups
        for parameter in group["params"]
        if parameter.grad is None
    )


def _look_at_dropout(torch: Any) -> None:
    """`F.dropout(x)` without `training=` drops in evaluation too."""
    functional = torch.nn.functional
    original = functional.dropout

    @functools.wraps(original)
    def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        if training and CLOCK.phase == "eval" and probe.STATE.active:
            site = user_site(2)
            Seen.dropout_in_eval[site] = Seen.dropout_in_eval.get(site, 0) + 1
        return original(input, p, training, inplace)

    functional.dropout = dropout


def _gradients(optimizer: Any, limit: int) -> list[Any]:
    found: ClassVar[list[Any]] = []
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is not None:
                found.append(parameter.grad)
                if len(found) >= limit:
                    return found
    return found


def _look_at_orders() -> None:
    """DistributedSampler shuffles the same way in each epoch unless `set_epoch` is called: hash the order of each."""
    from torch.utils.data.distributed import DistributedSampler

    original = DistributedSampler.__iter__

    @functools.wraps(original)
    def ordered(self: Any) -> Any:
        indices = list(original(self))
        if probe.STATE.active:
            seen = Seen.orders.setdefault(id(self), {"sampler": self, "shuffles": bool(self.shuffle), "hashes": []})
            seen["hashes"].append(hash(tuple(indices)))
        return iter(indices)

    DistributedSampler.__iter__ = ordered  # type: ignore[method-assign]


def _record() -> dict[str, Any]:
    return {
        "forwards": [
            {
                "phase": phase,
                "training": training,
                "grad": grad,
                "count": count,
                "site": list(site),
                "autocast": sorted(dtypes),
            }
            for (phase, training, grad), (count, site, dtypes) in list(Seen.forwards.items())
        ],
        "first_backwards": Seen.first_backwards,
        "uncleared": Seen.uncleared,
        "zero_gradient_share": max(Seen.zero_share) if Seen.zero_share else None,
        "steps": Seen.steps,
        "steps_without_gradients": Seen.steps_without_gradients,
        "idle_parameter_bytes": Seen.idle_bytes,
        "dropout_in_eval": [{"site": list(site), "calls": calls} for site, calls in Seen.dropout_in_eval.items()],
        "not_finite_gradients": Seen.not_finite,
        "orders": [{"shuffles": seen["shuffles"], "hashes": seen["hashes"]} for seen in Seen.orders.values()],
    }

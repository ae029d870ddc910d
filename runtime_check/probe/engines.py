"""Engines that own the step: DeepSpeed calls its inner optimizer once per parameter group, so the engine's step is
the one to count.

Interface used: `DeepSpeedEngine.step`, `.backward`, `.is_gradient_accumulation_boundary`, `.optimizer`
(deepspeed/runtime/engine.py).
"""

from __future__ import annotations

import functools
from typing import Any

from _trainlint_probe.clock import CLOCK


def install_deepspeed(engine_module: Any) -> None:
    engine = engine_module.DeepSpeedEngine
    original_step, original_backward = engine.step, engine.backward

    @functools.wraps(original_step)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        completes = self.is_gradient_accumulation_boundary()  # asked first: step() moves the counter on
        CLOCK.engine_depth += 1
        try:
            result = original_step(self, *args, **kwargs)
        finally:
            CLOCK.engine_depth -= 1
        if completes:
            CLOCK.optimizer_stepped(getattr(self, "optimizer", None) or self)
        return result

    @functools.wraps(original_backward)
    def backward(self: Any, *args: Any, **kwargs: Any) -> Any:
        from _trainlint_probe import loader

        result = original_backward(self, *args, **kwargs)
        loader.backward_done()  # ZeRO's backward does not always pass through torch.autograd.backward
        return result

    engine.step, engine.backward = step, backward

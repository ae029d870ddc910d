"""The modules that the script itself calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Roots:
    """The modules that the script itself calls, and what is done around their forward.

    Not those that checkpointing calls again from within backward: they are parts of one that was called before.
    """

    def __init__(self, torch: Any, before: Callable[[Any, Any], Any], after: Callable[[Any, Any], Any]) -> None:
        from torch.nn.modules import module as modules

        self._depth = 0

        def enter(module: Any, args: Any) -> Any:
            self._depth += 1
            outermost = self._depth == 1 and not in_backward(torch)
            return before(module, args) if outermost and is_model(torch, module) else None

        def leave(module: Any, args: Any, output: Any) -> Any:
            self._depth = max(0, self._depth - 1)
            outermost = self._depth == 0 and not in_backward(torch)
            return after(module, output) if outermost and is_model(torch, module) else None

        modules.register_module_forward_pre_hook(enter)
        modules.register_module_forward_hook(leave, always_call=True)


def in_backward(torch: Any) -> bool:
    """Is this thread running a backward pass?"""
    task = getattr(torch._C, "_current_graph_task_id", None)
    return task is not None and task() != -1


def is_model(torch: Any, module: Any) -> bool:
    """A module with parameters; a loss, which has none, is called by the script too."""
    return next(module.parameters(), None) is not None

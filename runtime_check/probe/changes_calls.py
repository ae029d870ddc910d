"""Changes to what one line calls: a wait that is left out, a call that does nothing, an argument that is another.

Whether a call comes from the lines is asked in both arms: else the asking would be a cost of arm B alone.
"""

from __future__ import annotations

import functools
from typing import Any

from _trainlint_probe.interventions import Change, Lines, Switch, caller, owner_of

#: Methods whose last value can stand in for the next. What has a shape that depends on the data cannot.
WAITING = (
    "item", "tolist", "numpy", "cpu", "__bool__", "__int__", "__float__", "__index__", "__format__", "__repr__",
    "__str__",
)  # fmt: skip


def install_elide_sync(torch: Any, change: Change) -> Switch:
    """The line gets the value that it got last, and the device is not waited for.

    What the script computes from that value is old; where the value steers the script, the effect is an upper bound.
    """
    lines, last = Lines(change.facts), dict[Any, Any]()

    def wrap(name: str) -> None:
        original = getattr(torch.Tensor, name)

        @functools.wraps(original)
        def read(self: Any, *args: Any, **kwargs: Any) -> Any:
            frame = caller()
            if not lines.hold(frame):
                return original(self, *args, **kwargs)
            key = (frame.f_lineno, frame.f_lasti, name)
            if change.on and key in last:
                change.count()
                return last[key]
            value = last[key] = original(self, *args, **kwargs)
            return value

        setattr(torch.Tensor, name, read)

    for name in WAITING:
        wrap(name)
    return lambda on: None


def install_skip_call(torch: Any, change: Change) -> Switch:
    """`call` does nothing at the lines, and returns None."""
    lines = Lines(change.facts)
    owner, name = owner_of(change.facts["call"])
    original = getattr(owner, name)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if lines.hold(caller()) and change.on:
            change.count()
            return None
        return original(*args, **kwargs)

    setattr(owner, name, call)
    return lambda on: None


def install_non_blocking(torch: Any, change: Change) -> Switch:
    """`.to(...)`, `.cuda()` and `.copy_()` at the lines do not wait for the copy."""
    lines = Lines(change.facts)

    def wrap(name: str) -> None:
        original = getattr(torch.Tensor, name)

        @functools.wraps(original)
        def move(self: Any, *args: Any, **kwargs: Any) -> Any:
            if lines.hold(caller()) and change.on:
                change.count()
                kwargs["non_blocking"] = True
            return original(self, *args, **kwargs)

        setattr(torch.Tensor, name, move)

    for name in ("to", "cuda", "copy_"):
        wrap(name)
    return lambda on: None


def install_backward_arguments(torch: Any, change: Change) -> Switch:
    """`backward(...)` at the lines gets other arguments (`retain_graph=False`)."""
    lines, arguments = Lines(change.facts), dict(change.facts["arguments"])
    original = torch.Tensor.backward

    @functools.wraps(original)
    def backward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if lines.hold(caller()) and change.on:
            change.count()
            kwargs.update(arguments)
        return original(self, *args, **kwargs)

    torch.Tensor.backward = backward
    return lambda on: None

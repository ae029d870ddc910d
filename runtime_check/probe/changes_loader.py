"""Changes to loaders, and evaluation without a graph."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import _trainlint_probe as probe
from _trainlint_probe.clock import CLOCK
from _trainlint_probe.interventions import Change, Switch
from _trainlint_probe.sites import user_site


def install_loader(torch: Any, change: Change) -> Switch:
    """The DataLoader that is made at the lines gets other options; without lines, each one that is made."""
    loader_class = torch.utils.data.DataLoader
    original = loader_class.__init__
    signature = inspect.signature(original)
    options: dict[str, Any] = change.facts["options"]
    rows, file = change.facts.get("rows"), change.facts.get("file")

    @functools.wraps(original)
    def make(self: Any, *args: Any, **kwargs: Any) -> None:
        if not change.on or not probe.STATE.active or not _is_here(file, rows):
            original(self, *args, **kwargs)
            return
        change.count()
        bound = signature.bind_partial(self, *args, **kwargs)
        given = dict(bound.arguments)
        given.pop("self")
        given.update(given.pop("kwargs", {}))
        original(self, **with_options(given, options))

    loader_class.__init__ = make
    return lambda on: None


def _is_here(file: Any, rows: Any) -> bool:
    if not rows:
        return True
    site = user_site(2)
    return bool(site[0] == file and rows[0] <= site[1] <= rows[1])


def with_options(given: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """What DataLoader would refuse together is left out: options of workers without workers, a batch size beside a
    batch sampler.
    """
    wanted = {**given, **options}
    if not wanted.get("num_workers"):
        for name in ("persistent_workers", "prefetch_factor", "multiprocessing_context", "timeout"):
            wanted.pop(name, None)
    if wanted.get("batch_sampler") is not None:
        wanted.pop("batch_size", None)
    return wanted


def install_eval_no_grad(torch: Any, change: Change) -> Switch:
    """Autograd is off while an evaluation runs (the clock's phase "eval"), and back as it was when that ends."""
    before: list[bool] = []

    def at_phase(old: str, new: str) -> None:
        if new == "eval" and change.on and not before:
            before.append(torch.is_grad_enabled())
            torch._C._set_grad_enabled(False)
            change.count()
        elif new != "eval" and before:
            torch._C._set_grad_enabled(before.pop())

    CLOCK.on_phase.append(at_phase)
    return lambda on: None

"""Checkpoints: torch opens the file in C++, so the redirection has to be asked for by name.

Also marks the step as no plain one.
"""

from __future__ import annotations

import functools
import os
import time
from typing import Any

import _trainlint_probe as probe
from _trainlint_probe import writers
from _trainlint_probe.clock import CLOCK
from _trainlint_probe.sites import user_site

SAVES: dict[tuple[Any, ...], list[float]] = {}  # (path, site) -> [times, bytes of the last one, seconds]


def install(torch: Any, config: dict[str, Any]) -> None:
    original_save, original_load = torch.save, torch.load

    @functools.wraps(original_save)
    def save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(f, (str, os.PathLike)):
            return original_save(obj, f, *args, **kwargs)
        path = os.path.abspath(os.fspath(f))
        target = writers.writing_place(f)
        begun = time.perf_counter()
        result = original_save(obj, target, *args, **kwargs)
        if probe.STATE.active:
            CLOCK.flag("torch.save")
            kept = SAVES.setdefault((path, user_site(2)), [0, 0, 0.0])
            kept[0] += 1
            kept[1] = os.path.getsize(target)
            kept[2] += time.perf_counter() - begun
        return result

    @functools.wraps(original_load)
    def load(f: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(f, (str, os.PathLike)):
            f = writers.reading_place(f)
        return original_load(f, *args, **kwargs)

    torch.save, torch.load = save, load
    scripted = torch.jit.RecursiveScriptModule  # torch.jit.save comes through it
    scripted.save = writers.redirected(scripted.save, 1, "f", writers.writing_place)
    torch.jit.load = writers.redirected(torch.jit.load, 0, "f", writers.reading_place)
    CLOCK.on_finish.append(
        lambda: {
            "saves": [
                {"path": path, "site": list(site), "times": int(n), "bytes": int(size), "seconds": seconds}
                for (path, site), (n, size, seconds) in SAVES.items()
            ]
        }
    )

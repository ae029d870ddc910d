"""The effect of a fix, applied at run time at one source line, and switched on and off while the script runs.

Each kind is an installer in one of the `changes_*` modules: it sets its wrappers once, at the import of torch, and
returns a function that switches them. Wrappers stay in place in both arms, so that their own cost is in both. `count`
notes when a change took effect: one that never did has shown nothing.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

import _trainlint_probe as probe
from _trainlint_probe.clock import CLOCK

Switch = Callable[[bool], None]

#: Kind -> module of its installer; the installer is called `install_<kind>(torch, change)`.
MODULES = {
    "elide_sync": "changes_calls",
    "skip_call": "changes_calls",
    "non_blocking": "changes_calls",
    "backward_arguments": "changes_calls",
    "flag": "changes_flags",
    "anomaly_off": "changes_flags",
    "optimizer": "changes_flags",
    "set_to_none": "changes_flags",
    "autocast": "changes_model",
    "checkpoint": "changes_model",
    "channels_last": "changes_model",
    "compile": "changes_model",
    "scaled_float16": "changes_model",
    "loader": "changes_loader",
    "eval_no_grad": "changes_loader",
    "no_sync": "changes_ranks",
    "distributed": "changes_ranks",
}


class Change:
    """One change of this launch: what it is, how to switch it, how often it took effect."""

    def __init__(self, facts: dict[str, Any]) -> None:
        self.facts = facts
        self.used = 0
        self.on = False
        self.failure: str | None = None
        self.switch_: Switch = lambda on: None

    def count(self) -> None:
        self.used += 1

    def switch(self, on: bool) -> None:
        self.on = on
        if self.failure is None:
            try:
                self.switch_(on)
            except Exception as error:
                self.failure = f"{type(error).__name__}: {error}"
                probe.note_error(f"change {self.facts['kind']}")


CHANGES: list[Change] = []


def make(torch: Any, facts: dict[str, Any]) -> Change:
    """Install one change, switched off."""
    change = Change(facts)
    CHANGES.append(change)
    try:
        module = importlib.import_module(f"_trainlint_probe.{MODULES[facts['kind']]}")
        change.switch_ = getattr(module, f"install_{facts['kind']}")(torch, change)
    except Exception as error:
        change.failure = f"{type(error).__name__}: {error}"
        probe.note_error(f"change {facts.get('kind')}")
    return change


def install(torch: Any, config: dict[str, Any]) -> None:
    """The changes that hold for the whole launch (an arm of a pair, or of a memory comparison)."""
    for facts in config.get("changes", ()):
        make(torch, facts).switch(True)
    CLOCK.on_finish.append(lambda: {"changes": record()})


def record() -> list[dict[str, Any]]:
    return [{"kind": c.facts["kind"], "used": c.used, "failure": c.failure} for c in CHANGES]


class Lines:
    """Does a call come from the change's lines? Without lines every call of the user's does."""

    def __init__(self, facts: dict[str, Any]) -> None:
        rows = facts.get("rows")
        self.first, self.last = rows or (0, sys.maxsize)
        self.file = facts.get("file") if rows else None
        self._known: dict[str, bool] = {}

    def hold(self, frame: Any) -> bool:
        if self.file is None:
            return True
        if not self.first <= frame.f_lineno <= self.last:
            return False
        name = frame.f_code.co_filename
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = name == self.file or os.path.realpath(name) == os.path.realpath(self.file)
        return known


_OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep


def caller() -> Any:
    """The frame that called the wrapper, past the wrappers of other changes around the same function."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OWN):
        frame = frame.f_back
    return frame


def owner_of(path: str) -> tuple[Any, str]:
    """ "torch.cuda.empty_cache" -> (module torch.cuda, "empty_cache"). Raises ImportError or AttributeError."""
    *parts, leaf = path.split(".")
    for end in range(len(parts), 0, -1):
        try:
            owner = importlib.import_module(".".join(parts[:end]))
        except ImportError:
            continue
        for name in parts[end:]:
            owner = getattr(owner, name)
        getattr(owner, leaf)
        return owner, leaf
    raise ImportError(f"no module of {path}")

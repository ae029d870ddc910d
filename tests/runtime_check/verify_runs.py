"""Launching fixtures, once per session and set of options: many tests look at the same run."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "fixtures" / "verify"
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from runtime_check.launch import Outcome, Pass, Session  # noqa: E402
from runtime_check.options import Options  # noqa: E402

# Two OpenMP threads on a busy machine wait for each other by spinning: a step takes a hundred times as long.
# The deadlines are there for what never ends: on a machine with much else to do a launch takes a minute and more.
BASE = Options(threads=1, steps=8, warmup=3, deadline_s=300.0, timeout_s=900.0)


class Launcher:
    """Launches a fixture in an empty folder and keeps what came of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._kept: dict[Any, Outcome] = {}

    def options(self, script: str, **changes: Any) -> Options:
        path = SCRIPTS / script
        name = f"{path.stem}-{len(list(self.folder.iterdir()))}"
        cwd = changes.pop("cwd", None) or self.folder / name
        cwd.mkdir(exist_ok=True)
        return replace(BASE, **{"script": str(path), **changes, "cwd": cwd})

    def __call__(
        self, script: str, *instruments: str, until_eval: bool = False, lines: Any = None, **changes: Any
    ) -> Outcome:
        key = (script, instruments, until_eval, tuple(sorted(changes.items())))
        if key not in self._kept:
            stand_in = changes.get("shim") == "on"
            session = Session(self.options(script, **{**changes, "shim": True}))
            session.shim = stand_in
            session.lines = lines or {}
            try:
                self._kept[key] = session.launch(Pass("test", instruments, until_eval=until_eval))
            finally:
                session.close()
        return self._kept[key]

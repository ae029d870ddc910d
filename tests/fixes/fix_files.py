"""Reads `fixtures/fixes/TLxxx/NAME.before.py` with its `.after.py` (after `--fix`) and `.unsafe.py` (with `--unsafe-fixes`).

A missing `.after.py` says that `--fix` leaves the file alone. A first line `# settings: ...` holds as for rule fixtures.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2] / "fixtures" / "fixes"


class Case(NamedTuple):
    before: Path
    unsafe: bool
    after: bytes

    @property
    def code(self) -> str:
        return self.before.parent.name

    @property
    def select(self) -> str:
        """A suppression can only be called unused where its rules are looked for."""
        return "ALL" if self.code == "TL001" else self.code

    def settings(self) -> str:
        found = re.match(rb"# settings: (.*)", self.before.read_bytes())
        return found[1].decode().strip() if found else 'torch-version = "2.5"'


def cases() -> list[Case]:
    found = []
    for before in sorted(ROOT.glob("TL*/*.before.*")):
        stem, _, ending = before.name.partition(".before")
        after = before.with_name(f"{stem}.after{ending}")
        unsafe = before.with_name(f"{stem}.unsafe{ending}")
        assert after.exists() or unsafe.exists(), before
        safely = after.read_bytes() if after.exists() else before.read_bytes()
        found.append(Case(before, False, safely))
        found.append(Case(before, True, unsafe.read_bytes() if unsafe.exists() else safely))
    return found

"""Reads the fixtures: scripts whose lines say what must be found there.

`# expect: TL101, TL103` names the findings that start on a line; `(advice)` after a code that it is advice. Findings of
level error and warning must match exactly; advice that is not expected does not count. A first line
`# settings: torch-version = "2.2"` gives settings. A folder `bad_*/` or `good_*/` is a project of several files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2] / "fixtures"
_EXPECT = re.compile(r"#\s*expect:\s*(.*)$")
_CODE = re.compile(r"(TL\d{3})(\s*\(advice\))?")
_SETTINGS = re.compile(r"#\s*settings:\s*(.*)$", re.MULTILINE)


class Expected(NamedTuple):
    path: str  # relative to the fixture
    cell: int  # 0 outside of notebooks
    row: int
    code: str
    advice: bool


class Fixture(NamedTuple):
    """One fixture: a file, or a folder with several."""

    path: Path
    files: tuple[Path, ...]

    @property
    def code(self) -> str:
        return self.path.parent.name

    @property
    def is_bad(self) -> bool:
        return self.path.name.startswith("bad")

    def expected(self) -> list[Expected]:
        return [e for file in self.files for e in _expected(file, self._relative(file))]

    def settings(self) -> str:
        """The settings of the fixture, as TOML."""
        heads = [file.read_text(encoding="utf-8", errors="replace")[:400] for file in self.files]
        found = [m[1] for head in heads for m in _SETTINGS.finditer(head)]
        return "\n".join(dict.fromkeys(found))

    def _relative(self, file: Path) -> str:
        return file.relative_to(self.path).as_posix() if self.path.is_dir() else file.name


def fixtures() -> list[Fixture]:
    """All rule fixtures, in the order of their codes."""
    found = []
    for folder in sorted(ROOT.glob("TL[0-9][0-9][0-9]")):
        for path in sorted(folder.iterdir()):
            if path.name.startswith(("bad", "good")):
                files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
                if path.suffix in (".py", ".ipynb") or path.is_dir():
                    found.append(Fixture(path, tuple(files)))
    return found


def _expected(file: Path, name: str) -> Iterator[Expected]:
    for cell, row, line in _lines(file):
        match = _EXPECT.search(line)
        if match:
            for code, advice in _CODE.findall(match[1]):
                yield Expected(name, cell, row, code, bool(advice))


def _lines(file: Path) -> Iterator[tuple[int, int, str]]:
    text = file.read_text(encoding="utf-8", errors="replace")
    if file.suffix != ".ipynb":
        for row, line in enumerate(text.splitlines(), 1):
            yield 0, row, line
        return
    cells = [c for c in json.loads(text)["cells"] if c["cell_type"] == "code"]
    for number, cell in enumerate(cells, 1):
        source = "".join(cell["source"])
        for row, line in enumerate(source.splitlines(), 1):
            yield number, row, line

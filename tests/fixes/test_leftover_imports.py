"""A name that a fix leaves without a use goes out of its import, unless somebody may want it."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainlint.discovery import discover
from trainlint.fixing import fix
from trainlint.settings import Configuration

HANDLER = """import torch
from torch.nn.functional import upsample


def grow(x):
    {row}
    return upsample(x, scale_factor=2)
"""


@pytest.mark.parametrize(
    ("row", "importer", "goes"),
    [
        ('print("before upsample() of", x)', "import handler", True),
        ("print(f'before upsample() of {x}')", "import handler", True),
        ('names = {"upsample": 1}', "import handler", False),
        ("y: 'upsample' = x", "import handler", False),
        ("y = eval('up' + 'sample')", "import handler", False),
        ("x = x + 1", "from helpers import *\nimport handler", True),
        ("x = x + 1", "from handler import *", False),
        ("x = x + 1", "from .handler import *", False),
        ("x = x + 1", "from handler import grow, upsample", False),
        ("x = x + 1", "import handler\nhandler.upsample", False),
    ],
)
def test_who_may_want_it(tmp_path: Path, row: str, importer: str, goes: bool) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "trainlint.toml").write_text('select = ["TL902"]\n', encoding="utf-8")
    handler = tmp_path / "handler.py"
    handler.write_text(HANDLER.format(row=row), encoding="utf-8")
    (tmp_path / "train.py").write_text(f"{importer}\nimport torch\n", encoding="utf-8")
    done = fix(discover([str(handler)], Configuration()), unsafe=False, write=True, progress=lambda results, _: results)
    assert not done.dropped and not done.problems
    text = handler.read_text(encoding="utf-8")
    assert "return torch.nn.functional.interpolate(" in text or "return F.interpolate(" in text, text
    assert ("import upsample" in text) is not goes

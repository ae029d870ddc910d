"""The layers of one `Sequential` are findings of their own: each with its own comment."""

from __future__ import annotations

from pathlib import Path

from trainlint.engine import check
from trainlint.findings import Finding
from trainlint.settings import Configuration, Overrides

BLOCK = """\
from torch import nn

block = nn.Sequential(
    nn.Conv2d(3, 8, 3),{first}
    nn.BatchNorm2d(8),
    nn.Conv2d(
        8,
        8,
        3,
    ),{second}
    nn.BatchNorm2d(8),
){last}
"""


def _findings(folder: Path, **comments: str) -> list[Finding]:
    text = BLOCK.format(**{"first": "", "second": "", "last": "", **comments})
    (folder / "block.py").write_text(text)
    configuration = Configuration(Overrides(select=("TL705",)))
    return [f for r in check([str(folder)], configuration) for f in r.findings]


def test_each_has_its_row(tmp_path: Path) -> None:
    assert [f.place.row for f in _findings(tmp_path)] == [4, 6]
    assert len({f.fingerprint for f in _findings(tmp_path)}) == 2


def test_a_comment_on_a_layer_is_about_that_layer(tmp_path: Path) -> None:
    assert [f.place.row for f in _findings(tmp_path, first="  # noqa: TL705")] == [6]
    assert [f.place.row for f in _findings(tmp_path, second="  # noqa: TL705")] == [4]
    assert _findings(tmp_path, last="  # noqa: TL705") == []

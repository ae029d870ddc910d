"""`hot-functions` and `loader-names`: what the configuration says of code that the model cannot see."""

from __future__ import annotations

from pathlib import Path

from trainlint.engine import check
from trainlint.settings import Configuration

SCRIPT = """\
import torch
import torch.nn.functional as F


class Recipe:
    def __init__(self, net, optimizer):
        self.net, self.optimizer = net.cuda(), optimizer

    def advance(self, x, y):
        self.optimizer.zero_grad()
        cost = F.cross_entropy(self.net(x.cuda(non_blocking=True)), y.cuda(non_blocking=True))
        cost.backward()
        self.optimizer.step()
        return cost.item()
"""

FEED = """\
import torch


@torch.no_grad()
def means(shards):
    for x, _ in shards.north:
        print(x.cuda(non_blocking=True).mean().item())
"""


def _codes(folder: Path) -> list[tuple[str, int]]:
    return [(f.code, f.place.row) for r in check([str(folder)], Configuration()) for f in r.findings]


def test_a_function_that_an_unseen_loop_calls(tmp_path: Path) -> None:
    (tmp_path / "recipe.py").write_text(SCRIPT)
    assert _codes(tmp_path) == []
    (tmp_path / "trainlint.toml").write_text('hot-functions = ["Recipe.advance"]\n')
    assert _codes(tmp_path) == [("TL101", 14)]


def test_a_loader_under_a_name_of_the_project(tmp_path: Path) -> None:
    (tmp_path / "means.py").write_text(FEED)
    assert _codes(tmp_path) == []
    (tmp_path / "trainlint.toml").write_text('loader-names = ["north"]\n')
    assert ("TL101", 7) in _codes(tmp_path)

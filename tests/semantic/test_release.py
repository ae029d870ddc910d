"""Files that were not asked for lately are let go, and what is said of the others stays the same."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest

from trainlint import analysis, engine
from trainlint.engine import check
from trainlint.semantic.facts import Module
from trainlint.semantic.project import Project
from trainlint.semantic.script import Semantics
from trainlint.settings import Configuration, Overrides

_ENGINE = """\
import torch


def one_step_{number}(model, batch):
    loss = model(batch).sum()
    print(loss.item())
    return loss
"""
_TRAIN = """\
import torch
from torch import nn, optim
from torch.utils.data import DataLoader

from engine_{number} import one_step_{number}


def train(dataset):
    model = nn.Linear(4, 4).cuda()
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    for batch in DataLoader(dataset, batch_size=4):
        optimizer.zero_grad()
        one_step_{number}(model, batch.cuda()).backward()
        optimizer.step()


if __name__ == "__main__":
    train(torch.load("data.pt"))
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\n')
    for number in range(12):
        (tmp_path / f"engine_{number}.py").write_text(_ENGINE.replace("{number}", str(number)))
        (tmp_path / f"train_{number}.py").write_text(_TRAIN.replace("{number}", str(number)))
    return tmp_path


def _findings(project: Path) -> list[tuple[str, str, int]]:
    configuration = Configuration(Overrides(select=("ALL",), torch_version="2.5"))
    return [
        (Path(found.path).name, found.code, found.place.row)
        for result in check([str(project)], configuration)
        for found in result.findings
    ]


@pytest.fixture
def little_room(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What is left each time something is let go."""
    left: list[int] = []
    usual = Project.release

    def release(self: Project, most: int) -> int:
        left.append(usual(self, most))
        return left[-1]

    monkeypatch.setattr(Project, "release", release)
    monkeypatch.setattr(analysis, "_KEPT", 1_500)
    monkeypatch.setattr(analysis, "_READ_MEANWHILE", 1_000)
    return left


def test_the_findings_are_the_same(project: Path, monkeypatch: pytest.MonkeyPatch, little_room: list[int]) -> None:
    found = _findings(project)
    assert len(little_room) > 3
    everything = sum(len(path.read_text()) for path in project.glob("*.py"))
    assert max(little_room) < everything * 2 / 3
    monkeypatch.setattr(analysis, "_MOST_KEPT", 0)
    assert _findings(project) == found
    monkeypatch.setattr(analysis, "_READ_MEANWHILE", 10**9)
    little_room.clear()
    assert _findings(project) == found
    assert not little_room
    assert sum(code == "TL101" for _, code, _ in found) == 12


def _read(path: str) -> str:
    return Path(path).read_text()


def test_what_is_let_go_goes_with_all_that_was_asked_about_it(project: Path) -> None:
    files = Project(str(project), _read)
    semantics = Semantics(files)
    path = str(project / "engine_3.py")

    def ask() -> Module:
        module = files.module(path)
        assert module is not None
        (function,) = module.functions
        assert len(semantics.inference.callgraph.callers(function)) == 1
        for call in module.calls:
            semantics.inference.value(call)
        return module

    gone = weakref.ref(ask())
    gc.collect()
    assert gone() is not None
    assert files.release(0) == 0
    assert gone() is None
    assert ask().path == path


def test_what_something_kept_rests_on_stays_the_same_object(project: Path) -> None:
    files = Project(str(project), _read)
    semantics = Semantics(files)
    engine, train = (files.module(str(project / name)) for name in ("engine_3.py", "train_3.py"))
    assert engine is not None and train is not None
    (call,) = train.calls_by_attr["one_step_3"]
    (callee,) = semantics.inference.callgraph.callees(call)
    del engine
    files.release(0)
    assert files.module(callee.function.module.path) is callee.function.module


def test_projects_before_it_make_room_for_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(6):
        folder = tmp_path / f"project_{number}"
        folder.mkdir()
        (folder / "setup.py").touch()
        for part, text in (("engine", _ENGINE), ("train", _TRAIN)):
            (folder / f"{part}_0.py").write_text(text.replace("{number}", "0"))
    rested = 0
    usual = analysis.Analysis.rest

    def rest(self: analysis.Analysis) -> None:
        nonlocal rested
        usual(self)
        assert self.held == 0
        rested += 1

    monkeypatch.setattr(analysis.Analysis, "rest", rest)
    found = _findings(tmp_path)
    assert rested == 0
    monkeypatch.setattr(engine, "MOST_HELD_OF_OTHERS", 1_000)
    assert _findings(tmp_path) == found
    assert rested > 2
    assert sum(code == "TL101" for _, code, _ in found) == 6

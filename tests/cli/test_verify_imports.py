"""`trainlint verify` checks the script and what it imports of its project, since that is what runs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from trainlint.cli.imported import with_imports
from trainlint.cli.verify import check


def lay_out(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_INIT", "__init__")
        path = path.with_name(path.name + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def names(found: list[Path], folder: Path) -> list[str]:
    return [str(path.relative_to(folder.resolve())) for path in found]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import helper", ["train.py", "helper.py"]),
        ("import helper as h, os, torch", ["train.py", "helper.py"]),
        ("from pack import deep", ["train.py", "pack/__init__.py", "pack/deep.py", "pack/beside.py"]),
        ("import pack.deep", ["train.py", "pack/__init__.py", "pack/deep.py", "pack/beside.py"]),
        ("def f():\n    from helper import x", ["train.py", "helper.py"]),
        ("import train", ["train.py"]),
        ("import outside, nothing, numpy", ["train.py"]),
        ("def broken(:", ["train.py"]),
    ],
)
def test_what_a_script_imports_of_its_project(tmp_path: Path, text: str, expected: list[str]) -> None:
    files = {"train": text, "helper": "", "unused": "", "pack___INIT": "", "pack__beside": "import train"}
    project = lay_out(tmp_path / "project", **files, pack__deep="from . import beside\nfrom .nothing import x\n")
    lay_out(tmp_path, outside="")
    assert names(with_imports(project / "train.py", project), project) == expected


def test_a_script_below_finds_modules_beside_it_and_at_the_root(tmp_path: Path) -> None:
    project = lay_out(tmp_path, tools__train="import beside\nimport lib.model", tools__beside="", lib__model="")
    found = names(with_imports(project / "tools" / "train.py", project), project)
    assert sorted(found) == ["lib/model.py", "tools/beside.py", "tools/train.py"]


@dataclass(frozen=True)
class Asked:
    cwd: Path

    def script_path(self) -> Path | None:
        return self.cwd / "train.py"

    def project_roots(self) -> tuple[str, ...]:
        return (f"{self.cwd}/",)


def test_findings_of_imported_files_are_among_those_answered(tmp_path: Path) -> None:
    engine = """
import torch


def train(model, loader, optimizer):
    total = 0.0
    for inputs, labels in loader:
        inputs, labels = inputs.to("cuda"), labels.to("cuda")
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total
"""
    lay_out(tmp_path, train="from engine import train\n", engine=engine, unused=engine)
    found = json.loads(check(Asked(tmp_path)))
    assert {("TL101", Path(entry["filename"]).name) for entry in found if entry["code"] == "TL101"} == {
        ("TL101", "engine.py")
    }

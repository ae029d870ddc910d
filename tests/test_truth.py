"""`python -m benchmarks.truth`: counts on labelled files."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.truth.labels import Label
from benchmarks.truth.matching import Counts, Said, match
from benchmarks.truth.peers import PEERS, Peer
from trainlint.rules.registry import index

ROOT = Path(__file__).parents[1]

_SCRIPT = """\
import torch
import torch.nn.functional as F


def train(model, loader, optimizer):
    model.cuda().train()
    for step, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x.cuda(non_blocking=True)), y.cuda(non_blocking=True))
        loss.backward()
        optimizer.step()
        print(loss.item())
        if step % 100 == 0:
            print(loss.item())
        torch.cuda.empty_cache()
"""


def test_the_page_counts_what_is_found_missed_false_and_unlabelled(tmp_path: Path) -> None:
    _lay_out(tmp_path, [("12", "TL101", "yes"), ("6", "TL201", "yes"), ("14", "TL101", "no")])
    done = _measure(tmp_path)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "truth.md").read_text(encoding="utf-8")
    assert "1 files of 1 public projects" in page
    assert "Not installed, and so not measured: torch-preflight, hotpath-ai, TorchFix." in page
    assert _row(page, "[TL101]") == ["1", "0", "0", "0", "100 %", "100 %", "100 %"]
    assert _row(page, "[TL201]") == ["0", "1", "0", "0", "0 %", "-", "-"]
    assert _row(page, "[TL105]") == ["0", "0", "0", "1", "-", "-", "0 %"]
    assert _row(page, "some/project") == ["`0123456789ab`", "1", "2", "1", "0"]


def test_nothing_of_the_files_read_is_in_the_page(tmp_path: Path) -> None:
    _lay_out(tmp_path, [("12", "TL101", "yes")])
    _measure(tmp_path)
    page = (tmp_path / "truth.md").read_text(encoding="utf-8")
    assert "train.py" not in page
    assert "loss.item" not in page
    assert str(tmp_path) not in page


def test_a_project_that_is_not_there_is_named(tmp_path: Path) -> None:
    _lay_out(tmp_path, [("12", "TL101", "yes")], folder="other+project")
    done = _measure(tmp_path)
    assert done.returncode != 0
    assert "some/project" in done.stderr
    assert _measure(tmp_path, "--leave-out", "some/project").returncode == 0


def test_a_label_fits_near_lines_and_inside_a_range() -> None:
    label = Label("r", "a.py", "TL101", "yes", ((0, 10), (0, 30)))
    assert match([label], [_said(12)])["TL101"] == Counts(found=1)
    assert match([label], [_said(5, 20)])["TL101"] == Counts(found=1)
    assert match([label], [_said(30)])["TL101"] == Counts(found=1)
    assert match([label], [_said(13)])["TL101"] == Counts(missed=1, unlabelled=1)
    assert match([label], [_said(10)._replace(path="b.py")])["TL101"].missed == 1


def test_soft_labels_and_advice_count_for_neither_side() -> None:
    soft = Label("r", "a.py", "TL101", "soft", ((0, 10),))
    assert match([soft], [_said(10)]) == {}
    assert match([soft], [_said(50)._replace(advice=True)]) == {}


def test_one_of_several_codes_suffices() -> None:
    labels = [Label("r", "a.py", "TL102", "yes", ((0, 10),)), Label("r", "a.py", "TL101", "no", ((0, 20),))]
    said = [_said(10)._replace(codes=("TL101", "TL102")), _said(20)._replace(codes=("TL101", "TL102"))]
    assert match(labels, said) == {"TL102": Counts(found=1), "TL101": Counts(false=1)}


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_codes_of_others_stand_for_rules_there_are(peer: Peer) -> None:
    assert peer.rules
    assert peer.rules <= set(index())


def _said(start: int, end: int | None = None) -> Said:
    return Said("a.py", ("TL101",), (0, start), (0, end or start), advice=False)


def _lay_out(root: Path, labels: list[tuple[str, str, str]], folder: str = "some+project") -> None:
    project = root / "mirror" / folder
    project.mkdir(parents=True)
    (project / "train.py").write_text(_SCRIPT, encoding="utf-8")
    rows = ["repo\tpath\tline\tcode\tverdict\tnote"]
    rows += [f"some/project\ttrain.py\t{line}\t{code}\t{verdict}\t" for line, code, verdict in labels]
    (root / "labels.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    (root / "repos.tsv").write_text("repo\tcommit\nsome/project\t0123456789abcdef\n", encoding="utf-8")


def _measure(root: Path, *more: str) -> subprocess.CompletedProcess[str]:
    options = ("--mirror", root / "mirror", "--labels", root / "labels.tsv", "--repos", root / "repos.tsv")
    command = [sys.executable, "-m", "benchmarks.truth", *map(str, options), "--output", str(root / "truth.md"), *more]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, encoding="utf-8", check=False)


def _row(page: str, start: str) -> list[str]:
    row = next(line for line in page.splitlines() if line.startswith(f"| {start}"))
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", row)[2:-1]]

"""`--fix`, `--fix-only`, `--diff` and `--unsafe-fixes` as a user meets them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

TRAIN = """\
import torch
from torch.utils.data import DataLoader


def train(dataset, model, optimizer):
    loader = DataLoader(dataset, num_workers=2, pin_memory=True)
    for images in loader:
        images = images.to("cuda")
        assert isinstance(images, torch.Tensor)
        optimizer.zero_grad()
        model.forward(images).sum().backward()
        optimizer.step()
        torch.cuda.empty_cache()
"""
FIXED = TRAIN.replace('to("cuda")', 'to("cuda", non_blocking=True)')
UNSAFE = FIXED.replace("        torch.cuda.empty_cache()\n", "")
SELECT = ("--select", "TL105,TL106", "--torch-version", "2.5")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / "train.py").write_text(TRAIN)
    return tmp_path


def run(
    project: Path, *arguments: str, stdin: str | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "trainlint", "check", *SELECT, *arguments],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8", "NO_COLOR": "", **environment},
        input=stdin,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


def test_a_check_says_what_could_be_fixed_and_changes_nothing(project: Path) -> None:
    result = run(project)
    assert result.returncode == 1
    assert result.stdout.endswith("[*] 1 fixable with `--fix` (1 more with `--fix --unsafe-fixes`).\n")
    assert (project / "train.py").read_text() == TRAIN


def test_fix_repairs_what_is_safe_and_reports_the_rest(project: Path) -> None:
    result = run(project, "--fix")
    assert (project / "train.py").read_text() == FIXED
    assert result.returncode == 1
    assert "warning[TL105]" in result.stdout and "TL106" not in result.stdout
    assert "Fixed 1 finding.\nLeft 1 finding (1 warning) in 1 file.\n" in result.stdout


def test_unsafe_fixes_go_further(project: Path) -> None:
    result = run(project, "--fix", "--unsafe-fixes")
    assert (project / "train.py").read_text() == UNSAFE
    assert (result.returncode, result.stdout) == (0, "Fixed 2 findings.\nAll checks passed!\n")
    again = run(project, "--fix", "--unsafe-fixes")
    assert (again.returncode, again.stdout) == (0, "All checks passed!\n")


def test_unsafe_fixes_alone_is_a_usage_error(project: Path) -> None:
    assert run(project, "--unsafe-fixes").returncode == 2
    assert run(project, "--fix-only", "--diff").returncode == 2


def test_fix_only_reports_nothing_of_the_rest(project: Path) -> None:
    result = run(project, "--fix-only")
    assert (result.returncode, result.stdout) == (0, "")
    assert result.stderr == "Fixed 1 finding in 1 file.\n"
    assert (project / "train.py").read_text() == FIXED


def test_diff_writes_nothing_and_fails_when_there_is_one(project: Path) -> None:
    result = run(project, "--diff", "--unsafe-fixes")
    assert result.returncode == 1
    assert (project / "train.py").read_text() == TRAIN
    assert result.stdout.startswith("--- train.py\n+++ train.py\n@@ -5,9 +5,8 @@\n")
    assert '-        images = images.to("cuda")\n' in result.stdout
    (project / "train.py").write_text(UNSAFE)
    assert (run(project, "--diff").returncode, run(project, "--diff").stdout) == (0, "")


def test_diff_is_coloured_where_colour_is_wanted(project: Path) -> None:
    assert "\033[32m+" in run(project, "--diff", FORCE_COLOR="1").stdout


def test_standard_input_comes_back_fixed(project: Path) -> None:
    result = run(project, "--fix", "--stdin-filename", "other.py", "-", stdin=TRAIN)
    assert result.stdout == FIXED
    assert "warning[TL105]" in result.stderr
    assert not (project / "other.py").exists()


def test_json_carries_the_edits(project: Path) -> None:
    found = {f["code"]: f["fix"] for f in json.loads(run(project, "--output-format", "json").stdout)}
    assert found["TL106"] == {
        "applicability": "safe",
        "message": "Pass `non_blocking=True`",
        "edits": [
            {
                "content": ", non_blocking=True",
                "location": {"row": 8, "column": 34},
                "end_location": {"row": 8, "column": 34},
            }
        ],
    }
    assert found["TL105"]["applicability"] == "unsafe"


def test_a_suppressed_finding_is_not_fixed_and_an_unused_suppression_goes(project: Path) -> None:
    text = TRAIN.replace('to("cuda")', 'to("cuda")  # trainlint: ignore[TL106]').replace(
        "optimizer.step()", "optimizer.step()  # trainlint: ignore[TL106]"
    )
    (project / "train.py").write_text(text)
    run(project, "--fix", "--extend-select", "TL001")
    assert (project / "train.py").read_text() == text.replace("step()  # trainlint: ignore[TL106]", "step()")


def test_a_write_protected_file_is_left_alone_and_said(project: Path) -> None:
    if os.name != "nt" and os.getuid() == 0:
        pytest.skip("root may write anything")
    (project / "train.py").chmod(0o444)
    result = run(project, "--fix")
    assert result.returncode == 2
    assert "train.py was not fixed: it is write-protected" in result.stderr
    assert (project / "train.py").read_text() == TRAIN


def test_the_hook_runs_this_command() -> None:
    text = (ROOT / ".pre-commit-hooks.yaml").read_text()
    assert "entry: trainlint check --fix\n" in text

"""`trainlint check --profile-rules`"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainlint.profiling import Profile, Spent, profile_as_text, profiled
from trainlint.rules.registry import index, load

ROOT = Path(__file__).resolve().parents[2]


def test_the_report_stays_the_same_and_the_table_goes_to_stderr(command: Any, tmp_path: Path) -> None:
    script = (ROOT / "fixtures" / "scripts" / "train_cifar_like.py").read_text(encoding="utf-8")
    (tmp_path / "train.py").write_text(script, encoding="utf-8")
    (tmp_path / "trainlint.toml").write_text("", encoding="utf-8")
    plain = command("check", "--output-format", "concise", cwd=tmp_path)
    timed = command("check", "--output-format", "concise", "--profile-rules", cwd=tmp_path)
    assert (timed.stdout, timed.returncode) == (plain.stdout, plain.returncode)
    assert plain.stderr == ""
    assert "TL101 item-in-hot-loop" in timed.stderr
    assert "in all, CPU time" in timed.stderr


@pytest.mark.parametrize("more", [["--fix"], ["--diff"], ["--fix-only"], ["--why", "train.py:1"]])
def test_only_a_check_is_timed(command: Any, tmp_path: Path, more: list[str]) -> None:
    (tmp_path / "train.py").write_text("import torch\n", encoding="utf-8")
    run = command("check", "--profile-rules", *more, cwd=tmp_path)
    assert run.returncode == 2
    assert "--profile-rules times a check" in run.stderr


def test_rules_are_as_before_afterwards() -> None:
    rules = [load(code) for code in index()]
    with profiled():
        assert all("check" in vars(rule) for rule in rules)
    assert not any("check" in vars(rule) for rule in rules)


def test_the_dearest_rule_comes_first_and_shares_add_up() -> None:
    profile = Profile()
    profile.rules = {"TL101": Spent(0.1, 3), "TL501": Spent(0.3, 2)}
    profile.total = 1.0
    lines = profile_as_text(profile, []).splitlines()
    assert lines[1].split() == ["300.0", "30.0%", "2", "0", "TL501", "data-parallel"]
    assert lines[2].split() == ["100.0", "10.0%", "3", "0", "TL101", "item-in-hot-loop"]
    assert lines[3].split()[:2] == ["600.0", "60.0%"]
    assert lines[4].split()[:2] == ["1000.0", "100.0%"]

"""Rules in preview are looked for only by those who ask for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

# TL101 (warning), TL501 (warning), TL305 (advice)
TRAIN = "import torch\nfor batch in loader:\n    batch.item()\nDataParallel(1)\npersistent()\n"
NO_EFFECT = "TL501 (data-parallel) is in preview and is not looked for; give --preview, or set preview = true"


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """TL501 is in preview, before the index is made."""
    monkeypatch.setattr("fake.tl501_data_parallel.DataParallel.preview", True)


@pytest.fixture
def check(tried: None, lint: Any, project: Path) -> Any:
    (project / "train.py").write_text(TRAIN)

    def run(*arguments: str, config: str = "") -> tuple[str, str]:
        """(the codes shown, what was said besides)."""
        (project / "trainlint.toml").write_text(config)
        result = lint("check", "-q", "--output-format", "concise", *arguments)
        return " ".join(sorted(line.split(" ")[1] for line in result.stdout.splitlines())), result.stderr

    return run


@pytest.mark.parametrize(
    ("config", "arguments", "expected"),
    [
        ("", "", "TL101"),
        ("", "--preview", "TL101 TL501"),
        ("", "--select TL5", ""),
        ("", "--select ALL", "TL101 TL305"),
        ("", "--select TL5 --preview", "TL501"),
        ("", "--select ALL --ignore TL5 --preview", "TL101 TL305"),
        ("preview = true", "", "TL101 TL501"),
        ("preview = true", "--no-preview", "TL101"),
        ("preview = false", "--preview", "TL101 TL501"),
        ('preview = true\nignore = ["TL5"]', "", "TL101"),
        ('levels = {TL501 = "off"}', "", "TL101"),
        ('ignore = ["TL501"]', "", "TL101"),
        ('[per-file-ignores]\n"*" = ["TL501"]', "--ignore TL501", "TL101"),
    ],
)
def test_they_are_off_unless_asked_for(check: Any, config: str, arguments: str, expected: str) -> None:
    assert check(*arguments.split(), config=config) == (expected, "")


@pytest.mark.parametrize(
    ("config", "arguments", "place", "expected"),
    [
        ("", "--select TL501", "--select", ""),
        ("", "--extend-select TL501", "--extend-select", "TL101"),
        ('select = ["TL501", "TL101"]', "", "select", "TL101"),
        ('levels = {TL501 = "error"}', "", "levels", "TL101"),
    ],
)
def test_a_whole_code_that_has_no_effect_is_said(
    check: Any, config: str, arguments: str, place: str, expected: str
) -> None:
    shown, said = check(*arguments.split(), config=config)
    assert shown == expected
    assert said.startswith("warning: ")
    assert f"{place}: {NO_EFFECT}" in said
    assert check(*arguments.split(), "--preview", config=config)[1] == ""


def test_it_is_said_once_for_many_files(check: Any, project: Path) -> None:
    for number in range(3):
        (project / f"part{number}").mkdir()
        (project / f"part{number}" / "setup.py").write_text("")  # a project of its own, with its own settings
        (project / f"part{number}" / "train.py").write_text(TRAIN)
    assert check("--select", "TL501")[1].count(NO_EFFECT) == 1


def test_a_suppression_of_a_rule_in_preview_is_not_unused(check: Any, project: Path) -> None:
    (project / "silenced.py").write_text(
        "import torch\nDataParallel(1)  # trainlint: ignore[TL501]\nx = 1  # trainlint: ignore\n"
    )
    assert check("silenced.py") == ("TL001", "")  # the bare one: it would silence nothing with every rule on that runs
    (project / "silenced.py").write_text("import torch\nDataParallel(1)  # trainlint: ignore[TL501]\n")
    assert check("silenced.py") == ("", "")
    assert check("silenced.py", "--preview") == ("", "")


def test_a_setting_that_is_no_truth_value_is_refused(tried: None, lint: Any, project: Path) -> None:
    (project / "trainlint.toml").write_text('preview = "yes"\n')
    result = lint("check")
    assert result.exit_code == 2
    assert "trainlint.toml:1: preview: must be true or false, not 'yes'" in result.stderr


def test_the_pages_and_the_settings_say_it(tried: None, lint: Any, project: Path) -> None:
    assert "claim: time, preview: looked for with --preview only\n" in lint("rule", "TL501").stdout
    assert "preview" not in lint("rule", "TL101").stdout
    (row,) = [line for line in lint("rule", "--all").stdout.splitlines() if line.startswith("TL501")]
    assert row.endswith("time  preview")
    assert "\npreview              on\n" in lint("check", "--show-settings", "--preview").stdout
    assert "TL501" not in lint("check", "--show-settings").stdout

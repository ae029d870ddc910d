"""Which rules run, and at which level."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

# TL101 (warning), TL501 (warning), TL305 (advice)
TRAIN = "import torch\nfor batch in loader:\n    batch.item()\nDataParallel(1)\npersistent()\n"


def codes(result: Any) -> list[str]:
    return sorted(line.split(" ")[1] for line in result.stdout.splitlines())


@pytest.fixture
def found(lint: Any, project: Path) -> Any:
    """The codes that a run shows."""
    (project / "train.py").write_text(TRAIN)

    def run(*arguments: str, config: str | None = None) -> list[str]:
        if config is not None:
            (project / "trainlint.toml").write_text(config)
        result = lint("check", "-q", "--output-format", "concise", *arguments)
        assert result.stderr == ""
        return codes(result)

    return run


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("", "TL101 TL501"),
        ("--pedantic", "TL101 TL305 TL501"),
        ("--select ALL", "TL101 TL305 TL501"),
        ("--select TL305", "TL305"),
        ("--select TL3", ""),
        ("--select TL3 --pedantic", "TL305"),
        ("--select TL1,TL305", "TL101 TL305"),
        ("--select TL1 --select TL5", "TL101 TL501"),
        ("--select tl1", "TL101"),
        ("--ignore TL101", "TL501"),
        ("--ignore TL", ""),
        ("--ignore TL5 --extend-select TL501", "TL101 TL501"),
        ("--select TL101,TL501 --ignore TL5", "TL101 TL501"),
        ("--select TL5 --ignore TL5", ""),
        ("--extend-select TL305", "TL101 TL305 TL501"),
        ("--extend-select TL3", "TL101 TL501"),
    ],
)
def test_command_line(found: Any, arguments: str, expected: str) -> None:
    assert found(*arguments.split()) == expected.split()


@pytest.mark.parametrize(
    ("config", "arguments", "expected"),
    [
        ('select = ["TL5"]', "", "TL501"),
        ('select = ["ALL"]', "", "TL101 TL305 TL501"),
        ('select = ["TL5"]\nextend-select = ["TL305"]', "", "TL305 TL501"),
        ('ignore = ["TL101"]', "", "TL501"),
        ('ignore = ["TL101"]', "--extend-select TL101", "TL101 TL501"),
        ('ignore = ["TL101"]', "--ignore TL5", ""),
        ('ignore = ["TL101"]\nselect = ["TL5"]', "--select TL1", "TL101"),
        ('levels = {TL101 = "off"}', "", "TL501"),
        ('levels = {TL101 = "off"}', "--select TL101", ""),
        ('levels = {TL101 = "advice"}', "", "TL501"),
        ('levels = {TL101 = "advice"}', "--pedantic", "TL101 TL305 TL501"),
        ('levels = {TL305 = "warning"}', "", "TL101 TL305 TL501"),
        ('levels = {TL305 = "warning"}', "--select TL3", "TL305"),
        ('select = ["TL5"]\nlevels = {TL101 = "error"}', "", "TL101 TL501"),
        ('levels = {TL101 = "error"}', "--ignore TL101", "TL501"),
        ('fail-on = "advice"', "", "TL101 TL305 TL501"),
        ('[per-file-ignores]\n"train.py" = ["TL1", "TL5"]', "", ""),
        ('[per-file-ignores]\n"*.py" = ["ALL"]', "--pedantic", ""),
        ('[per-file-ignores]\n"!tests/**" = ["TL1"]', "", "TL501"),
        ('[per-file-ignores]\n"tests/**" = ["TL1"]', "", "TL101 TL501"),
        ('select = ["TL5"]', "--isolated", "TL101 TL501"),
    ],
)
def test_configuration(found: Any, config: str, arguments: str, expected: str) -> None:
    assert found(*arguments.split(), config=config) == expected.split()


def test_a_level_of_the_configuration_decides_the_exit_code(lint: Any, project: Path) -> None:
    (project / "train.py").write_text("import torch\nDataParallel(1)\n")
    assert lint("check", "--fail-on", "error").exit_code == 0
    (project / "trainlint.toml").write_text('levels = {TL501 = "error"}\nfail-on = "error"\n')
    result = lint("check")
    assert "error[TL501]" in result.stdout
    assert result.exit_code == 1

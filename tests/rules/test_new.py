"""The generator of rules, on a copy of the package."""

from __future__ import annotations

import json
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("copy")
    shutil.copytree(ROOT / "trainlint", folder / "trainlint", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "fixtures").mkdir()
    return folder


@pytest.fixture(scope="module")
def made(copy: Path) -> subprocess.CompletedProcess[str]:
    """One rule made in the copy, as the next one of the group TL7xx."""
    return _run(copy, "trainlint.rules.new", "TL7xx", "some-new-name")


def test_it_writes_a_rule_and_fixtures_and_the_index(copy: Path, made: subprocess.CompletedProcess[str]) -> None:
    assert made.returncode == 0, made.stderr
    row = next(r for r in _index(copy) if r["name"] == "some-new-name")
    code = row["code"]
    assert code == max(r["code"] for r in _index(copy) if r["code"].startswith("TL7"))
    assert code not in {r["code"] for r in _index(ROOT)}
    assert row["preview"] is True
    assert row["module"] == f"trainlint.rules.compute.{code.lower()}_some_new_name"
    for path in (copy / (row["module"].replace(".", "/") + ".py"), *(copy / "fixtures" / code).iterdir()):
        assert str(path) in made.stdout


def test_the_rule_runs_and_finds_what_its_fixtures_expect(copy: Path, made: subprocess.CompletedProcess[str]) -> None:
    row = next(r for r in _index(copy) if r["name"] == "some-new-name")
    found = _run(copy, "trainlint", "check", "--preview", "--select", "ALL", "--output-format", "json", "fixtures")
    assert found.returncode in (0, 1), found.stderr
    bad = copy / "fixtures" / row["code"] / "bad_example.py"
    line = next(
        i for i, text in enumerate(bad.read_text().splitlines(), 1) if text.endswith(f"# expect: {row['code']}")
    )
    grave = [f for f in json.loads(found.stdout) if f["level"] != "advice"]
    assert [(Path(f["filename"]).name, f["location"]["row"], f["code"]) for f in grave] == [
        ("bad_example.py", line, row["code"])
    ]


def test_its_page_has_every_section(copy: Path, made: subprocess.CompletedProcess[str]) -> None:
    page = _run(copy, "trainlint", "rule", "some-new-name").stdout
    for section in (
        "Why is this bad?",
        "Example",
        "Use instead",
        "When it is silent",
        "Fix safety",
        "Measured by `trainlint verify`",
        "References",
    ):
        assert f"\n{section}\n" in page


def test_the_rule_passes_linter_and_formatter(copy: Path, made: subprocess.CompletedProcess[str]) -> None:
    ruff = shutil.which("ruff", path=Path(sys.executable).parent)
    if ruff is None:
        pytest.skip("ruff is not installed")
    written = [name for name in made.stdout.splitlines() if name.endswith("_some_new_name.py")]
    assert written
    config = ("--config", str(ROOT / "pyproject.toml"))
    for arguments in (("check",), ("format", "--check")):
        done = subprocess.run([ruff, *arguments, *config, *written], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("TL101", "some-other-name"), "TL101 is item-in-hot-loop; a code is never given twice"),
        (("TL199", "item-in-hot-loop"), "there is a rule 'item-in-hot-loop' already"),
        (("TL199", "NoHyphens"), "lower-case words with hyphens"),
        (("X99", "some-other-name"), "a code is TL with three digits"),
        (("TL899", "some-other-name"), "no group holds TL8xx yet"),
        (("TL199",), "usage: "),
    ],
)
def test_what_cannot_be_made_is_refused(copy: Path, arguments: tuple[str, ...], message: str) -> None:
    before = _index(copy)
    done = _run(copy, "trainlint.rules.new", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert _index(copy) == before
    assert not list(copy.rglob("*some_other_name*"))


def _run(folder: Path, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`python -m MODULE ARGUMENTS` in the copy, which stands before the checkout on the path."""
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, encoding="utf-8", check=False)


def _index(folder: Path) -> list[dict[str, Any]]:
    rows = runpy.run_path(str(folder / "trainlint/rules/listed.py"))["ROWS"]
    names = ("code", "name", "level", "claim", "triggers", "module", "preview", "near")
    return [dict(zip(names, row, strict=True)) for row in rows]

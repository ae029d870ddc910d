"""trainlint as a process: start-up, consoles, shells."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]

# What a check that has nothing to report must not pay for.
HEAVY = frozenset(
    (
        "libcst",
        "rich",
        "torch",
        "tomllib",
        "tomli",
        "pathspec",
        "packaging",
        "dataclasses",
        "multiprocessing",
        "yaml",
    )
)

PROBE = """
import sys
from trainlint.cli import run
try:
    run()
finally:
    print(" ".join(sorted(sys.modules)), file=sys.stderr)
"""


def imported(*arguments: str, cwd: Path) -> set[str]:
    """The modules that a run has imported."""
    run = subprocess.run(
        [sys.executable, "-c", PROBE, *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return set(run.stderr.split())


@pytest.fixture
def clean(tmp_path: Path) -> Path:
    """A project with a training script that has nothing to be reported, and a pyproject.toml that is not about us."""
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\n')
    (tmp_path / "train.py").write_text(
        "import torch\n\n\ndef train(model, loader, optimizer):\n    for batch in loader:\n"
        "        optimizer.zero_grad()\n        model(batch).sum().backward()\n        optimizer.step()\n"
    )
    return tmp_path


def test_a_check_without_findings_imports_nothing_heavy(clean: Path) -> None:
    modules = imported("check", "train.py", cwd=clean)
    assert "trainlint.analysis" in modules
    assert modules.isdisjoint(HEAVY), modules & HEAVY


def test_walking_a_folder_imports_nothing_heavy(clean: Path) -> None:
    modules = imported("check", cwd=clean)
    assert modules.isdisjoint(HEAVY), modules & HEAVY


def test_files_that_are_not_about_training_are_not_parsed(clean: Path) -> None:
    (clean / "train.py").write_text("print('nothing to see')\n")
    modules = imported("check", cwd=clean)
    assert modules.isdisjoint({*HEAVY, "trainlint.analysis"})


def test_a_configuration_costs_only_its_parser(clean: Path) -> None:
    (clean / "pyproject.toml").write_text("[tool.trainlint]\nfail-on = 'error'\n")
    modules = imported("check", "train.py", cwd=clean)
    assert modules & HEAVY <= {"tomllib", "tomli"}


def test_a_console_that_knows_few_letters(command: Any, tmp_path: Path) -> None:
    (tmp_path / "模型.py").write_text("import torch\nx = '\N{SNOWMAN} \N{GREEK SMALL LETTER ALPHA}'; y = (\n", "utf-8")
    for form in ("text", "concise", "json"):
        run = command("check", "--output-format", form, cwd=tmp_path, PYTHONIOENCODING="cp1252")
        assert run.returncode == 1
        assert "Traceback" not in run.stderr
        assert "\\u6a21\\u578b.py" in run.stdout
        assert "TL000" in run.stdout


def test_a_name_that_is_no_text(command: Any, tmp_path: Path) -> None:
    try:
        path = os.fsencode(tmp_path) + b"/\xff.py"
        with open(path, "w") as file:
            file.write("import torch\nx = (\n")
    except OSError:
        pytest.skip("this file system takes only text as names")
    run = command("check", "--output-format", "concise", cwd=tmp_path)
    assert run.stdout.startswith("\\udcff.py:2:5: TL000 ")


@pytest.mark.parametrize(("shell", "sign"), [("bash", "complete -o nosort"), ("zsh", "#compdef"), ("fish", "complete")])
def test_completion_prints_a_script(command: Any, tmp_path: Path, shell: str, sign: str) -> None:
    run = command("completion", shell, cwd=tmp_path)
    assert run.returncode == 0
    assert sign in run.stdout
    assert "_TRAINLINT_COMPLETE" in run.stdout


def test_completion_completes(command: Any, tmp_path: Path) -> None:
    run = command(cwd=tmp_path, _TRAINLINT_COMPLETE="bash_complete", COMP_WORDS="trainlint check --sel", COMP_CWORD="2")
    assert "plain,--select" in run.stdout


def test_standard_input_with_the_real_analysis(command: Any, tmp_path: Path) -> None:
    text = (ROOT / "fixtures" / "scripts" / "train_cifar_like.py").read_text(encoding="utf-8")
    rows = text.splitlines()
    header = "            with torch.autocast(device.type, dtype=torch.float16):"
    row, backward = rows.index(header) + 1, rows.index("        loss.backward()") + 1
    run = command("check", "-", "--select", "TL401", cwd=tmp_path, stdin=text)
    assert f" --> -:{row}:18\n" in run.stdout
    assert f"::: -:{backward}:9: " in run.stdout
    assert f"{backward} |         loss.backward()\n" in run.stdout
    assert run.returncode == 1
    silenced = text.replace(header, f"{header}  # trainlint: ignore[TL401]")
    assert (
        command("check", "-", "--select", "TL401,TL001", cwd=tmp_path, stdin=silenced).stdout == "All checks passed!\n"
    )

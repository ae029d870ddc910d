"""trainlint as a process: start-up, consoles, shells."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trainlint.rules.registry import index

ROOT = Path(__file__).resolve().parents[2]

# What a check that has nothing to report may import, besides trainlint itself. Not among them, since each costs as much as
# reading a small file: libcst, click, rich, packaging, pathspec, dataclasses, asyncio, multiprocessing, tomllib, tokenize,
# hashlib.
ALLOWED = frozenset(
    """
    __future__ abc annotationlib ast bisect codecs collections contextlib copyreg enum errno functools gc genericpath importlib
    io itertools json keyword linecache marshal ntpath operator os posixpath re reprlib sre_compile sre_constants sre_parse stat
    sys time token types typing unicodedata warnings weakref zipimport
    """.split()
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


def own_and_others(modules: set[str]) -> tuple[set[str], set[str]]:
    """(modules of trainlint, top-level names of all others). What C modules of Python call themselves does not count."""
    own = {module for module in modules if module.partition(".")[0] == "trainlint"}
    others = {module.partition(".")[0] for module in modules - own}
    return own, {name for name in others if not name.startswith("_") or name == "__future__"}


def at_start(code: str = "pass") -> set[str]:
    """What is imported anyway, also by what is installed beside trainlint."""
    return set(
        subprocess.run(
            [sys.executable, "-c", f"{code}; import sys; print(' '.join(sys.modules))"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
    )


def rules_for(script: Path) -> set[str]:
    """The modules of the rules whose triggers hit."""
    data = script.read_bytes()
    return {
        entry.module
        for code, entry in index().items()
        if entry.may_hit(data) and code not in ("TL000", "TL001")
        if not entry.near or any(word in data for word in entry.near)  # no other file is near it
    }


def rules_in(modules: set[str]) -> set[str]:
    return {module for module in modules if module.startswith("trainlint.rules.") and ".tl" in module}


@pytest.mark.parametrize("arguments", [("train.py",), (), ("--no-cache", "--force-exclude", "train.py")])
def test_a_check_without_findings_imports_only_what_is_allowed(clean: Path, arguments: tuple[str, ...]) -> None:
    own, others = own_and_others(imported("check", *arguments, cwd=clean) - at_start())
    assert "trainlint.analysis" in own
    assert others <= ALLOWED, others - ALLOWED
    assert "trainlint.cli.group" not in own


def test_only_rules_whose_triggers_hit_are_imported(clean: Path) -> None:
    modules = imported("check", "train.py", cwd=clean)
    assert rules_in(modules) == rules_for(clean / "train.py")
    assert 0 < len(rules_in(modules)) < len(index()) / 2


def test_with_findings_libcst_is_imported_and_nothing_else(clean: Path) -> None:
    script = (ROOT / "fixtures" / "scripts" / "train_cifar_like.py").read_text(encoding="utf-8")
    (clean / "train.py").write_text(script, encoding="utf-8")
    modules = imported("check", "--exit-zero", "train.py", cwd=clean)
    own, others = own_and_others(modules - at_start("import libcst.native"))
    assert "libcst" in modules
    assert "libcst.matchers" not in modules
    assert others <= ALLOWED, others - ALLOWED
    assert rules_in(own) == rules_for(clean / "train.py")
    assert own.isdisjoint(("trainlint.fixing", "trainlint.profiling", "trainlint.report.json", "trainlint.cli.show"))


def test_files_that_are_not_about_training_are_not_parsed(clean: Path) -> None:
    (clean / "train.py").write_text("print('nothing to see')\n")
    own, others = own_and_others(imported("check", cwd=clean) - at_start())
    assert others <= ALLOWED - {"ast"}, others
    of_cache = {"trainlint.semantic", *(f"trainlint.semantic.{name}" for name in ("locating", "neighbours", "packed"))}
    assert not any(module.startswith(("trainlint.semantic", "trainlint.analysis")) for module in own - of_cache)
    assert rules_in(own) == set()


def test_a_configuration_costs_only_its_parser(clean: Path) -> None:
    (clean / "pyproject.toml").write_text("[tool.trainlint]\nfail-on = 'error'\n")
    _, others = own_and_others(imported("check", "train.py", cwd=clean) - at_start())
    assert others & {"tomllib", "tomli"}
    others -= own_and_others(at_start("import tomllib" if sys.version_info >= (3, 11) else "import tomli"))[1]
    assert others <= ALLOWED, others - ALLOWED


def test_a_gitignore_costs_only_its_library(clean: Path) -> None:
    (clean / ".gitignore").write_text("*.log\n")
    _, others = own_and_others(imported("check", cwd=clean) - at_start())
    assert "pathspec" in others
    others -= own_and_others(at_start("import pathspec"))[1]
    assert others <= ALLOWED, others - ALLOWED


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

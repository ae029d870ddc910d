"""Every fix, to the byte: before, after `--fix`, after `--fix --unsafe-fixes`."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from fix_files import Case, cases

from trainlint.discovery import discover
from trainlint.engine import check
from trainlint.findings import Level
from trainlint.fixing import Fixed, fix
from trainlint.settings import Configuration

CASES = cases()


def fixed(path: Path, *, unsafe: bool) -> Fixed:
    targets = discover([str(path)], Configuration())
    return fix(targets, unsafe=unsafe, write=True, progress=lambda results, _: results)


def codes(path: Path) -> set[tuple[str, Level]]:
    return {(f.code, f.level) for r in check([str(path)], Configuration()) for f in r.findings}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    return tmp_path


def put(case: Case, project: Path, select: str) -> Path:
    (project / "trainlint.toml").write_text(
        f'select = ["{select}"]\npreview = true\n{case.settings()}\n', encoding="utf-8"
    )
    path = project / case.before.name.replace(".before", "")
    path.write_bytes(case.before.read_bytes())
    return path


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.code}-{c.before.stem}{'-unsafe' if c.unsafe else ''}")
def test_the_fix_is_the_one_expected_and_stable(case: Case, project: Path) -> None:
    path = put(case, project, case.select)
    first = fixed(path, unsafe=case.unsafe)
    assert path.read_bytes() == case.after
    assert not first.dropped and not first.problems and not first.unsettled
    assert not fixed(path, unsafe=case.unsafe).changes
    if path.suffix == ".py":
        ast.parse(case.after)


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.code}-{c.before.stem}{'-unsafe' if c.unsafe else ''}")
def test_no_fix_makes_a_finding_of_another_rule(case: Case, project: Path) -> None:
    path = put(case, project, "ALL")
    before = codes(path)
    result = fixed(path, unsafe=case.unsafe)
    assert not result.dropped and not result.problems and not result.unsettled
    assert codes(path) <= before

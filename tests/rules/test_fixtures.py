"""Every fixture is checked as a project of its own; what is found must be what its lines expect."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from fixture_files import Fixture, fixtures

from trainlint.engine import check
from trainlint.findings import Level
from trainlint.rules.registry import index
from trainlint.settings import Configuration

_FOUND = fixtures()
_CODES = frozenset(index())


@pytest.mark.parametrize("fixture", [f for f in _FOUND if f.code in _CODES], ids=lambda f: f"{f.code}-{f.path.name}")
def test_findings_are_those_expected(fixture: Fixture, tmp_path: Path) -> None:
    expected = {e for e in fixture.expected() if e.code in _CODES}
    found = _findings(fixture, tmp_path)
    certain = {(e.path, e.cell, e.row, e.code) for e in expected if not e.advice}
    advice = {(e.path, e.cell, e.row, e.code) for e in expected if e.advice}
    assert {place for place, level in found if level > Level.ADVICE} == certain
    assert advice <= {place for place, level in found if level == Level.ADVICE}


@pytest.mark.parametrize("code", sorted({f.code for f in _FOUND} & _CODES))
def test_a_rule_has_enough_shapes(code: str) -> None:
    own = [f for f in _FOUND if f.code == code]
    assert sum(f.is_bad for f in own) >= 4
    assert sum(not f.is_bad for f in own) >= 4
    assert all(any(e.code == code for e in f.expected()) for f in own if f.is_bad)
    assert not any(e.code == code for f in own if not f.is_bad for e in f.expected())


def _findings(fixture: Fixture, folder: Path) -> list[tuple[tuple[str, int, int, str], Level]]:
    root = folder / "project"
    if fixture.path.is_dir():
        shutil.copytree(fixture.path, root)
    else:
        root.mkdir()
        shutil.copy(fixture.path, root / fixture.path.name)
    settings = fixture.settings() or ""
    if "torch-version" not in settings:
        settings += '\ntorch-version = "2.5"'
    (root / "trainlint.toml").write_text(f'select = ["ALL"]\npreview = true\n{settings}\n', encoding="utf-8")
    found = []
    for result in check([str(root)], Configuration()):
        assert result.fault is None, result.fault
        name = Path(result.path).relative_to(root).as_posix()
        for finding in result.findings:
            # a file that could not be decoded has no source
            place = finding.place.row
            cell, row = (None, place) if result.source is None else result.source.cell_place(place)
            found.append(((name, cell or 0, row, finding.code), finding.level))
    return found

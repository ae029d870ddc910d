"""A file checked alone (as a hook does) and the same file checked with its whole project give the same findings."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from fixture_files import Fixture, fixtures

from trainlint.engine import check
from trainlint.findings import Finding
from trainlint.settings import Configuration

_PROJECTS = [f for f in fixtures() if f.path.is_dir()]


@pytest.mark.parametrize("fixture", _PROJECTS, ids=lambda f: f"{f.code}-{f.path.name}")
def test_a_file_alone_says_what_it_says_in_its_project(fixture: Fixture, tmp_path: Path) -> None:
    root = tmp_path / "project"
    shutil.copytree(fixture.path, root)
    settings = fixture.settings()
    (root / "trainlint.toml").write_text(f'select = ["ALL"]\npreview = true\n{settings}\n', encoding="utf-8")
    together = {result.path: _said(result.findings) for result in check([str(root)], Configuration())}
    assert len(together) == len(fixture.files)
    for path, said in together.items():
        (alone,) = check([path], Configuration())
        assert _said(alone.findings) == said
    # the order in which files are given makes no difference either
    backwards = {r.path: _said(r.findings) for r in check(sorted(together, reverse=True), Configuration())}
    assert backwards == together


def _said(findings: tuple[Finding, ...] | list[Finding]) -> list[tuple[str, str, tuple[int, ...], str]]:
    return sorted((f.code, f.message, tuple(f.place), f.fingerprint) for f in findings)

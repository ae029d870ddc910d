"""Triggers are sound: a rule that is not asked about a file, for want of its byte strings there or near it, would have found
nothing in it.

So the findings are the same with triggers and without.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from fixture_files import Fixture, fixtures

from trainlint.analysis import Analysis
from trainlint.engine import asked, is_training_code
from trainlint.rules.registry import NOT_CHECKED, UNUSED_SUPPRESSION, Entry, index, load
from trainlint.settings import Configuration
from trainlint.source import NotChecked, decode, read_bytes

_FOUND = fixtures()
_ENTRIES = [entry for code, entry in index().items() if code not in (NOT_CHECKED, UNUSED_SUPPRESSION)]


@pytest.mark.parametrize("code", sorted({fixture.code for fixture in _FOUND}))
def test_what_is_not_asked_has_nothing_to_say(code: str, tmp_path: Path) -> None:
    for number, fixture in enumerate(f for f in _FOUND if f.code == code):
        for path in _copied(fixture, tmp_path / str(number)):
            try:
                assert _said_by(_passed_over(path), path) == [], path.name
            except NotChecked:
                pass  # whoever is asked


def test_this_finds_a_trigger_that_is_not_sound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = next(f for f in _FOUND if f.code == "TL101" and f.is_bad and not f.path.is_dir())
    (path,) = _copied(bad, tmp_path)
    for unsound in ({"triggers": ((b"in no file",),)}, {"near": (b"in no file",)}):
        monkeypatch.setattr(sys.modules[__name__], "_ENTRIES", [index()["TL101"]._replace(**unsound)])
        assert "TL101" in _said_by(_passed_over(path), path)


def _copied(fixture: Fixture, root: Path) -> list[Path]:
    """A project that holds the fixture and nothing else; its scripts."""
    if fixture.path.is_dir():
        shutil.copytree(fixture.path, root)
    else:
        root.mkdir(exist_ok=True)
        shutil.copy(fixture.path, root / fixture.path.name)
    settings = fixture.settings() or ""
    if "torch-version" not in settings:
        settings += '\ntorch-version = "2.5"'
    (root / "trainlint.toml").write_text(settings + "\n", encoding="utf-8")
    return [path for path in sorted(root.rglob("*")) if path.suffix in (".py", ".ipynb")]


def _passed_over(path: Path) -> list[Entry]:
    """The rules that a run does not ask about this file. Raises NotChecked."""
    data = read_bytes(str(path))
    if not is_training_code(data):
        return _ENTRIES
    source = decode(str(path), data)
    if source.is_notebook:
        data = source.text.encode("utf-8", "surrogatepass")
    analysis = Analysis(Configuration().for_file(str(path)))
    kept = {entry.code for entry in asked(_ENTRIES, source, data, analysis)}
    return [entry for entry in _ENTRIES if entry.code not in kept]


def _said_by(entries: list[Entry], path: Path) -> list[str]:
    """The codes of what these rules find in a script. Raises NotChecked."""
    analysis = Analysis(Configuration().for_file(str(path)))
    source = decode(str(path), read_bytes(str(path)))
    return [finding.code for finding in analysis.check(source, [load(entry.code) for entry in entries])]

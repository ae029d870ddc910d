"""Of the bad fixtures of a rule, a search through the lines of one file finds some, and only the model finds others."""

from __future__ import annotations

import re
import sys
from functools import cache
from typing import Any

import pytest
from fixture_files import ROOT, Expected, Fixture, fixtures

from trainlint.rules.registry import NOT_CHECKED, UNUSED_SUPPRESSION, index

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_TABLE: dict[str, dict[str, Any]] = tomllib.loads((ROOT / "simplest.toml").read_text(encoding="utf-8"))
_CODES = sorted(set(index()) - {NOT_CHECKED, UNUSED_SUPPRESSION})


def test_every_rule_has_a_row() -> None:
    assert sorted(_TABLE) == _CODES


@pytest.mark.parametrize("code", _CODES)
def test_one_fixture_takes_no_model_and_one_does(code: str) -> None:
    matched = {f.path.name: _matches(f) for f in _bad() if f.code == code and f.path.suffix != ".ipynb"}
    assert any(all(found) for found in matched.values()), "the simplest matcher finds none of them"
    assert any(not any(found) for found in matched.values()), "the simplest matcher finds all of them"


@cache
def _bad() -> tuple[Fixture, ...]:
    return tuple(f for f in fixtures() if f.is_bad)


def _matches(fixture: Fixture) -> list[bool]:
    """For each finding of its own rule, whether the simplest matcher would have made it."""
    own = [e for e in fixture.expected() if e.code == fixture.code]
    return [_matches_line(fixture, e, _TABLE[fixture.code]) for e in own]


def _matches_line(fixture: Fixture, expected: Expected, row: dict[str, Any]) -> bool:
    file = fixture.path / expected.path if fixture.path.is_dir() else fixture.path
    lines = [_code(line) for line in file.read_text(encoding="utf-8", errors="replace").splitlines()]
    at = expected.row - 1
    hit = re.search(row["line"], lines[at].strip())
    text = "\n".join(lines)
    if hit is None or ("never" in row and re.search(row["never"], text)):
        return False
    if "also" in row and not re.search(row["also"], text):
        return False
    if "inside" in row and not any(re.search(row["inside"], header) for header in _headers(lines, at)):
        return False
    if "after" in row and not re.search(row["after"], next((s for s in reversed(lines[:at]) if s), "").strip()):
        return False
    return not row.get("only_once") or len(re.findall(rf"\b{hit[1]}\b", text)) == 1


def _code(line: str) -> str:
    return line.partition("  # expect:")[0].rstrip()


def _headers(lines: list[str], at: int) -> list[str]:
    """The lines that open the blocks around a line, by indentation, the nearest first, up to a `def`."""
    depth = _indent(lines[at])
    found: list[str] = []
    for line in reversed(lines[:at]):
        if line and _indent(line) < depth:
            depth = _indent(line)
            found.append(line.strip())
            if line.lstrip().startswith(("def ", "async def ", "class ")):
                break
    return found


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())

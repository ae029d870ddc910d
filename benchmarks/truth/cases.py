"""Pairs of short scripts, `bad.py` and its corrected twin `good.py`, with what must be found in the one and not in the other."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.truth.matching import TOLERANCE, Said

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Look = Callable[[Path, Sequence[str]], Sequence[Said]]


class Expect(NamedTuple):
    code: str
    lines: tuple[int, ...]


class Case(NamedTuple):
    folder: Path
    expect: tuple[Expect, ...]
    forbid: frozenset[str]


class Result(NamedTuple):
    """`known`: of what must be found, how much a rule of the linter looks for. `clean`: twins without a false alarm."""

    cases: int = 0
    expected: int = 0
    known: int = 0
    found: int = 0
    clean: int = 0
    passed: int = 0


def read_cases(folder: Path) -> list[Case]:
    """Every folder with a `case.toml`: `expect = [{line, code, also}]` and `forbid = [code]`."""
    found = []
    for file in sorted(folder.glob("*/case.toml")):
        case = tomllib.loads(file.read_text(encoding="utf-8"))
        expect = tuple(Expect(e["code"], (e["line"], *e.get("also", ()))) for e in case["expect"])
        found.append(Case(file.parent, expect, frozenset(case["forbid"])))
    return found


def score(cases: Sequence[Case], rules: frozenset[str], look: Look) -> Result:
    """A case is passed when all that is expected is found in `bad.py`, and nothing forbidden in `good.py`."""
    known = found = clean = passed = 0
    for case in cases:
        bad = look(case.folder, ["bad.py"])
        hits = sum(any(_fits(expect, one) for one in bad) for expect in case.expect)
        false = any(case.forbid & set(one.codes) for one in look(case.folder, ["good.py"]))
        known += sum(expect.code in rules for expect in case.expect)
        found += hits
        clean += not false
        passed += hits == len(case.expect) and not false
    return Result(len(cases), sum(len(case.expect) for case in cases), known, found, clean, passed)


def _fits(expect: Expect, one: Said) -> bool:
    if expect.code not in one.codes:
        return False
    start, end = one.start[1], one.end[1]
    near = abs(start - expect.lines[0]) <= TOLERANCE or start in expect.lines[1:]
    return near or start <= expect.lines[0] <= end

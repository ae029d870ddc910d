"""Fixtures mutated at random, with a fixed seed: whatever comes out is checked without a fault, twice with one answer."""

from __future__ import annotations

import random
import re
import time
from pathlib import Path

from trainlint.discovery import Target
from trainlint.engine import check_targets
from trainlint.result import FileResult
from trainlint.settings import Configuration, Overrides, Settings

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
SEED = 20
MUTATIONS = 400
SECONDS = 15.0  # a machine that is too slow for all of them tries fewer

_TOKEN = re.compile(r"\w+|\s+|[^\w\s]")


def test_mutated_fixtures_are_checked_without_a_fault(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in sorted(FIXTURES.glob("TL*/*.py"))]
    settings = Configuration(Overrides(select=("ALL",), preview=True), isolated=True).for_folder(str(tmp_path))
    path = str(tmp_path / "train.py")
    end = time.monotonic() + SECONDS
    for _ in range(MUTATIONS):
        text = _mutated(chance.choice(texts), texts, chance)
        first = _checked(path, text, settings)
        assert first.fault is None, f"{first.fault}\n{text}"
        assert _checked(path, text, settings).findings == first.findings, text
        if time.monotonic() > end:
            break


def _checked(path: str, text: str, settings: Settings) -> FileResult:
    (result,) = check_targets([Target(path, settings, data=text.encode("utf-8", "surrogatepass"))])
    return result


def _mutated(text: str, others: list[str], chance: random.Random) -> str:
    for _ in range(chance.choice((1, 1, 2, 3))):
        lines = text.splitlines(keepends=True) or ["\n"]
        one, other = chance.randrange(len(lines)), chance.randrange(len(lines))
        kind = chance.choice(("delete", "repeat", "swap", "splice", "rename", "rename", "rename", "tokens"))
        if kind == "delete":
            del lines[one]
        elif kind == "repeat":
            lines.insert(other, lines[one])
        elif kind == "swap":
            lines[one], lines[other] = lines[other], lines[one]
        elif kind == "splice":
            foreign = chance.choice(others).splitlines(keepends=True)
            at = chance.randrange(len(foreign))
            lines[one:one] = foreign[at : at + chance.randrange(1, 15)]
        else:
            lines = _with_other_tokens(text, kind, chance)
        text = "".join(lines)
    return text


def _with_other_tokens(text: str, kind: str, chance: random.Random) -> list[str]:
    tokens = _TOKEN.findall(text)
    places = [at for at, token in enumerate(tokens) if (token.isidentifier() if kind == "rename" else token.strip())]
    if len(places) < 2:
        return tokens
    one, other = chance.sample(places, 2)
    if kind == "rename":
        tokens[one] = tokens[other]
    else:
        tokens[one], tokens[other] = chance.choice(("", tokens[other])), tokens[one]
    return tokens

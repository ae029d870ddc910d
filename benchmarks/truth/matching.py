"""What a linter said against what the labels say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from benchmarks.truth.labels import Label, Line

TOLERANCE = 2  # lines
_ORDER = {"yes": 0, "soft": 1, "no": 2}


class Said(NamedTuple):
    """One finding. A linter that distinguishes less than trainlint names several codes, of which one suffices."""

    path: str
    codes: tuple[str, ...]
    start: Line
    end: Line
    advice: bool


class Counts(NamedTuple):
    found: int = 0  # labelled `yes`, and found
    missed: int = 0  # labelled `yes`, and not found
    false: int = 0  # labelled `no`, and found
    unlabelled: int = 0  # found where no label of that code is; advice is left out

    def plus(self, other: Counts) -> Counts:
        return Counts(*(a + b for a, b in zip(self, other, strict=True)))

    @property
    def recall(self) -> float | None:
        return _share(self.found, self.missed)

    @property
    def precision(self) -> float | None:
        """Of what stands on labelled lines."""
        return _share(self.found, self.false)

    @property
    def strict_precision(self) -> float | None:
        """Of everything; what stands on a line without a label counts as false."""
        return _share(self.found, self.false + self.unlabelled)


def match(labels: Sequence[Label], said: Sequence[Said]) -> dict[str, Counts]:
    """Counts by code, for one project. Findings in files without labels must have been left out."""
    counts: dict[str, Counts] = {}

    def count(code: str, one: Counts) -> None:
        counts[code] = counts.get(code, Counts()).plus(one)

    used: set[int] = set()
    for label in sorted(labels, key=lambda label: _ORDER[label.verdict]):
        hits = {i for i, one in enumerate(said) if _fits(label, one)}
        if label.verdict == "yes":
            count(label.code, Counts(found=1) if hits else Counts(missed=1))
        elif label.verdict == "no":
            hits = {i for i in hits - used if said[i].start in label.lines}
            if hits:
                count(label.code, Counts(false=1))
        used |= hits
    for i, one in enumerate(said):
        if i not in used and not one.advice:
            count(one.codes[0], Counts(unlabelled=1))
    return counts


def total(counts: Iterable[Counts]) -> Counts:
    result = Counts()
    for one in counts:
        result = result.plus(one)
    return result


def _fits(label: Label, one: Said) -> bool:
    if one.path != label.path or label.code not in one.codes:
        return False
    return any(
        cell == one.start[0] and (abs(line - one.start[1]) <= TOLERANCE or one.start[1] <= line <= one.end[1])
        for cell, line in label.lines
    )


def _share(part: int, rest: int) -> float | None:
    return part / (part + rest) if part + rest else None

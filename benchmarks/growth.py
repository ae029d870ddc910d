"""How cost grows with the number of files: one project that holds the same package once, twice, four and eight times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks import corpus
from benchmarks.corpus import Tree
from benchmarks.rounds import Measured, alternate
from benchmarks.running import Cost, measure
from benchmarks.tools import Installed

TIMES = (1, 2, 4, 8)
SECONDS = 3600


class Grown(NamedTuple):
    """`measured` has the times as names: "1", "2", ..."""

    package: str
    trees: Sequence[Tree]
    measured: Measured


def growth(
    trainlint: Installed, package: Path, scratch: Path, times: Sequence[int], rounds: int, say: Callable[[str], None]
) -> Grown:
    trees = [corpus.repeat(package, often, scratch / f"growth-{often}") for often in times]
    contenders = {str(often): _run(trainlint, tree.folder) for often, tree in zip(times, trees, strict=True)}
    return Grown(package.name, trees, alternate(contenders, rounds, say))


def _run(trainlint: Installed, folder: Path) -> Callable[[], Cost]:
    command = trainlint.command(".")
    return lambda: measure(command, folder, trainlint.tool.accepted, SECONDS)

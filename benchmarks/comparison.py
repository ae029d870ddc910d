"""All linters over the same files: a sample that the slow ones can bear, and everything for those that are fast enough."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks import corpus, parse_files
from benchmarks.corpus import Tree
from benchmarks.rounds import Measured, alternate
from benchmarks.running import Cost, measure, output
from benchmarks.tools import Installed

SECONDS = 3600  # for one run of one linter
OURS = "trainlint"
PARSE = "`ast.parse` of what mentions torch"

Say = Callable[[str], None]


class Compared(NamedTuple):
    """One table: a tree, what it is made of in words, and what each linter took for it."""

    title: str
    text: str
    tree: Tree
    measured: Measured
    too_slow: Sequence[str] = ()  # not run on this tree


def with_findings(trainlint: Installed, folder: Path) -> list[Path]:
    """The files under `folder` in which trainlint finds something, at its default levels. Raises Failed."""
    command = trainlint.command("--output-format=json", ".")
    text, _ = output(command, folder, trainlint.tool.accepted, SECONDS)
    names = {Path(item["filename"]) for item in json.loads(text)}
    # What it prints is relative to the working directory or absolute, as is shorter.
    return sorted((folder / name).resolve() for name in names)


def over_sample(
    title: str, text: str, tree: Tree, trainlint: Installed, peers: Sequence[Installed], rounds: int, say: Say
) -> Compared:
    """Every linter over the same files, cold."""
    contenders = {OURS: _runs(trainlint, tree.folder), PARSE: _parses(trainlint, tree.folder)}
    contenders |= {peer.tool.name: _runs(peer, tree.folder) for peer in peers}
    return Compared(title, text, tree, alternate(contenders, rounds, say))


def over_all(
    title: str,
    text: str,
    tree: Tree,
    trainlint: Installed,
    peers: Sequence[Installed],
    rates: Measured,
    sampled: Tree,
    patience: float,
    rounds: int,
    say: Say,
) -> Compared:
    """The linters that, at the rate they had on a sample, need less CPU time than `patience` seconds for all of it.

    trainlint also with a cache that a run before has filled, and with as many processes as it likes.
    """
    fast: list[Installed] = []
    slow: list[Installed] = []
    for peer in peers:
        name = peer.tool.name
        rate = rates.cpu(name).middle / sampled.kilolines if name in rates.costs else None
        (slow if rate is None or rate * tree.kilolines > patience else fast).append(peer)
    contenders = {OURS: _runs(trainlint, tree.folder), PARSE: _parses(trainlint, tree.folder)}
    if _has_jobs(trainlint):
        contenders[f"{OURS}, as many processes as it likes"] = _runs(
            trainlint, tree.folder, ("check", "--isolated", "--no-cache")
        )
    contenders[f"{OURS}, warm"] = _warm(trainlint, tree.folder, ("check", "--isolated"), say)
    for peer in fast:
        contenders[peer.tool.name] = _runs(peer, tree.folder)
        if peer.tool.name == "Ruff F":
            arguments = tuple(a for a in peer.tool.arguments if a != "--no-cache")
            contenders["Ruff F, warm"] = _warm(peer, tree.folder, arguments, say)
    return Compared(title, text, tree, alternate(contenders, rounds, say), [peer.tool.name for peer in slow])


def quiet_tree(origin: Path, loud: Sequence[Path], folder: Path) -> Tree:
    """The files of `origin` without those that have findings."""
    left_out = set(loud)
    return corpus.copy(
        [f for f in corpus.python_files(origin.resolve()) if f not in left_out], origin.resolve(), folder
    )


def mentions_torch(file: Path) -> bool:
    return b"torch" in file.read_bytes()


def one_process(trainlint: Installed) -> Installed:
    """trainlint told to work alone, as the others are, if it can be told."""
    if not _has_jobs(trainlint):
        return trainlint
    return trainlint._replace(tool=trainlint.tool._replace(arguments=(*trainlint.tool.arguments, "--jobs=1")))


def _has_jobs(trainlint: Installed) -> bool:
    return "--jobs" in output(trainlint.command(arguments=("check", "--help")), trainlint.executable.parent)[0]


def _runs(tool: Installed, folder: Path, arguments: Sequence[str] | None = None) -> Callable[[], Cost]:
    command = tool.command(".", arguments=arguments)
    return lambda: measure(command, folder, tool.tool.accepted, SECONDS)


def _warm(tool: Installed, folder: Path, arguments: Sequence[str], say: Say) -> Callable[[], Cost]:
    """Its first run fills the cache and does not count."""
    run = _runs(tool, folder, arguments)
    filled: list[bool] = []

    def warm() -> Cost:
        if not filled:
            for cache in folder.glob(".*_cache"):
                if cache.name.startswith(f".{tool.tool.command}"):
                    shutil.rmtree(cache)
            say(f"{tool.tool.name}: fills its cache")
            run()
            filled.append(True)
        return run()

    return warm


def _parses(trainlint: Installed, folder: Path) -> Callable[[], Cost]:
    command = [str(trainlint.python), parse_files.__file__, "."]
    return lambda: measure(command, folder, seconds=SECONDS)

"""Times trainlint beside other linters, on packages from PyPI, and writes `docs/benchmarks.md`.

    python -m benchmarks            # an hour or two, on a machine that does little else
    python -m benchmarks --quick    # some minutes: whether it runs at all, no figures to be quoted

Packages and linters are downloaded once, by pip, to a folder that is kept (`--cache`); linters that are already here are
used with `--bin`. For Linux and macOS.
"""

from __future__ import annotations

import argparse
import os
import sys
from datetime import date
from pathlib import Path

from benchmarks import corpus
from benchmarks.comparison import mentions_torch, one_process, over_all, over_sample, quiet_tree, with_findings
from benchmarks.growth import TIMES, growth
from benchmarks.machine import load, machine
from benchmarks.page import Report, render
from benchmarks.rounds import Measured
from benchmarks.rule_times import rule_times
from benchmarks.startup import start_up
from benchmarks.tools import ROOT, TOOLS, Installed, find, install, install_trainlint

PARTS = ("start-up", "sample", "findings", "quiet", "all", "growth", "rules")
_QUICK = {"packages": ["accelerate"], "sample": 4, "rounds": 2, "start_up_rounds": 3, "times": (1, 2), "patience": 20.0}


def main() -> None:
    options = _options()
    scratch = options.cache / "trees"
    packages = corpus.fetch(options.cache, options.packages)
    trainlint = one_process(install_trainlint(options.cache))
    peers, absent = _peers(options)
    report = _report(options, packages, [trainlint, *peers], absent)
    rates: tuple[Measured, corpus.Tree] | None = None
    loud: list[Path] | None = None

    def found() -> list[Path]:
        nonlocal loud
        if loud is None:
            say("looks for the files with findings")
            loud = with_findings(trainlint, packages)
        return loud

    for part in (part for part in PARTS if part in options.only):
        say(f"== {part}")
        if part == "start-up":
            ruff = next((peer for peer in peers if peer.tool.name == "Ruff F"), None)
            report.started = start_up(trainlint, ruff, scratch, options.start_up_rounds, say)
        elif part == "sample":
            files = [file for file in corpus.python_files(packages) if mentions_torch(file)]
            tree = corpus.copy(corpus.sample(files, options.sample), packages, scratch / "sample")
            text = (
                f"Drawn at random from the {len(files):,} files that mention torch, the same ones for everybody, as a tree of "
                "its own, since some linters take hours for all of them."
            )
            report.compared.append(over_sample("A sample", text, tree, trainlint, peers, options.rounds, say))
            rates = report.compared[-1].measured, tree
        elif part == "findings":
            chosen = corpus.sample(found(), options.sample, seed=1)
            tree = corpus.copy(chosen, packages.resolve(), scratch / "findings")
            text = f"Drawn at random from the {len(found()):,} files in which trainlint has findings: the worst case for it."
            report.compared.append(
                over_sample("Files full of findings", text, tree, trainlint, peers, options.rounds, say)
            )
        elif part == "quiet":
            tree = quiet_tree(packages, found(), scratch / "quiet")
            text = "All files but those in which trainlint has findings. The aim: at most twice `ast.parse` of what mentions torch."
            fast = [peer for peer in peers if peer.tool.name == "Ruff F"]
            report.compared.append(
                over_sample("Nothing to report", text, tree, trainlint, fast, _fewer(options.rounds), say)
            )
        elif part == "all":
            tree = corpus.tree(packages)
            rated, sampled = rates if rates is not None else (Measured({}, {}), tree)
            report.compared.append(
                over_all(
                    "All files",
                    "",
                    tree,
                    trainlint,
                    peers,
                    rated,
                    sampled,
                    options.patience,
                    _fewer(options.rounds),
                    say,
                )
            )
        elif part == "growth":
            # not the biggest package: eight times that would take hours
            package = packages / ("peft" if (packages / "peft").is_dir() else _names(packages)[0])
            report.grown = growth(trainlint, package, scratch, options.times, _fewer(options.rounds), say)
        else:
            report.rules = rule_times(trainlint, packages)
        report.loads.append(load())
        # After each part, so that a run that is ended early is not lost.
        options.output.parent.mkdir(parents=True, exist_ok=True)
        with open(options.output, "w", encoding="utf-8", newline="\n") as out:
            out.write(render(report))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one package, few files, few rounds")
    parser.add_argument(
        "--cache", type=Path, default=_cache(), metavar="DIR", help="what is downloaded, and trees made of it"
    )
    parser.add_argument(
        "--bin", type=Path, action="append", default=[], metavar="DIR", help="where other linters are already"
    )
    parser.add_argument("--no-install", action="store_true", help="leave out the linters that --bin does not have")
    parser.add_argument(
        "--packages", nargs="+", choices=[pin[0] for pin in corpus.pins()], metavar="NAME", help="default: all"
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--sample", type=int, default=60, metavar="N", help="files in a sample [60]")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="[5]; whole trees get half as many")
    parser.add_argument("--start-up-rounds", type=int, default=25, metavar="N", help="[25]")
    parser.add_argument(
        "--patience",
        type=float,
        default=300,
        metavar="SECONDS",
        help="CPU time that a linter may need for all files [300]",
    )
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "benchmarks.md", metavar="FILE")
    options = parser.parse_args()
    options.times = TIMES
    if options.quick:
        for name, value in _QUICK.items():
            setattr(options, name, value)
    options.cache = options.cache.absolute()
    return options


def _peers(options: argparse.Namespace) -> tuple[list[Installed], list[str]]:
    """(the other linters, the names of those that are not there)"""
    peers, absent = [], []
    for tool in TOOLS:
        peer = find(tool, options.bin) if options.bin else None
        if peer is None and not options.no_install:
            say(f"installs {tool.name} {tool.version}, if it is not there yet")
            peer = install(tool, options.cache)
        if peer is None:
            absent.append(tool.name)
        else:
            peers.append(peer)
    return peers, absent


def _report(options: argparse.Namespace, packages: Path, tools: list[Installed], absent: list[str]) -> Report:
    names = _names(packages)
    versions = {f"{one.tool.package} {one.version}" for one in tools}
    commands = [" ".join((one.tool.command, *one.tool.arguments)) for one in tools]
    return Report(
        date=date.today().isoformat(),
        machine=machine(),
        packages=[f"{name} {version}" for name, version, _ in corpus.pins() if name in names],
        versions=sorted(versions, key=str.lower),
        commands=commands,
        loads=[load()],
        absent=absent,
        options=_told(options),
    )


def _names(packages: Path) -> list[str]:
    """The packages in a folder, beside which linters may have left their caches."""
    return sorted(place.name for place in packages.iterdir() if (place / "pyproject.toml").is_file())


def _told(options: argparse.Namespace) -> str:
    """What makes this run smaller than the whole one."""
    said = []
    if options.quick:
        said.append("--quick")
    elif options.packages:
        said.append(f"--packages {' '.join(options.packages)}")
    if tuple(options.only) != PARTS:
        said.append(f"--only {' '.join(options.only)}")
    return " ".join(said)


def _fewer(rounds: int) -> int:
    return max(1, (rounds + 1) // 2)


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "trainlint-benchmarks"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()

"""Counts what trainlint and other linters find, miss and raise falsely on labelled files, and writes `docs/truth.md`.

    python -m benchmarks.truth --mirror DIR --labels FILE --repos FILE

DIR holds the work tree of each project as OWNER+NAME, at its commit in the repos file. The other linters are looked for in the
folders given with `--bin` (of virtual environments), in the versions of `peers.py`; those that are not there are left out.
"""

from __future__ import annotations

import argparse
import platform
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path

from benchmarks.truth import running
from benchmarks.truth.cases import Case, Result, read_cases, score
from benchmarks.truth.labels import Label, read_commits, read_labels
from benchmarks.truth.matching import Counts, Said, match
from benchmarks.truth.page import Measured, Project, Report, render
from benchmarks.truth.peers import PEERS
from trainlint import __version__
from trainlint.findings import Level
from trainlint.rules.registry import index

# What a linter says of the labelled files of a project, and how many findings are of other kinds.
Look = Callable[[Path, Sequence[str]], tuple[list[Said], int]]


def main() -> None:
    options = _options()
    commits = read_commits(options.repos)
    labels = _by_project([label for label in read_labels(options.labels) if label.repo not in options.leave_out])
    absent = [repo for repo in labels if not (options.mirror / repo.replace("/", "+")).is_dir()]
    if absent:
        sys.exit(f"not in {options.mirror}: {', '.join(absent)}; leave them out with --leave-out")
    for repo, own in labels.items():  # a clone without a work tree has the folder, and no file to be found
        tree = options.mirror / repo.replace("/", "+")
        lost = next((label.path for label in own if not (tree / label.path).is_file()), None)
        if lost is not None:
            sys.exit(f"{tree} has no {lost}: the work tree of {repo} at {commits[repo]} must lie there")
    cases = read_cases(options.cases) if options.cases else []
    every = frozenset(index())

    measured = [
        _measure("trainlint", __version__, " ".join(running.OPTIONS), every, _trainlint, options.mirror, labels, cases)
    ]
    missing = []
    for peer in PEERS:
        found = running.find(peer, options.bin)
        if found is None:
            missing.append(peer.name)
            continue
        look = _with_levels(found)
        measured.append(
            _measure(peer.name, found.version, peer.options, peer.rules & every, look, options.mirror, labels, cases)
        )
    report = Report(
        date=date.today().isoformat(),
        python=platform.python_version(),
        projects=[_project(repo, commits[repo], own) for repo, own in sorted(labels.items())],
        left_out=sorted(options.leave_out),
        measured=measured,
        absent=missing,
        rules=index(),
        wanted=sum(label.verdict == "yes" for own in labels.values() for label in own),
    )
    options.output.parent.mkdir(parents=True, exist_ok=True)
    with open(options.output, "w", encoding="utf-8", newline="\n") as out:
        out.write(render(report))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.truth", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--mirror", type=Path, required=True, metavar="DIR", help="work trees, as OWNER+NAME")
    parser.add_argument(
        "--labels", type=Path, required=True, metavar="FILE", help="repo, path, line, code, verdict, note"
    )
    parser.add_argument("--repos", type=Path, required=True, metavar="FILE", help="repo, commit")
    parser.add_argument("--cases", type=Path, metavar="DIR", help="pairs of scripts, each in a folder with case.toml")
    parser.add_argument("--bin", type=Path, action="append", default=[], metavar="DIR", help="where other linters are")
    parser.add_argument("--leave-out", action="append", default=[], metavar="OWNER/NAME", help="a labelled project")
    parser.add_argument("--output", type=Path, default=running.ROOT / "docs" / "truth.md", metavar="FILE")
    return parser.parse_args()


def _measure(
    name: str,
    version: str,
    options: str,
    rules: frozenset[str],
    look: Look,
    mirror: Path,
    labels: dict[str, list[Label]],
    cases: Sequence[Case],
) -> Measured:
    counts: dict[str, Counts] = {}
    others = 0
    problems: list[str] = []
    for repo, own in sorted(labels.items()):
        print(f"{name} {version}: {repo}", file=sys.stderr, flush=True)
        try:
            said, more = look((mirror / repo.replace("/", "+")).resolve(), sorted({label.path for label in own}))
        except running.Failed as failed:
            problems.append(str(failed))
            said, more = [], 0
        others += more
        for code, one in match([label for label in own if label.code in rules], said).items():
            counts[code] = counts.get(code, Counts()).plus(one)
    print(f"{name} {version}: {len(cases)} cases", file=sys.stderr, flush=True)
    result: Result | None = None
    if cases:
        try:
            result = score(cases, rules, lambda folder, files: look(folder.resolve(), files)[0])
        except running.Failed as failed:
            problems.append(str(failed))
    return Measured(name, version, options, rules, counts, others, result, problems)


def _trainlint(root: Path, files: Sequence[str]) -> tuple[list[Said], int]:
    """A project is read as a whole, since what calls a line may stand in another file; a case is one file."""
    paths = files if len(files) == 1 and (root / "case.toml").exists() else (".",)
    return [one for one in running.trainlint(root, paths) if one.path in set(files)], 0


def _with_levels(tool: running.Installed) -> Look:
    """The findings of a peer; one that stands only for rules of ours that give advice is advice."""
    rules = index()

    def look(root: Path, files: Sequence[str]) -> tuple[list[Said], int]:
        said, others = tool.findings(root, files)
        return [
            one._replace(advice=all(rules[code].level == Level.ADVICE for code in one.codes)) for one in said
        ], others

    return look


def _by_project(labels: Sequence[Label]) -> dict[str, list[Label]]:
    found: dict[str, list[Label]] = {}
    for label in labels:
        found.setdefault(label.repo, []).append(label)
    return found


def _project(repo: str, commit: str, labels: Sequence[Label]) -> Project:
    return Project(repo, commit, len({label.path for label in labels}), Counter(label.verdict for label in labels))


if __name__ == "__main__":
    main()

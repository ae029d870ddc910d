"""`docs/truth.md`: counts only, no line of the files that were read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from benchmarks.truth.cases import Result
from benchmarks.truth.matching import TOLERANCE, Counts, total
from benchmarks.truth.peers import PEERS
from trainlint.rules.registry import Entry

_HEAD = """\
# How true it is

Measured on {date} with Python {python}: {versions}.
{absent}
{files} files of {projects} public projects were read by hand and labelled, line by line, for torch 2.5: {yes} places that a
careful reviewer would want to be told of (`yes`), {no} that look alike and are right (`no`, a selection), {soft} on which
reviewers may differ or that are advice (`soft`).{left_out}

**Read this first.** trainlint was developed with these labels in view, and they follow its list of rules; the other linters
were not, and have rules of their own. The figures of trainlint are those of a training set: they show what it has learned,
not how it does on code that nobody has looked at. The other columns show how far checks of the same things get without that.

- A `yes` is **found** if a finding of its rule stands within {tolerance} lines of it, otherwise **missed**. Recall is
  found / (found + missed).
- A finding on a line labelled `no` for its rule is **false**. Precision is found / (found + false).
- A finding where no label of its rule is, is **unlabelled**. All but a few files are labelled completely for errors and warnings, so
  in the strict precision it counts as false: found / (found + false + unlabelled). Advice is left out.
- Findings on `soft` lines count for neither side.
- A code of another linter that stands for several of our rules is right if one of them is labelled; the table at the end
  says which stands for what. Their findings of other kinds are only counted.
  What speaks of a whole file is right if the file has such a label.
- Some of their rules are narrower by design, and low figures then are no defect: torch-preflight's TG007 looks at loops inside
  a step only, not at one `.item()` per step; TorchFix knows a list of deprecated functions, not their keywords.
- All rules of all linters were on: {options}.
  trainlint reads each project as a whole, the others file by file.
"""


class Measured(NamedTuple):
    """One linter. `cases` is None where no cases were given."""

    name: str
    version: str
    options: str
    rules: frozenset[str]
    counts: Mapping[str, Counts]
    others: int  # findings of kinds that trainlint does not look for
    cases: Result | None
    problems: Sequence[str] = ()

    def total(self) -> Counts:
        return total(self.counts.values())


class Project(NamedTuple):
    name: str
    commit: str
    files: int
    labels: Mapping[str, int]  # by verdict


class Report(NamedTuple):
    """Everything the page says. `absent` are the peers that were not installed."""

    date: str
    python: str
    projects: Sequence[Project]
    left_out: Sequence[str]
    measured: Sequence[Measured]  # trainlint first
    absent: Sequence[str]
    rules: Mapping[str, Entry]
    wanted: int  # labels `yes`


def render(report: Report) -> str:
    parts = [
        _head(report),
        _together(report),
        _cases(report),
        _by_rule(report),
        _beside(report),
        _projects(report),
        _codes(),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _head(report: Report) -> str:
    verdicts = {v: sum(p.labels.get(v, 0) for p in report.projects) for v in ("yes", "no", "soft")}
    absent = f"\nNot installed, and so not measured: {', '.join(report.absent)}.\n" if report.absent else ""
    left_out = (
        f" Labelled, but left out here because of its size: {', '.join(report.left_out)}." if report.left_out else ""
    )
    return _HEAD.format(
        date=report.date,
        python=report.python,
        versions=", ".join(f"{m.name} {m.version}" for m in report.measured),
        absent=absent,
        files=sum(project.files for project in report.projects),
        projects=len(report.projects),
        left_out=left_out,
        tolerance=TOLERANCE,
        options="; ".join(
            f"{m.name} {f'`{m.options}`' if m.options else '(all are by default)'}" for m in report.measured
        ),
        **verdicts,
    ).rstrip()


def _together(report: Report) -> str:
    rows = []
    for one in report.measured:
        counts = one.total()
        own = Counts(counts.found, counts.missed)
        rows.append(
            (
                one.name,
                str(len(one.rules)),
                f"{counts.found} of {report.wanted}",
                _percent(counts.found / report.wanted if report.wanted else None),
                _percent(own.recall),
                str(counts.false),
                str(counts.unlabelled),
                _percent(counts.precision),
                _percent(counts.strict_precision),
                str(one.others),
            )
        )
    head = (
        "linter",
        "rules of ours it covers",
        "found",
        "recall, all",
        "recall, its rules",
        "false",
        "unlabelled",
        "precision",
        "precision, strict",
        "other findings",
    )
    problems = [problem for one in report.measured for problem in one.problems]
    notes = ["", "Not complete: " + "; ".join(problems) + "."] if problems else []
    return "\n".join(["## All rules together", "", *_table(head, rows), *notes])


def _cases(report: Report) -> str:
    if not any(one.cases for one in report.measured):
        return ""
    rows = []
    for one in report.measured:
        if one.cases is not None:
            r = one.cases
            shares = (f"{r.found} of {r.expected}", f"{r.found} of {r.known}")
            rows.append((one.name, *shares, f"{r.clean} of {r.cases}", f"{r.passed} of {r.cases}"))
    head = ("linter", "found", "found, of its rules", "twins without a false alarm", "cases passed")
    text = (
        "Short scripts cut down from public issues, each with its corrected twin. A case is passed when all that is expected "
        "is found in the one, and nothing of that kind in the other."
    )
    return "\n".join(["## Pairs of scripts", "", text, "", *_table(head, rows)])


def _by_rule(report: Report) -> str:
    first = report.measured[0]
    rows = []
    for code, counts in sorted(first.counts.items()):
        numbers = (str(counts.found), str(counts.missed), str(counts.false), str(counts.unlabelled))
        shares = (_percent(counts.recall), _percent(counts.precision), _percent(counts.strict_precision))
        rows.append((_rule(code, report.rules), *numbers, *shares))
    sums = first.total()
    numbers = (str(sums.found), str(sums.missed), str(sums.false), str(sums.unlabelled))
    rows.append(("all", *numbers, _percent(sums.recall), _percent(sums.precision), _percent(sums.strict_precision)))
    head = ("rule", "found", "missed", "false", "unlabelled", "recall", "precision", "precision, strict")
    text = "Rules with neither a `yes` to find nor a finding are not in the table: these files say nothing of their recall."
    return "\n".join([f"## {first.name}, rule by rule", "", text, "", *_table(head, rows)])


def _beside(report: Report) -> str:
    others = report.measured[1:]
    covered = sorted({code for one in others for code in one.rules} & _seen(report.measured))
    rows = []
    for code in covered:
        cells = [_cell(one, code) for one in report.measured]
        rows.append((_rule(code, report.rules), *cells))
    head = ("rule", *(one.name for one in report.measured))
    text = (
        "The rules that at least one other linter has, as recall / strict precision, with found, missed, and false with "
        "unlabelled in brackets. An empty cell: it has no such rule. A finding that may stand for several rules and fits "
        "none of their labels is counted under the first of them."
    )
    return (
        "\n".join([f"## Beside {', '.join(one.name for one in others)}", "", text, "", *_table(head, rows)])
        if others
        else ""
    )


def _projects(report: Report) -> str:
    rows = [
        (p.name, f"`{p.commit[:12]}`", str(p.files), *(str(p.labels.get(v, 0)) for v in ("yes", "no", "soft")))
        for p in report.projects
    ]
    return "\n".join(
        ["## The projects", "", *_table(("project", "commit", "labelled files", "yes", "no", "soft"), rows)]
    )


def _codes() -> str:
    rows = []
    for peer in PEERS:
        for meaning in peer.meanings:
            code = f'{meaning.code} ("{meaning.word}")' if meaning.word else meaning.code
            code += " (whole file)" if meaning.whole_file else ""
            rows.append((peer.name, code, ", ".join(meaning.rules) or "none"))
    return "\n".join(["## Their codes and ours", "", *_table(("linter", "code", "rules of trainlint"), rows)])


def _cell(one: Measured, code: str) -> str:
    if code not in one.rules:
        return ""
    counts = one.counts.get(code, Counts())
    shares = f"{_percent(counts.recall)} / {_percent(counts.strict_precision)}"
    return f"{shares} ({counts.found}, {counts.missed}, {counts.false + counts.unlabelled})"


def _seen(measured: Iterable[Measured]) -> set[str]:
    return {code for one in measured for code, counts in one.counts.items() if any(counts)}


def _rule(code: str, rules: Mapping[str, Entry]) -> str:
    return f"[{code}](rules/{code}.md) {rules[code].name}" if code in rules else code


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(head)} |", "|---" * len(head) + "|", *(f"| {' | '.join(row)} |" for row in rows)]


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f} %"

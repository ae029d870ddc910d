"""`docs/benchmarks.md`: figures only; no path of the machine, no line of the files that were read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from benchmarks.comparison import OURS, Compared
from benchmarks.growth import Grown
from benchmarks.rounds import Measured, Spread
from benchmarks.rule_times import RuleTimes
from benchmarks.startup import CACHED, CLICK, CLICK_LIBCST, FINDINGS, IDLE
from benchmarks.startup import CLEAN as SCRIPT

_RULES_SHOWN = 25

_HEAD = """\
# How fast it is

Measured on {date} by `python -m benchmarks` on {machine}; load average {loads} (what else the machine did).
{versions}.

- **CPU** is the time of all processes of a command together, user and system, start-up included. In a round every command
  runs once, each round in another order; a cell has the middle of the rounds and, in brackets, the lowest and the highest.
- **Ratio** is CPU time to that of trainlint in the same round: above 1, the other needs more.
- **Memory** is the peak resident set of the largest process of a command; less than some 25 MB, which the process that
  starts them has, cannot be told apart.
- The linters run as {commands}.
  trainlint has all rules at their default levels, and `ast.parse` runs on the same Python.

The files are those of wheels from PyPI, pinned by hash in `benchmarks/corpus.txt`: {packages}."""


@dataclass
class Report:
    """Everything the page says; parts that were not measured are left out."""

    date: str
    machine: str
    packages: Sequence[str]  # with versions
    versions: Sequence[str]
    commands: Sequence[str]
    loads: list[str] = field(default_factory=list)
    absent: Sequence[str] = ()
    options: str = ""
    compared: list[Compared] = field(default_factory=list)
    grown: Grown | None = None
    started: Measured | None = None
    rules: RuleTimes | None = None


def render(report: Report) -> str:
    parts = [_head(report), *(_compared(one) for one in report.compared)]
    if report.started is not None:
        parts.append(_started(report.started))
    if report.grown is not None:
        parts.append(_grown(report.grown))
    if report.rules is not None:
        parts.append(_rules(report.rules))
    return "\n\n".join(parts) + "\n"


def _head(report: Report) -> str:
    text = _HEAD.format(
        date=report.date,
        machine=report.machine,
        loads=" to ".join(dict.fromkeys((min(report.loads, key=float), max(report.loads, key=float)))),
        versions=", ".join(report.versions),
        commands="; ".join(f"`{command}`" for command in report.commands),
        packages=", ".join(report.packages),
    )
    if report.options:
        text += f"\n\nThis is not the whole run: `python -m benchmarks {report.options}`."
    if report.absent:
        text += f"\n\nNot installed, and so not measured: {', '.join(report.absent)}."
    return text


def _compared(one: Compared) -> str:
    measured, tree = one.measured, one.tree
    rows = []
    for name in sorted(measured.costs, key=lambda name: measured.cpu(name).middle):
        cpu = measured.cpu(name)
        ratio = "1" if name == OURS else _spread(measured.ratio(name, OURS), "") if OURS in measured.costs else "-"
        rate = _number(1000 * cpu.middle / tree.kilolines) if tree.lines else "-"
        shown = f"**{name}**" if name == OURS else name
        rows.append((shown, _spread(cpu), rate, _spread(measured.wall(name)), _megabytes(measured.memory(name)), ratio))
    head = ("", "CPU, s", "ms per 1,000 lines", "wall, s", "memory, MB", "ratio")
    lines = [f"## {one.title}", "", f"{_files(tree.files)}, {tree.lines:,} lines. {one.text}", "", *_table(head, rows)]
    if one.too_slow:
        lines += ["", f"Too slow for all of it (see the rates above): {', '.join(one.too_slow)}."]
    lines += [line for name, why in measured.failures.items() for line in ("", f"{name} failed: {_one_line(why)}")]
    return "\n".join(lines)


def _started(measured: Measured) -> str:
    rows = []
    for name in measured.costs:
        cells = []
        for base in (CLICK, CLICK_LIBCST):
            cells.append(_spread(measured.ratio(name, base), "") if base in measured.costs else "-")
        cpu = measured.cpu(name)
        milliseconds = Spread(*(1000 * number for number in cpu))
        wall = Spread(*(1000 * number for number in measured.wall(name)))
        rows.append((name, _spread(milliseconds), _spread(wall), *cells))
    head = ("", "CPU, ms", "wall, ms", f"to {CLICK}", f"to {CLICK_LIBCST}")
    text = (
        f"One file, in a project of three. The aims: {IDLE[11:]}, {SCRIPT[11:]} and {CACHED[11:]}: at most 1.5 times {CLICK}; "
        f"{FINDINGS[11:]}, not cached: at most 1.3 times {CLICK_LIBCST}."
    )
    return "\n".join(["## Start-up", "", text, "", *_table(head, rows)])


def _grown(grown: Grown) -> str:
    measured = grown.measured
    rows = []
    for times, tree in zip(measured.costs, grown.trees, strict=False):
        cpu = measured.cpu(times)
        first = next(iter(measured.costs))
        per_file = _number(1000 * cpu.middle / tree.files)
        ratio = "1" if times == first else _spread(measured.ratio(times, first), "")
        rows.append((f"{times}x", f"{tree.files:,}", _spread(cpu), per_file, ratio, _megabytes(measured.memory(times))))
    head = ("", "files", "CPU, s", "ms a file", "CPU, to the first", "memory, MB")
    text = f"One project that holds {grown.package} several times over. Not more than in proportion is the aim."
    failed = [line for name, why in measured.failures.items() for line in ("", f"{name}x failed: {_one_line(why)}")]
    return "\n".join(["## Growth", "", text, "", *_table(head, rows), *failed])


def _rules(times: RuleTimes) -> str:
    total = sum(rule.milliseconds for rule in times.rules) + times.rest
    rows = [
        (
            f"[{r.code}](rules/{r.code}.md) {r.name}",
            f"{r.milliseconds:,.0f}",
            f"{r.share:.1f} %",
            f"{r.calls:,}",
            f"{r.findings:,}",
        )
        for r in times.rules[:_RULES_SHOWN]
    ]
    others = times.rules[_RULES_SHOWN:]
    if others:
        spent = sum(rule.milliseconds for rule in others)
        calls, findings = sum(rule.calls for rule in others), sum(rule.findings for rule in others)
        rows.append((f"{len(others)} others", f"{spent:,.0f}", _share(spent, total), f"{calls:,}", f"{findings:,}"))
    rows.append(("all but the rules", f"{times.rest:,.0f}", _share(times.rest, total), "", ""))
    head = ("rule", "CPU, ms", "share", "files", "findings")
    text = (
        "`trainlint check --profile-rules` over all files. What several rules ask of the model is worked out once, at the cost "
        "of the rule that is the first to ask. Findings include those of level advice, which are not shown by default."
    )
    return "\n".join(["## Time per rule", "", text, "", *_table(head, rows)])


def _spread(spread: Spread, unit: str = "") -> str:
    middle, low, high = (_number(number) for number in spread)
    return f"{middle}{unit}" if low == high else f"{middle}{unit} ({low} to {high})"


def _number(number: float) -> str:
    """Three digits, as a person would write them."""
    if number >= 100:
        return f"{number:,.0f}"
    return f"{number:.1f}" if number >= 10 else f"{number:.2f}" if number >= 0.1 else f"{number:.3f}"


def _megabytes(number: int) -> str:
    return f"{number / 1e6:.0f}"


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def _files(count: int) -> str:
    return f"{count:,} {'file' if count == 1 else 'files'}"


def _one_line(text: str) -> str:
    """What a command said of its failure names paths; only the kind of failure is for the page."""
    return text.partition(":")[2].partition(":")[0].strip() or "it did not run"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    aligned = ["---", *["--:"] * (len(head) - 1)]
    return [f"| {' | '.join(head)} |", f"|{'|'.join(aligned)}|", *(f"| {' | '.join(row)} |" for row in rows)]

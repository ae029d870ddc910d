"""The report as Markdown, for a pull request."""

from __future__ import annotations

import math

from runtime_check.diagnosis import Hotspot
from runtime_check.evidence import Verdict
from runtime_check.measures import bytes_text
from runtime_check.report import content
from runtime_check.verify import Report

Cells = tuple[str, ...]


def to_markdown(report: Report) -> str:
    name = report.options.name()
    blocks = [f"## trainlint verify: `{name}`"]
    if report.failure is not None:
        blocks.append(f"**No measurement.**\n\n```\n{report.failure}\n```")
    if len(report.out_of_memory) > 1:
        blocks.append("```\n" + "\n".join(report.out_of_memory[1:]) + "\n```")
    diagnosis = report.diagnosis
    if diagnosis is not None:
        next_step = content.shorten(diagnosis.next_step, report)
        blocks.append(f"**{diagnosis.bound}**: {diagnosis.because}. Next: {next_step}.")
        facts = [*content.head(report), *content.speed(report), *content.loaders(report), *content.memory(report)]
        facts += content.collectives(report)
        blocks.append("\n".join(f"- {line}" for line in facts))
    if content.searched(report):
        blocks.append("\n".join(f"- {line.strip()}" for line in content.searched(report)))
    notes = diagnosis.notes if diagnosis is not None else ()
    blocks.extend(_against(report))
    blocks.extend(_tables(report))
    remarks = [*content.comparisons(report), *notes, *report.warnings, *content.side_effects(report)]
    if remarks:
        blocks.append("\n".join(f"- {line}" for line in remarks))
    blocks.append(f"<sub>{content.EXECUTES}</sub>")
    return "\n\n".join(blocks) + "\n"


def _against(report: Report) -> list[str]:
    earlier = content.against(report)
    if report.against is None:
        return []
    rows: list[Cells] = [(metric.name, metric.verdict.value, metric.why) for metric in report.against.metrics]
    listed = "\n".join(f"- {line}" for line in earlier[1 + len(rows) :])
    table = _table(("against the baseline", "verdict", "then -> now"), rows)
    return [block for block in (f"**{earlier[0]}**", table, listed) if block]


def _tables(report: Report) -> list[str]:
    rows = content.dearest_first(content.rows(report))
    answered = [row for row in rows if row.verdict is not Verdict.NOT_RUN]
    answers: list[Cells] = [
        (row.code, f"`{row.place}`", _bold_if_confirmed(row), _saving(row), row.why) for row in answered
    ]
    not_run: list[Cells] = [(row.code, f"`{row.place}`", row.why) for row in rows if row.verdict is Verdict.NOT_RUN]
    tables = [
        _table(("code", "line", "verdict", "saving", "what the run shows"), answers),
        _table(("comparison without a finding", "verdict", "saving"), _questions(report)),
        _folded(f"{len(not_run)} not run", _table(("code", "line", "why not"), not_run)),
    ]
    tried: list[Cells] = [
        (row.candidate.name, text, "<br>".join(f"`{line}`" for line in lines))
        for row, text, lines in content.what_if(report)
    ]
    tables.append(_table(("what if", "measured on this script", "lines to change"), tried))
    diagnosis = report.diagnosis
    if diagnosis is not None:
        phases: list[Cells] = [(name, f"{part:.1%}") for name, part in content.breakdown(diagnosis)]
        memory: list[Cells] = [
            (bytes_text(hot.amount), _line(hot, report), hot.what) for hot in content.memory_lines(diagnosis)
        ]
        syncs: list[Cells] = [
            (f"{hot.amount:.2f}", _line(hot, report), f"`{hot.what}`") for hot in diagnosis.sync_lines
        ]
        tables.append(_table(("part of the step", "share"), phases))
        tables.append(_table(("memory at the peak", "line", "for"), memory))
        tables.append(_table(("synchronisations per step", "line", "call"), syncs))
    return [table for table in tables if table]


def _bold_if_confirmed(row: content.Row) -> str:
    said = row.verdict.value.replace("_", " ")
    return f"**{said}**" if row.verdict is Verdict.CONFIRMED else said


def _saving(row: content.Row) -> str:
    return "" if row.saving is None else _share(row.saving, *row.interval)


def _share(saving: float, low: float | None, high: float | None) -> str:
    bounded = low is not None and high is not None and math.isfinite(low + high)
    span = f" [{100 * low:.1f}, {100 * high:.1f}]" if bounded else ""  # type: ignore[operator]
    return f"{100 * saving:.1f} %{span}"


def _questions(report: Report) -> list[Cells]:
    """Those that no table of candidates holds."""
    decisions = report.comparisons.decisions if report.comparisons is not None and report.what_if is None else ()
    return [
        (
            d.proposal.change.title,
            d.verdict.value.replace("_", " "),
            _share(d.effect.saving, d.effect.low, d.effect.high),
        )
        for d in decisions
        if d.proposal.finding is None and d.effect is not None
    ]


def _folded(summary: str, block: str) -> str:
    return f"<details><summary>{summary}</summary>\n\n{block}\n\n</details>" if block else ""


def _line(hot: Hotspot, report: Report) -> str:
    return f"`{content.short(hot.file, report)}:{hot.line}`"


def _table(head: Cells, body: list[Cells]) -> str:
    """Empty without a body."""
    if not body:
        return ""

    def line(cells: Cells) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

    return "\n".join([line(head), "|" + " --- |" * len(head), *(line(row) for row in body)])

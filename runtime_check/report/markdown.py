"""The report as Markdown, for a pull request."""

from __future__ import annotations

from runtime_check.diagnosis import Hotspot
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
        blocks.append(f"**{diagnosis.bound}**: {diagnosis.because}. Next: {diagnosis.next_step}.")
        facts = [*content.head(report), *content.speed(report), *content.loaders(report), *content.memory(report)]
        facts += content.collectives(report)
        blocks.append("\n".join(f"- {line}" for line in facts))
    blocks.extend(_tables(report))
    if content.searched(report):
        blocks.append("\n".join(f"- {line.strip()}" for line in content.searched(report)))
    notes = diagnosis.notes if diagnosis is not None else ()
    remarks = [*content.comparisons(report), *notes, *report.warnings, *content.side_effects(report)]
    if remarks:
        blocks.append("\n".join(f"- {line}" for line in remarks))
    blocks.append(f"<sub>{content.EXECUTES}</sub>")
    return "\n\n".join(blocks) + "\n"


def _tables(report: Report) -> list[str]:
    answers: list[Cells] = [
        (row.code, f"`{row.place}`", row.verdict.value.replace("_", " "), row.why) for row in content.rows(report)
    ]
    tables = [_table(("code", "line", "verdict", "what the run shows"), answers)]
    tried: list[Cells] = [
        (row.candidate.name, text, "<br>".join(f"`{line}`" for line in lines))
        for row, text, lines in content.what_if(report)
    ]
    tables.append(_table(("what if", "measured on this script", "lines to change"), tried))
    diagnosis = report.diagnosis
    if diagnosis is not None:
        phases: list[Cells] = [(name, f"{part:.1%}") for name, part in content.breakdown(diagnosis)]
        memory: list[Cells] = [(bytes_text(hot.amount), _line(hot, report), hot.what) for hot in diagnosis.memory_lines]
        syncs: list[Cells] = [
            (f"{hot.amount:.2f}", _line(hot, report), f"`{hot.what}`") for hot in diagnosis.sync_lines
        ]
        tables.append(_table(("part of the step", "share"), phases))
        tables.append(_table(("memory at the peak", "line", "for"), memory))
        tables.append(_table(("synchronisations per step", "line", "call"), syncs))
    return [table for table in tables if table]


def _line(hot: Hotspot, report: Report) -> str:
    return f"`{content.short(hot.file, report)}:{hot.line}`"


def _table(head: Cells, body: list[Cells]) -> str:
    """Empty without a body."""
    if not body:
        return ""

    def line(cells: Cells) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

    return "\n".join([line(head), "|" + " --- |" * len(head), *(line(row) for row in body)])

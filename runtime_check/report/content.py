"""The report as blocks of plain lines: what terminal and Markdown both say, said once."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtime_check.compare.answers import noise_line
from runtime_check.diagnosis import Diagnosis, Hotspot, phase_name
from runtime_check.evidence import Answer, Verdict
from runtime_check.findings import Finding
from runtime_check.measures import bytes_text, cores_text, timing
from runtime_check.report.side_effects import gather
from runtime_check.verify import Report
from runtime_check.what_if import batch_size, predict
from runtime_check.what_if.records import Row as Tried
from runtime_check.what_if.rows import edit_text, row_text

LEAST_SHARE = 0.01  # of the peak: what holds less is left out for a reader
WORTH_SAYING_CPUS = 0.1
EXECUTES = "verify executed the script: its code ran on this machine, for a few steps, several times."


@dataclass(frozen=True)
class Row:
    """A finding's answer, ready to be laid out."""

    code: str
    place: str
    verdict: Verdict
    why: str
    saving: float | None = None  # share that the change saves, where one was compared
    interval: tuple[float | None, float | None] = (None, None)


def counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def short(path: str, report: Report) -> str:
    """Relative to where the script is run, if it lies below."""
    base = str(report.options.cwd.absolute()) + os.sep
    return path[len(base) :] if path.startswith(base) else path


def shorten(text: str, report: Report) -> str:
    """Paths in a sentence, relative to where the script is run."""
    return text.replace(str(report.options.cwd.absolute()) + os.sep, "")


def rows(report: Report) -> list[Row]:
    return [_row(finding, answer, report) for finding, answer in report.answers]


def verdicts(rows: list[Row]) -> str:
    """How many of each."""
    numbers = {verdict: sum(row.verdict is verdict for row in rows) for verdict in Verdict}
    order = (Verdict.CONFIRMED, Verdict.REFUTED, Verdict.INCONCLUSIVE, Verdict.NOT_RUN)
    return ", ".join(f"{numbers[one]} {one.value.replace('_', ' ')}" for one in order if numbers[one])


def dearest_first(rows: list[Row]) -> list[Row]:
    """Confirmed ones first, and of them what costs most; what was not run last."""
    order = (Verdict.CONFIRMED, Verdict.INCONCLUSIVE, Verdict.REFUTED, Verdict.NOT_RUN)
    return sorted(rows, key=lambda row: (order.index(row.verdict), -(-1.0 if row.saving is None else row.saving)))


def _row(finding: Finding, answer: Answer, report: Report) -> Row:
    effect = answer.effect or {}
    low, high = effect.get("interval") or (None, None)
    place = f"{short(finding.path, report)}:{finding.row}"
    return Row(finding.code, place, answer.verdict, shorten(answer.why, report), effect.get("saving"), (low, high))


def head(report: Report) -> list[str]:
    """What was run and what a step is."""
    evidence = report.evidence
    result = evidence.first(evidence.timed) or evidence.first(evidence.observed)
    if result is None:
        return []
    anchor = result["anchor"]
    unit = f"one step of {result['optimizers'][anchor]['type']}" if anchor is not None else f"one {result['unit']}"
    device = result["device"] or f"CPU, {counted(result['threads'], 'thread')}"
    ranks = f", {result['world']} ranks" if result["world"] > 1 else ""
    lines = [f"a step is {unit}; torch {result['torch']} on {device}{ranks}"]
    if report.shim:
        lines.append(
            "no CUDA here: the script asks for it and was run on the CPU through a stand-in for torch.cuda "
            "(--no-shim turns that off). Lines, loaders and bytes hold; step times are this CPU's."
        )
    return lines


def speed(report: Report) -> list[str]:
    measured = report.evidence.timing
    if measured is None:
        return []
    spread = f"p10 {measured.p10_ms:.2f}, p90 {measured.p90_ms:.2f}, {counted(len(measured.steps_ms), 'step')}"
    lines = [f"step {measured.median_ms:.2f} ms ({spread}, nothing instrumented)"]
    if measured.samples_per_s:
        batch = f", batch size {measured.batch_size:.0f}" if measured.batch_size else ""
        tokens = f", {measured.tokens_per_s:,.0f} tokens/s" if measured.tokens_per_s else ""
        ranks = report.evidence.ranks(report.evidence.timed)
        of = f" on {process_name(ranks[0], 0)}" if len(ranks) > 1 else ""
        lines.append(f"throughput {measured.samples_per_s:,.1f} samples/s{tokens}{batch}{of}")
    excluded = ", ".join(f"{count} with {why.replace('_', ' ')}" for why, count in sorted(measured.excluded.items()))
    if excluded:
        lines.append(f"left out of the step time: {excluded}")
    for number, result in enumerate(report.evidence.ranks(report.evidence.timed)[1:], 1):
        other = timing(result)
        if other is not None:
            lines.append(f"{process_name(result, number)}: step {other.median_ms:.2f} ms")
    return lines


def process_name(result: dict[str, Any], number: int) -> str:
    """Processes that train side by side and know nothing of each other are all of rank 0."""
    return f"rank {result['rank']}" if result["world"] > 1 else f"process {number + 1}"


def breakdown(diagnosis: Diagnosis) -> list[tuple[str, float]]:
    """Phase and share, in the order of a step."""
    order = ("loader", "host_to_device", "forward", "backward", "optimizer", "other")
    return [
        (phase_name(name), diagnosis.breakdown[name]) for name in order if diagnosis.breakdown.get(name, 0) >= 0.0005
    ]


def memory(report: Report) -> list[str]:
    diagnosis = report.diagnosis
    if diagnosis is None or not diagnosis.peak:
        return []
    peaks = ", ".join(f"{phase} {bytes_text(size)}" for phase, size in diagnosis.peak.items())
    lines = [f"peak of live tensors: {peaks}"]
    if diagnosis.peak_by_category:
        worth = _worth_a_word(diagnosis.peak_by_category, max(diagnosis.peak.values()))
        lines.append("at the peak: " + ", ".join(f"{name} {bytes_text(size)}" for name, size in worth.items()))
    return lines


def _worth_a_word(sizes: dict[str, int], peak: int) -> dict[str, int]:
    """What holds a hundredth of the peak or more; the JSON has all of it."""
    kept = {name: size for name, size in sizes.items() if size >= LEAST_SHARE * peak}
    return kept or dict(list(sizes.items())[:1])


def memory_lines(diagnosis: Diagnosis) -> list[Hotspot]:
    """The lines that hold a hundredth of the peak or more, the largest first."""
    peak = max(diagnosis.peak.values(), default=0)
    return [hot for hot in diagnosis.memory_lines if hot.amount >= LEAST_SHARE * peak]


def loaders(report: Report) -> list[str]:
    evidence = report.evidence
    lines = []
    for loader in (evidence.first(evidence.broken_down) or evidence.first(evidence.timed) or {}).get("loaders", ()):
        later = loader["batches"] - len(loader["start_ns"])
        wait = f"{loader['wait_ns'] / later / 1e6:.2f} ms a batch" if later > 0 else "one batch only"
        start = sorted(loader["start_ns"])[len(loader["start_ns"]) // 2] / 1e6 if loader["start_ns"] else 0.0
        role = {"train": "training", "eval": "evaluation"}.get(loader["role"], "unused")
        lines.append(
            f"{role} loader {short(loader['site'][0], report)}:{loader['site'][1]}: waits {wait}, "
            f"{start:.0f} ms to its first batch "
            f"(num_workers={loader['workers']}, batch_size={loader['batch_size']})"
        )
    return lines


def collectives(report: Report) -> list[str]:
    """Collectives of rank 0 by line, each step."""
    result = report.evidence.first(report.evidence.observed)
    steps = report.evidence.collective_steps
    if result is None or not steps or result["world"] < 2:
        return []
    calls = result.get("collectives", ())[:6]
    told = [f"{c['what']} {c['calls'] / steps:.1f} ({short(c['file'], report)}:{c['line']})" for c in calls]
    return [f"collectives per step: {', '.join(told)}" if told else "no collective was called in the steps that ran"]


def comparisons(report: Report) -> list[str]:
    """How much the machine moved while runs were compared, and what that took."""
    made = report.comparisons
    if made is None:
        return []
    line = noise_line(made.noise) if made.noise is not None else ""
    return [*([line] if line else []), f"comparing took {made.seconds:.0f} s of a budget of {made.budget_s:.0f} s"]


def against(report: Report) -> list[str]:
    """What has become of the run since the report that --baseline names."""
    earlier = report.against
    if earlier is None:
        return []
    when = f" of {earlier.made_at}" if earlier.made_at else ""
    return [f"{earlier.said} {earlier.source}{when}", *earlier.lines()]


def what_if(report: Report) -> list[tuple[Tried, str, list[str]]]:
    """Of each candidate of `--try`: its row, what was measured, and the lines to change."""
    made = report.what_if
    if made is None:
        return []
    told = []
    for row in made.rows:
        lines = (
            [f"{short(edit.file, report)}:{edit_text(edit)}" for edit in row.candidate.edits] if row.measured else []
        )
        if row.measured and row.candidate.remark:
            lines.insert(0, f"({row.candidate.remark})")
        told.append((row, row_text(row), lines))
    return told


def searched(report: Report) -> list[str]:
    """What `--find-batch-size` and `--predict` found."""
    lines = batch_size.text_of(report.batch_search) if report.batch_search is not None else []
    if report.batch_search is not None:
        lines += [f"  {short(edit.file, report)}:{edit_text(edit)}" for edit in report.batch_search.edits]
    return lines + (predict.text_of(report.prediction) if report.prediction is not None else [])


def side_effects(report: Report) -> list[str]:
    effects = gather(report.outcomes)
    lines = []
    if effects.moved:
        made = ", ".join(f"{short(path, report)} ({bytes_text(size)})" for path, size in effects.moved[:6])
        more = f" and {len(effects.moved) - 6} more" if len(effects.moved) > 6 else ""
        lines.append(f"made in the project and taken away again: {made}{more}")
    if effects.redirected:
        copied = ", ".join(short(path, report) for path in effects.redirected[:6])
        lines.append(f"written to a copy, originals untouched: {copied}")
    if effects.kept:
        kept = ", ".join(f"{operation} {short(path, report)}" for path, operation in effects.kept[:6])
        lines.append(f"refused, though the script saw it done (all of it is still there): {kept}")
    if effects.refused:
        refused = ", ".join(f"{operation} {short(path, report)}" for path, operation in effects.refused[:6])
        lines.append(f"refused, with an error in the script: {refused}")
    if effects.elsewhere:
        lines.append(f"made outside the project and left there: {', '.join(effects.elsewhere[:6])}")
    if effects.commands:
        lines.append(f"other programs that the script ran, not guarded: {', '.join(effects.commands[:4])}")
    folders = sorted({str(Path(outcome.folder).parent) for outcome in report.outcomes if outcome.folder is not None})
    lines += [f"kept, with all that was written (--keep-run-dir): {folder}" for folder in folders]
    return lines


def utilisation(report: Report) -> list[str]:
    used = report.utilisation
    if used is None:
        return []
    parts = []
    if used.cpu is not None:
        parts.append(f"CPU {used.cpu:.0%} of {cores_text(report.host['cpus'])}")
    if used.others_cpus is not None and used.others_cpus >= WORTH_SAYING_CPUS:
        parts.append(f"other programs {used.others_cpus:.1f} of them")
    if used.memory_used is not None and used.memory_total:
        parts.append(f"memory {bytes_text(used.memory_used)} of {bytes_text(used.memory_total)}")
    if used.disk_read_bytes_per_s is not None:
        parts.append(f"disk reads {bytes_text(used.disk_read_bytes_per_s)}/s")
    if used.gpu is not None:
        parts.append(f"GPU {used.gpu:.0%}")
    return [f"machine while timing: {', '.join(parts)}"] if parts else []

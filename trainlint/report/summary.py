"""The last lines of a report for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trainlint.findings import Finding, Level
from trainlint.report.style import Style
from trainlint.result import FileResult


def summary(results: Sequence[FileResult], style: Style, fixed: int = 0) -> str:
    """What was found (or is left, where `fixed` were repaired), what is hidden, what can be fixed."""
    findings = [finding for result in results for finding in result.findings]
    lines = []
    if fixed:
        lines.append(style.good(f"Fixed {count_of(fixed, 'finding')}."))
    if findings:
        levels = [(level, sum(finding.level is level for finding in findings)) for level in reversed(Level)]
        parts = [style.level(level, count_of(count, level.label)) for level, count in levels if count]
        files = sum(bool(result.findings) for result in results)
        found = style.bold(f"{'Left' if fixed else 'Found'} {count_of(len(findings), 'finding')}")
        lines.append(f"{found} ({', '.join(parts)}) in {count_of(files, 'file')}.")
    elif not any(result.fault for result in results):
        lines.append(style.good("All checks passed!"))
    hidden = sum(len(result.hidden) for result in results)
    if hidden:
        verb = "is" if hidden == 1 else "are"
        lines.append(
            f"{hidden} more of level advice {verb} not shown (--pedantic shows {'it' if hidden == 1 else 'them'})."
        )
    line = fixable(findings)
    if line:
        lines.append(line)
    return "\n".join(lines)


def fixable(findings: Iterable[Finding]) -> str:
    """ "" when nothing can be fixed."""
    fixes = [finding.fix for finding in findings if finding.fix is not None]
    safe = sum(fix.safe for fix in fixes)
    unsafe = len(fixes) - safe
    if safe and unsafe:
        return f"[*] {safe} fixable with `--fix` ({unsafe} more with `--fix --unsafe-fixes`)."
    if safe:
        return f"[*] {safe} fixable with `--fix`."
    if unsafe:
        return f"No safe fixes; {unsafe} fixable with `--fix --unsafe-fixes`."
    return ""


def count_of(count: int, noun: str) -> str:
    """ "1 file", "2 files"; advice has no plural."""
    return f"{count} {noun}" if count == 1 or noun == "advice" else f"{count} {noun}s"

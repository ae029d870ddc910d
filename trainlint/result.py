"""What became of one file: the engine's answer, the reports' input."""

from __future__ import annotations

from trainlint.findings import Finding
from trainlint.records import NamedTuple
from trainlint.settings import Settings
from trainlint.source import Source


class FileResult(NamedTuple):
    path: str  # absolute, or "-"
    settings: Settings
    findings: tuple[Finding, ...] = ()  # those to show, sorted
    source: Source | None = None  # None when it could not be read, or nothing was to be said about it
    hidden: tuple[Finding, ...] = ()  # of level advice, where that is not shown
    suppressed: tuple[Finding, ...] = ()  # by a comment
    fault: str | None = None  # an internal fault: its traceback

    @property
    def fails(self) -> bool:
        """Whether a finding reaches `fail-on`."""
        return any(finding.level >= self.settings.fail_on for finding in self.findings)

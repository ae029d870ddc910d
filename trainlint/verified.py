"""What `trainlint verify` measured of findings, read from its JSON report: matched by fingerprint, so that lines above a
finding may come and go. Only read with `--verified`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any

from trainlint.findings import Finding
from trainlint.records import NamedTuple

SCHEMA = "trainlint-verify/1"
_METRICS = {
    "step_time": "step time",
    "sample_time": "time per sample",
    "train_peak_bytes": "peak memory in training",
    "eval_peak_bytes": "peak memory in evaluation",
    "growth_per_step": "memory growth",
    "growth_per_eval_batch": "memory growth in evaluation",
}
_ORDER = {"confirmed": 0, "inconclusive": 2, "not_run": 3, "refuted": 5}
_NOT_IN_REPORT = 4


class VerifiedError(Exception):
    """The report cannot be read. Its text says why."""


class Measured(NamedTuple):
    """One finding's answer. `saving`, `low`, `high`: shares of `metric` that the change saves, where one was compared."""

    verdict: str
    why: str
    metric: str
    saving: float | None
    low: float | None
    high: float | None
    stale: bool  # the file is another one than was measured

    def short(self) -> str:
        """For the end of a line."""
        said = self.verdict.replace("_", " ")
        if self.saving is not None and self.verdict != "not_run":
            said += f": {_percent(self.saving)} % of {_METRICS.get(self.metric, self.metric)}"
            if self.low is not None and self.high is not None:
                said += f" [{_percent(self.low)}, {_percent(self.high)}]"
        return f"{said}, before the file changed" if self.stale else said

    def long(self) -> str:
        said = f"{self.verdict.replace('_', ' ')}: {self.why}"
        return f"{said} (measured before the file changed)" if self.stale else said

    def as_object(self) -> dict[str, Any]:
        interval = None if self.low is None or self.high is None else [self.low, self.high]
        return {
            "verdict": self.verdict,
            "why": self.why,
            "metric": self.metric,
            "saving": self.saving,
            "interval": interval,
            "stale": self.stale,
        }


class Verified:
    """A report of `trainlint verify`."""

    def __init__(self, name: str, report: dict[str, Any]) -> None:
        self.name = name
        self.made_at = str(report.get("made_at") or "")
        self._files: dict[str, str] = dict(report.get("files") or {})
        self._entries: dict[str, dict[str, Any]] = {}
        for entry in report.get("not_run") or []:
            self._entries[entry["id"]] = {**entry, "verdict": "not_run", "why": entry["reason"]}
        for entry in report.get("findings") or []:
            self._entries[entry["id"]] = entry
        self._entries.pop(None, None)  # type: ignore[call-overload]  # a finding that had no fingerprint
        self._changed: dict[tuple[str, str], bool] = {}

    def of(self, finding: Finding) -> Measured | None:
        entry = self._entries.get(finding.fingerprint)
        if entry is None:
            return None
        effect = entry.get("effect") or {}
        low, high = effect.get("interval") or (None, None)
        return Measured(
            verdict=entry["verdict"],
            why=entry["why"],
            metric=str(effect.get("metric") or (entry.get("claim") or {}).get("metric") or ""),
            saving=effect.get("saving"),
            low=low,
            high=high,
            stale=self._has_changed(entry["file"], finding.path),
        )

    def order(self, finding: Finding) -> tuple[int, float]:
        """What costs most comes first, what was refuted last."""
        measured = self.of(finding)
        if measured is None:
            return _NOT_IN_REPORT, 0.0
        rank = _ORDER.get(measured.verdict, _NOT_IN_REPORT)
        if measured.verdict == "confirmed" and measured.saving is None:
            rank = 1  # counted, and no cost was measured
        return rank, -(measured.saving or 0.0)

    def remarks(self, findings: Iterable[Finding], checked: Iterable[str]) -> list[str]:
        """What makes the report old. `findings`: all that the check found, those that are not shown too; `checked`:
        paths of the files that were checked.
        """
        found = list(findings)
        paths = set(checked)
        here = {finding.fingerprint: finding.path for finding in found}
        renamed = {entry["file"]: here[key] for key, entry in self._entries.items() if key in here}
        where = {file: renamed.get(file, file) for file in self._files}
        changed = sorted(now for file, now in where.items() if now in paths and self._has_changed(file, now))
        gone = [key for key, entry in self._entries.items() if key not in here and where.get(entry["file"]) in paths]
        of = f"{self.name}{f', measured {self.made_at}' if self.made_at else ''}"
        remarks = []
        if changed:
            names = ", ".join(os.path.relpath(path) for path in changed)
            verb = "has" if len(changed) == 1 else "have"
            remarks.append(f"{of}: {names} {verb} changed since; run `trainlint verify` again.")
        if gone:
            noun = "finding" if len(gone) == 1 else "findings"
            remarks.append(
                f"{of}: {len(gone)} measured {noun} of it {'is' if len(gone) == 1 else 'are'} not there any more."
            )
        new = sum(finding.fingerprint not in self._entries for finding in found if finding.path in paths)
        if new:
            remarks.append(f"{new} {'finding is' if new == 1 else 'findings are'} not in {self.name}.")
        return remarks

    def _has_changed(self, file: str, now: str) -> bool:
        """Whether `now` holds another text than `file` did when it was measured. Not known: no."""
        key = (file, now)
        if key not in self._changed:
            recorded = self._files.get(file)
            self._changed[key] = recorded is not None and _digest(now) not in (recorded, None)
        return self._changed[key]


def read(path: str) -> Verified:
    """Raises VerifiedError."""
    try:
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
    except OSError as error:
        raise VerifiedError(f"{path} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise VerifiedError(f"{path} is no JSON: {error}") from None
    schema = report.get("schema") if isinstance(report, dict) else None
    if schema != SCHEMA:
        named = f"schema {schema}" if schema else "no report of trainlint verify"
        raise VerifiedError(f"{path} is {named}; `trainlint verify --output-format json` writes {SCHEMA}")
    try:
        return Verified(path, report)
    except (KeyError, TypeError, AttributeError) as error:
        raise VerifiedError(f"{path} is not as {SCHEMA} should be ({error!r})") from None


def _digest(path: str) -> str | None:
    import hashlib

    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return None


def _percent(share: float) -> str:
    value = 100 * share
    return f"{value:.0f}" if abs(value) >= 9.95 else f"{value:.1f}"

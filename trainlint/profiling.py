"""Where the time of a run goes, rule by rule: for `trainlint check --profile-rules`. A run without it does not import this."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from trainlint.records import NamedTuple
from trainlint.result import FileResult
from trainlint.rules.registry import index, load
from trainlint.rules.rule import Hit, Rule
from trainlint.semantic.script import Script


class Spent(NamedTuple):
    """What a rule has cost: CPU time in seconds, and how many files it was asked about."""

    seconds: float = 0.0
    calls: int = 0


class Profile:
    """The costs of a run by code. `total` is the CPU time of the whole run, in seconds."""

    def __init__(self) -> None:
        self.rules: dict[str, Spent] = {}
        self.total = 0.0

    def add(self, code: str, seconds: float) -> None:
        spent = self.rules.get(code, Spent())
        self.rules[code] = Spent(spent.seconds + seconds, spent.calls + 1)


@contextmanager
def profiled() -> Iterator[Profile]:
    """Times every rule until the end of the block.

    All rules are imported before, so that no rule pays for the modules that it shares with others.
    """
    profile = Profile()
    rules = [load(code) for code in index()]
    for rule in rules:
        vars(rule)["check"] = _timed(rule, profile)  # goes before the method of its class
    begin = time.process_time()
    try:
        yield profile
    finally:
        profile.total = time.process_time() - begin
        for rule in rules:
            del vars(rule)["check"]


def _timed(rule: Rule, profile: Profile) -> Callable[[Script], Iterator[Hit]]:
    check = rule.check

    def timed(script: Script) -> Iterator[Hit]:
        begin = time.thread_time()
        try:
            hits = list(check(script))
        finally:
            profile.add(rule.code, time.thread_time() - begin)
        return iter(hits)

    return timed


def profile_as_text(profile: Profile, results: Sequence[FileResult]) -> str:
    """A table of the rules, the dearest first."""
    found: dict[str, int] = {}
    for result in results:
        for finding in (*result.findings, *result.hidden, *result.suppressed):
            found[finding.code] = found.get(finding.code, 0) + 1
    entries = index()
    rows = sorted(profile.rules.items(), key=lambda row: (-row[1].seconds, row[0]))
    lines = [f"{'ms':>10}  {'share':>6}  {'calls':>7}  {'findings':>8}  rule"]
    total = profile.total or 1e-9
    for code, spent in rows:
        lines.append(
            _row(spent.seconds, total, str(spent.calls), str(found.get(code, 0)), f"{code} {entries[code].name}")
        )
    rest = profile.total - sum(spent.seconds for spent in profile.rules.values())
    lines.append(_row(rest, total, "", "", "all else: reading, parsing, linking, placing findings"))
    lines.append(_row(profile.total, total, "", str(sum(found.values())), "in all, CPU time"))
    lines.append(
        "What several rules ask of the model is worked out once, at the cost of the rule that is the first to ask."
    )
    return "\n".join(lines)


def _row(seconds: float, total: float, calls: str, findings: str, name: str) -> str:
    return f"{1000 * seconds:>10.1f}  {seconds / total:>6.1%}  {calls:>7}  {findings:>8}  {name}"

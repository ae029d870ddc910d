"""The time of each rule, from `trainlint check --profile-rules`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from benchmarks.running import output
from benchmarks.tools import Installed

_ROW = re.compile(r"^ *([\d.]+)  +([\d.]+)%  +(\d+)  +(\d+)  (TL\d+) (\S+)$", re.MULTILINE)
_REST = re.compile(r"^ *(-?[\d.]+)  +-?[\d.]+% .*  all else", re.MULTILINE)


class RuleTime(NamedTuple):
    code: str
    name: str
    milliseconds: float
    share: float  # of the whole run, in per cent
    calls: int
    findings: int


class RuleTimes(NamedTuple):
    """The dearest rule first. `rest` is the time of all that is not a rule, in milliseconds."""

    rules: list[RuleTime]
    rest: float


def rule_times(trainlint: Installed, folder: Path, seconds: float = 3600) -> RuleTimes:
    """Raises Failed."""
    command = trainlint.command("--profile-rules", "--quiet", ".", arguments=("check", "--isolated"))
    return read_table(output(command, folder, trainlint.tool.accepted, seconds)[1])


def read_table(text: str) -> RuleTimes:
    rows = [
        RuleTime(row[5], row[6], float(row[1]), float(row[2]), int(row[3]), int(row[4])) for row in _ROW.finditer(text)
    ]
    rest = _REST.search(text)
    return RuleTimes(rows, float(rest[1]) if rest else 0.0)

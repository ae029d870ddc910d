"""Findings -> the launches that answer them, and what is not answered."""

from __future__ import annotations

from dataclasses import dataclass, replace

from runtime_check.claims import EXPERIMENTS
from runtime_check.findings import Finding
from runtime_check.launch import Pass

OBSERVE = Pass("observe", ("syncs", "behaviours", "lines"), until_eval=True)
MEMORY = Pass("memory", ("memory",), until_eval=True)
BREAKDOWN = Pass("breakdown", ("breakdown",), until_eval=True)
TIMING = Pass("timing")
SPAWN = Pass("spawn", start_method="spawn", few_steps=True)


@dataclass(frozen=True)
class Plan:
    """Launches in order.

    Observing comes first, so that downloads and caches are warm before anything is timed; timing comes next, so that it
    is not what falls to a timeout.
    """

    passes: tuple[Pass, ...]
    answered: tuple[Finding, ...]
    not_run: tuple[Finding, ...]


def make_plan(findings: list[Finding], parts: bool = False, short: bool = False) -> Plan:
    """`parts`: what the script is made of is looked at too (for candidates). `short`: no more than the clock needs."""
    answered = tuple(finding for finding in findings if finding.code in EXPERIMENTS)
    not_run = tuple(finding for finding in findings if finding.code not in EXPERIMENTS)
    observe = replace(OBSERVE, instruments=(*OBSERVE.instruments, "parts")) if parts else OBSERVE
    passes = [observe, TIMING] if short and not findings else [observe, TIMING, MEMORY, BREAKDOWN]
    if any(EXPERIMENTS[finding.code] == "spawn" for finding in answered):
        passes.append(SPAWN)
    return Plan(tuple(passes), answered, not_run)

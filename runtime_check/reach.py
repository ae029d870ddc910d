"""Was the line of a finding reached at all? What was not reached is neither confirmed nor refuted."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from runtime_check.evidence import Answer, Evidence, Verdict
from runtime_check.findings import Finding

#: Experiments that judge the line itself, in the script's own process.
JUDGE_A_LINE = frozenset({"syncs", "housekeeping", "collectives", "dropout_in_evaluation", "crash"})

#: Of these, the ones that only the line itself can answer: that its loop ran is not enough.
NEED_THE_LINE = frozenset({"crash"})

#: Raised in a loader's worker process, which is not traced.
IN_WORKERS = frozenset({"TL313"})

LONGEST_STATEMENT = 50  # lines of a statement that are looked at


@dataclass(frozen=True)
class Around:
    """First lines of the statements that stand beside a line, in the innermost loop or function around it."""

    rows: frozenset[int]
    is_loop: bool


@dataclass(frozen=True)
class Reach:
    """How often the line ran, and on how many steps anything around it did. `around`: it did at all."""

    runs: int
    around: bool
    turns: int  # of what is around
    steps_around: int
    in_loop: bool


def rows_to_watch(findings: Iterable[Finding]) -> dict[str, list[int]]:
    """Path -> lines: of the findings, and of the statements in the innermost loop or function around them."""
    watched: dict[str, set[int]] = {}
    for finding in findings:
        rows = watched.setdefault(finding.path, set())
        rows.update(_own_rows(finding))
        rows.update(_around(finding).rows)
    return {path: sorted(rows) for path, rows in watched.items()}


def reach(finding: Finding, evidence: Evidence) -> Reach | None:
    """None: not known, because the script traces itself or nothing was observed."""
    known = False
    runs, turns, steps_around = 0, 0, 0
    own, others = set(_own_rows(finding)), _around(finding)
    for result in evidence.ranks(evidence.observed):
        for path, row, times, steps in result.get("lines") or ():
            known = True
            if path == finding.path and row in own:
                runs = max(runs, times)
            if path == finding.path and row in others.rows:
                turns, steps_around = max(turns, times), max(steps_around, steps)
    return Reach(runs, turns > 0 or runs > 0, turns, steps_around, others.is_loop) if known else None


def judged_by_reach(finding: Finding, answer: Answer, experiment: str, evidence: Evidence) -> Answer:
    """Takes back a refutation of what never ran, or of what stands in a loop that is not the one over steps."""
    if answer.verdict is not Verdict.REFUTED or experiment not in JUDGE_A_LINE or finding.code in IN_WORKERS:
        return answer
    found = reach(finding, evidence)
    if found is None:
        return answer
    if not found.around or (not found.runs and experiment in NEED_THE_LINE):
        why = f"line {finding.row} was not reached in the steps that ran"
        return replace(answer, verdict=Verdict.INCONCLUSIVE, why=why)
    steps = evidence.observed_steps
    # Of several evaluations, the batches of the others say nothing of a line that ran on each turn of its own.
    apart = not answer.evidence.get("eval_batches_seen") or found.runs * 2 >= found.turns
    if experiment == "syncs" and found.in_loop and found.steps_around * 2 < steps and apart:
        why = f"the loop around line {finding.row} ran on {found.steps_around} of {steps} steps: it is not the one over steps"
        return replace(answer, verdict=Verdict.INCONCLUSIVE, why=why)
    return answer


def _own_rows(finding: Finding) -> range:
    return range(finding.row, min(finding.end_row, finding.row + LONGEST_STATEMENT) + 1)


def _around(finding: Finding) -> Around:
    try:
        tree: ast.AST = ast.parse(Path(finding.path).read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return Around(frozenset(), False)
    body: list[ast.stmt] = list(getattr(tree, "body", ()))
    is_loop = False
    for node in ast.walk(tree):  # outer nodes come before inner ones
        if isinstance(node, (ast.For, ast.AsyncFor, ast.While, ast.FunctionDef, ast.AsyncFunctionDef)) and (
            node.body[0].lineno <= finding.row <= (node.body[-1].end_lineno or 0)
        ):
            body = node.body
            is_loop = not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    return Around(frozenset(statement.lineno for statement in body), is_loop)

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
class Reach:
    """How often the line ran, and whether anything of the innermost loop or function around it did."""

    runs: int
    around: bool


def rows_to_watch(findings: Iterable[Finding]) -> dict[str, list[int]]:
    """Path -> lines: of the findings, and of the statements in the innermost loop or function around them."""
    watched: dict[str, set[int]] = {}
    for finding in findings:
        rows = watched.setdefault(finding.path, set())
        rows.update(_own_rows(finding))
        rows.update(rows_around(finding))
    return {path: sorted(rows) for path, rows in watched.items()}


def reach(finding: Finding, evidence: Evidence) -> Reach | None:
    """None: not known, because the script traces itself or nothing was observed."""
    known = False
    runs, around = 0, False
    own, others = set(_own_rows(finding)), rows_around(finding)
    for result in evidence.ranks(evidence.observed):
        for path, row, times, _ in result.get("lines") or ():
            known = True
            if path != finding.path:
                continue
            if row in own:
                runs = max(runs, times)
            around = around or row in others
    return Reach(runs, around or runs > 0) if known else None


def judged_by_reach(finding: Finding, answer: Answer, experiment: str, evidence: Evidence) -> Answer:
    """Takes back a refutation of what never ran."""
    if answer.verdict is not Verdict.REFUTED or experiment not in JUDGE_A_LINE or finding.code in IN_WORKERS:
        return answer
    found = reach(finding, evidence)
    if found is None or found.runs or (found.around and experiment not in NEED_THE_LINE):
        return answer
    why = f"line {finding.row} was not reached in the steps that ran"
    return replace(answer, verdict=Verdict.INCONCLUSIVE, why=why)


def _own_rows(finding: Finding) -> range:
    return range(finding.row, min(finding.end_row, finding.row + LONGEST_STATEMENT) + 1)


def rows_around(finding: Finding) -> frozenset[int]:
    """First lines of the statements that stand beside the finding's, in the innermost loop or function around it."""
    try:
        tree: ast.AST = ast.parse(Path(finding.path).read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return frozenset()
    body: list[ast.stmt] = list(getattr(tree, "body", ()))
    for node in ast.walk(tree):  # outer nodes come before inner ones
        if isinstance(node, (ast.For, ast.AsyncFor, ast.While, ast.FunctionDef, ast.AsyncFunctionDef)) and (
            node.body[0].lineno <= finding.row <= (node.body[-1].end_lineno or 0)
        ):
            body = node.body
    return frozenset(statement.lineno for statement in body)

"""What identifies a finding when the file around it changes."""

from __future__ import annotations

from trainlint.findings import Claim, Finding, Level, Place
from trainlint.fingerprints import with_fingerprints

FINDING = Finding(
    "TL101", "item-in-hot-loop", Level.WARNING, Claim.SYNC, "message", "why", "help", "/project/a/train.py",
    Place(9, 5, 9, 16), scope="train", statement="total += loss.item()",
)  # fmt: skip


def fingerprint(finding: Finding, project: str = "/project") -> str:
    return with_fingerprints([finding], project)[0].fingerprint


def test_stays_when_lines_move_and_the_wording_changes() -> None:
    moved = FINDING._replace(place=Place(90, 9, 90, 20), message="other", level=Level.ADVICE)
    spaced = FINDING._replace(statement="total  +=   loss.item()")
    elsewhere = FINDING._replace(path="/home/x/a/train.py")
    assert fingerprint(FINDING) == fingerprint(moved) == fingerprint(spaced) == fingerprint(elsewhere, "/home/x")


def test_changes_with_code_file_scope_and_statement() -> None:
    others = [
        FINDING._replace(code="TL103"),
        FINDING._replace(path="/project/b/train.py"),
        FINDING._replace(scope="validate"),
        FINDING._replace(statement="total += other.item()"),
    ]
    assert len({fingerprint(FINDING), *map(fingerprint, others)}) == 5


def test_equal_statements_are_told_apart_by_their_order() -> None:
    first, second = with_fingerprints([FINDING, FINDING], "/project")
    assert first.fingerprint == fingerprint(FINDING)
    assert second.fingerprint != first.fingerprint

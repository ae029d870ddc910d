"""The text that a finding's fix would make, from the edits in its JSON. Pure but for reading the file."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path
from typing import Any

from runtime_check.findings import Finding

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+\Z")


def fixed_source(finding: Finding) -> dict[str, str] | None:
    """Path -> text with the fix applied; None where there is no fix, or none that makes a Python file."""
    fix = finding.fix
    if not fix or not fix.get("edits") or not finding.path.endswith(".py"):
        return None
    text = read_text(finding.path)
    if text is None:
        return None
    try:
        fixed = apply_edits(text, fix["edits"])
        ast.parse(fixed)
    except (SyntaxError, ValueError, KeyError, IndexError, TypeError, RecursionError):
        return None
    return {finding.path: fixed} if fixed != text else None


def read_text(path: str) -> str | None:
    try:
        data = Path(path).read_bytes()
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        return data.decode(encoding)
    except (OSError, SyntaxError, UnicodeDecodeError, LookupError):
        return None


def apply_edits(text: str, edits: list[dict[str, Any]]) -> str:
    """Rows and columns count from 1, ends are exclusive. Raises ValueError where edits overlap or lie outside."""
    starts = [0]
    for line in _LINE.finditer(text):
        starts.append(line.end())

    def offset(place: dict[str, int]) -> int:
        row, column = place["row"], place["column"]
        if not 1 <= row <= len(starts):
            raise ValueError(f"no row {row}")
        at = starts[row - 1] + column - 1
        if not 0 <= at <= len(text):
            raise ValueError(f"no column {column} in row {row}")
        return at

    spans = sorted((offset(e["location"]), offset(e["end_location"]), e["content"]) for e in edits)
    pieces, done = [], 0
    for begin, end, content in spans:
        if begin < done or end < begin:
            raise ValueError("edits overlap")
        pieces += [text[done:begin], content]
        done = end
    return "".join([*pieces, text[done:]])


def steers(path: str, first: int, last: int) -> bool:
    """Does what stands on these lines decide what the script does: the test of an if, a while or an assert?

    Where the file cannot be read it is taken to.
    """
    text = read_text(path)
    try:
        tree = ast.parse(text or "(")
    except (SyntaxError, ValueError, RecursionError):
        return True
    tests = (node.test for node in ast.walk(tree) if isinstance(node, (ast.If, ast.While, ast.IfExp, ast.Assert)))
    return any(test.lineno <= last and first <= (test.end_lineno or test.lineno) for test in tests)

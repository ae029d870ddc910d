"""Text edits of a file: which go together, what they make of it, and whether they changed nothing else."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence

from trainlint.findings import Edit, Finding, Fix
from trainlint.records import NamedTuple
from trainlint.source import Source


class Patch(NamedTuple):
    """The fix of one finding, as (start, end, content) of the text."""

    code: str
    row: int
    message: str
    changes: tuple[tuple[int, int, str], ...]


class Applied(NamedTuple):
    text: str
    changes: tuple[tuple[int, int, str], ...]
    done: tuple[Patch, ...]
    left: tuple[Patch, ...]  # overlap with what was done: the next round looks at them again
    dropped: tuple[Patch, ...]  # would have changed more than they may


def chosen(finding: Finding, unsafe: bool) -> Fix | None:
    """The fix that a run applies."""
    fix = finding.fix
    if fix is None or not (fix.safe or unsafe):
        return None
    return fix.instead if unsafe and fix.instead is not None else fix


def patch_of(finding: Finding, fix: Fix, source: Source) -> Patch:
    changes = sorted((*_span(edit, source), edit.content) for edit in fix.edits)
    return Patch(finding.code, finding.place.row, fix.message, tuple(changes))


def _span(edit: Edit, source: Source) -> tuple[int, int]:
    place = edit.place
    return source.offset(place.row, place.column), source.offset(place.end_row, place.end_column)


def apply(text: str, patches: Sequence[Patch]) -> Applied:
    """One round: every patch that does not touch an earlier one. A patch that is not clean is dropped."""
    taken: list[Patch] = []
    left: list[Patch] = []
    used: set[tuple[int, int, str]] = set()
    for patch in patches:
        new = [change for change in patch.changes if change not in used or not _is_import(change)]
        if any(_touch(change, other) for change in new for other in used) or any(_cross(patch, o, text) for o in taken):
            left.append(patch)
        else:
            taken.append(patch)
            used.update(new)
    result = changed(text, used)
    if not taken or is_clean(text, result, sorted(used)):
        return Applied(result, tuple(sorted(used)), tuple(taken), tuple(left), ())
    good: list[Patch] = []
    dropped: list[Patch] = []
    used = set()
    for patch in taken:  # which of them was it?
        more = used | set(patch.changes)
        if is_clean(text, changed(text, more), sorted(more)):
            good.append(patch)
            used = more
        else:
            dropped.append(patch)
    return Applied(changed(text, used), tuple(sorted(used)), tuple(good), tuple(left), tuple(dropped))


def _is_import(change: tuple[int, int, str]) -> bool:
    """Several fixes may add the same import: it is added once."""
    return change[0] == change[1] and change[2].strip().startswith("import ")


def _touch(one: tuple[int, int, str], other: tuple[int, int, str]) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]


def _cross(one: Patch, other: Patch, text: str) -> bool:
    """Whether one adds rows among those that the other one indents: they would stand at the old depth."""
    return _adds_rows_in(one, _indented(other, text)) or _adds_rows_in(other, _indented(one, text))


def _indented(patch: Patch, text: str) -> tuple[int, int] | None:
    """From the first to the end of the last row that gets more white space."""
    deeper = [c for c in patch.changes if c[2] and not re.split("[\r\n]", c[2])[-1].strip(" \t") and c[2][-1] in " \t"]
    if not deeper:
        return None
    end = re.compile(r"[\r\n]|\Z").search(text, deeper[-1][1])
    return deeper[0][0], end.start() if end else len(text)


def _adds_rows_in(patch: Patch, span: tuple[int, int] | None) -> bool:
    if span is None:
        return False
    return any(("\n" in c or "\r" in c) and span[0] <= start <= span[1] for start, _, c in patch.changes)


def changed(text: str, changes: Iterable[tuple[int, int, str]]) -> str:
    """The text with changes that do not overlap."""
    parts: list[str] = []
    at = 0
    for start, end, content in sorted(changes):
        parts += (text[at:start], content)
        at = end
    parts.append(text[at:])
    return "".join(parts)


# --------------------------------------------------------------------------------------------------------- safety


def is_clean(old: str, new: str, changes: Sequence[tuple[int, int, str]]) -> bool:
    """Whether the new text parses, and differs in no statement but those that a change touches."""
    spans_before = [(start, end) for start, end, _ in changes]
    spans_after: list[tuple[int, int]] = []
    shift = 0
    for start, end, content in changes:
        spans_after.append((start + shift, start + shift + len(content)))
        shift += len(content) - (end - start)
    try:
        before = _parse(old)
    except (SyntaxError, ValueError, RecursionError):
        return _is_clean_newer(old, spans_before, new, spans_after)
    try:
        return _untouched(before, old, spans_before) == _untouched(_parse(new), new, spans_after)
    except (SyntaxError, ValueError, RecursionError):
        return False


def _is_clean_newer(
    old: str, spans_before: Sequence[tuple[int, int]], new: str, spans_after: Sequence[tuple[int, int]]
) -> bool:
    """As `is_clean`, where the running Python does not know the syntax of the file yet."""
    from trainlint.newer_edits import untouched

    before = untouched(old, spans_before)
    return before is not None and before == untouched(new, spans_after)


def _parse(text: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text)


def _untouched(tree: ast.Module, text: str, spans: Sequence[tuple[int, int]]) -> list[str]:
    """The statements that no span touches, of a compound statement its header, each with its depth."""
    offsets = _Offsets(text)
    found: list[str] = []
    for depth, statement in _statements(tree.body, 0):
        start, end = _own_part(statement, offsets)
        code, row = offsets.code_of(statement.lineno), offsets.of(statement.lineno, 0)
        if start > code and any(first <= code and row <= last for first, last in spans):
            start = row  # it stands behind another statement, and is indented with it
        if not any(start <= last and first <= end for first, last in spans):
            found.append(f"{depth} {_header(statement)}")
    return found


def _statements(body: Sequence[ast.stmt], depth: int) -> Iterator[tuple[int, ast.stmt]]:
    for statement in body:
        yield depth, statement
        for block in _blocks(statement):
            yield from _statements(block, depth + 1)


def _blocks(statement: ast.AST) -> Iterator[list[ast.stmt]]:
    for name in ("body", "handlers", "cases", "orelse", "finalbody"):
        block = getattr(statement, name, None)
        if not isinstance(block, list):
            continue
        if name in ("handlers", "cases"):
            for part in block:
                yield part.body
        else:
            yield block


def _own_part(statement: ast.stmt, offsets: _Offsets) -> tuple[int, int]:
    start = offsets.of(statement.lineno, statement.col_offset)
    for decorator in getattr(statement, "decorator_list", ()):
        start = min(start, offsets.sign_before("@", offsets.of(decorator.lineno, decorator.col_offset)))
    first = next((block[0] for block in _blocks(statement) if block), None)
    if first is None:
        return start, offsets.of(statement.end_lineno or 0, statement.end_col_offset or 0)
    end, _ = _own_part(first, offsets)
    return start, max(start, end - 1)


def _header(statement: ast.stmt) -> str:
    """What a statement says, without the statements in its blocks."""
    if next(_blocks(statement), None) is None:
        return ast.dump(statement)
    parts = [type(statement).__name__]
    for name, value in ast.iter_fields(statement):
        if name in ("body", "orelse", "finalbody"):
            parts.append(f"{name}:{bool(value)}")
        elif name == "handlers":
            parts += [f"{h.name}:{ast.dump(h.type) if h.type else None}" for h in value]
        elif name == "cases":
            parts += [f"{ast.dump(c.pattern)}:{ast.dump(c.guard) if c.guard else None}" for c in value]
        elif isinstance(value, list):
            parts += [ast.dump(v) if isinstance(v, ast.AST) else repr(v) for v in value]
        else:
            parts.append(ast.dump(value) if isinstance(value, ast.AST) else repr(value))
    return " ".join(parts)


class _Offsets:
    """`ast` counts UTF-8 bytes within a row."""

    def __init__(self, text: str) -> None:
        self._source = Source("", text)

    def of(self, row: int, column: int) -> int:
        start = self._source.row_starts[row - 1]
        line = self._source.line(row)
        return start + (column if line.isascii() else len(line.encode()[:column].decode(errors="replace")))

    def code_of(self, row: int) -> int:
        """Where the code of a row begins."""
        line = self._source.line(row)
        return self._source.row_starts[row - 1] + len(line) - len(line.lstrip())

    def sign_before(self, sign: str, offset: int) -> int:
        return self._source.text.rindex(sign, 0, offset)

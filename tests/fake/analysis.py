"""A stand-in for `trainlint.analysis`, with three simple rules."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from trainlint.findings import Claim, Edit, Finding, Fix, Level, Place, Related
from trainlint.rules.rule import Rule
from trainlint.settings import Settings
from trainlint.source import NotChecked, Source


class Analysis:
    """`.item()` in a for loop is TL101, `DataParallel(...)` is TL501, `persistent()` is TL305 of level advice."""

    def __init__(self, settings: Settings, *, neighbours: object = None) -> None:
        self.settings = settings

    held = 0

    def rest(self) -> None:
        pass

    def speaks_near(self, source: Source, words: tuple[bytes, ...]) -> bool:
        return True

    def check(self, source: Source, rules: Sequence[Rule]) -> list[Finding]:
        try:
            tree = ast.parse(source.text)
        except SyntaxError as error:
            raise NotChecked(f"syntax error: {error.msg}", error.lineno or 1, error.offset or 1) from None
        if "raise an internal fault" in source.text:
            raise RuntimeError("a mistake in a rule")
        found: list[Finding] = []
        self._visit(source, tree, None, "", found)
        return found

    def why(self, source: Source, row: int, rules: Sequence[Rule]) -> str:
        if not source.line(row).strip():
            raise NotChecked("nothing stands there", row)
        return f"line {row}: {source.line(row).strip()}"

    def _visit(self, source: Source, node: ast.AST, loop: ast.For | None, scope: str, found: list[Finding]) -> None:
        for child in ast.iter_child_nodes(node):
            inner, name = loop, scope
            if isinstance(child, ast.For):
                inner = child
            if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
                name = f"{scope}.{child.name}".strip(".")
            if isinstance(child, ast.stmt) and not isinstance(child, (ast.For, ast.FunctionDef, ast.ClassDef)):
                for call in ast.walk(child):
                    if isinstance(call, ast.Call):
                        finding = _finding(source, call, child, loop, scope)
                        if finding is not None:
                            found.append(finding)
            else:
                self._visit(source, child, inner, name, found)


def _finding(source: Source, call: ast.Call, statement: ast.stmt, loop: ast.For | None, scope: str) -> Finding | None:
    called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    related: tuple[Related, ...] = ()
    fix = None
    if called == "item" and loop is not None:
        code, name, level, claim = "TL101", "item-in-hot-loop", Level.WARNING, Claim.SYNC
        message = f"`{ast.unparse(call)}` runs on every step of the batch loop"
        why = "the CPU waits here until the GPU has finished all work queued so far"
        help = "add up on the device with `.detach()` and call `.item()` once after the loop"
        header = Place(loop.lineno, loop.col_offset + 1, loop.lineno, len(source.line(loop.lineno)) + 1)
        related = (Related(source.path, header, "the batch loop"),)
        row, column = call.end_lineno or 0, call.end_col_offset or 0
        end = Place(row, column - 5, row, column - 1)
        fix = Fix(False, "Keep the value on the device", (Edit(end, "detach"),))
    elif called == "DataParallel":
        code, name, level, claim = "TL501", "data-parallel", Level.WARNING, Claim.TIME
        message = "`DataParallel` copies the model to every GPU on each step"
        why, help = "one process feeds all GPUs and gathers on the first", "use `DistributedDataParallel`"
    elif called == "persistent":
        code, name, level, claim = "TL305", "persistent-workers-missing", Level.ADVICE, Claim.LOADER
        message, why, help = "workers start anew each epoch", "starting them takes time", "`persistent_workers=True`"
    else:
        return None
    place = Place(
        call.lineno,
        _column(source, call.lineno, call.col_offset),
        call.end_lineno or 0,
        _column(source, call.end_lineno or 0, call.end_col_offset or 0),
    )
    return Finding(
        code, name, level, claim, message, why, help, source.path, place, related, fix,
        anchor_rows=(statement.lineno, statement.end_lineno or statement.lineno),
        scope=scope,
        statement=" ".join(source.line(statement.lineno).split()),
    )  # fmt: skip


def _column(source: Source, row: int, offset: int) -> int:
    """`ast` counts bytes, we count characters."""
    return len(source.line(row).encode()[:offset].decode()) + 1

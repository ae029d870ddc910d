"""Words for messages: an expression as written, a loop, and the way from a loop to a line."""

from __future__ import annotations

import ast

from trainlint.rules.rule import Note
from trainlint.semantic.facts import Comprehension, Expr, For, Record, While
from trainlint.semantic.heat import Hot
from trainlint.semantic.loops import BatchLoop

_LONGEST = 48


def text(record: Expr, longest: int = _LONGEST) -> str:
    """An expression as one line of source, shortened in the middle."""
    written = " ".join(_source(record).split())
    if len(written) <= longest:
        return written
    tail = longest * 2 // 3
    return written[: longest - tail - 3] + "..." + written[-tail:]


def _source(record: Record) -> str:
    node = record.node
    if isinstance(node, ast.AST):
        return ast.unparse(node)
    import libcst as cst

    return cst.Module([]).code_for_node(node)


def loop_name(loop: BatchLoop | None, hot: Hot | None = None) -> str:
    """`the training loop`, `the evaluation loop`, `Lightning's training loop`."""
    phase = hot.phase if hot is not None else loop.phase if loop is not None else "other"
    kind = {"train": "training loop", "eval": "evaluation loop"}.get(phase, "batch loop")
    if loop is None and hot is not None and hot.framework:
        return (
            f"the {kind} of {hot.framework}"
            if not hot.framework.startswith("the ")
            else f"the {kind} of {hot.framework[4:]}"
        )
    return f"the {kind}"


def notes(hot: Hot) -> tuple[Note, ...]:
    """The calls that lead to a hot line, nearest first, and the loop they start from."""
    found = [Note(call, "called from here on every step") for call in hot.calls[:3]]
    if hot.loop is not None:
        record = hot.loop.record
        if isinstance(record, (For, While, Comprehension)):
            found.append(Note(record, f"{loop_name(hot.loop)} is here"))
    return tuple(found)

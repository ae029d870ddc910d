"""Turning autograd off where a model is evaluated: over a whole function, or over a loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from trainlint.rules import rewrites
from trainlint.semantic import evaluation_function, leaving
from trainlint.semantic.facts import Call, Comprehension, For, Record, While

if TYPE_CHECKING:
    import libcst as cst

    from trainlint.rewriting import Change, Site
    from trainlint.semantic.script import Script

Edit = Callable[["Site", "Iterable[Change]"], "Iterable[Change]"]  # gets the changes that are made besides it


def around(script: Script, loop: For | While | Comprehension | None, call: Call) -> tuple[str, Edit] | None:
    """How `torch.no_grad()` gets around a call, which stands in that loop: what it is called, and the edit. None where it
    may not. The edit's site may be the loop or anything in it."""
    place: Record = loop if loop is not None else call
    manager = rewrites.name_for(script, "torch.no_grad", place)
    if manager is None and not rewrites.is_free(script, "torch", place):
        return None
    written = f"{manager or 'torch.no_grad'}()"
    function = place.context.function
    if evaluation_function.stays_recorded(script, call):
        return None
    all_of_it = function is not None and evaluation_function.is_all_evaluation(script, function)
    if loop is not None and leaving.may_be_needed(script, loop, all_of_it):
        return None
    if all_of_it:
        return f"Decorate the function with `@{written}`", lambda site, _: _decorated(site, written, manager is None)
    if loop is None or (function is not None and (function.yields or function.name == "<lambda>")):
        return None
    if isinstance(loop, (For, While)) and evaluation_function.trains_somehow(script, loop.body[0].context):
        return None
    if isinstance(loop, Comprehension) and loop.kind == "generator":
        return None  # it may be drawn from elsewhere
    return f"Put the loop under `with {written}:`", lambda site, apart: _with(site, written, manager is None, apart)


def _decorated(site: Site, written: str, missing: bool) -> Iterable[Change]:
    from trainlint import importing, rewriting_blocks

    yield from rewriting_blocks.decorate(site, f"@{written}")
    if missing:
        yield from importing.import_line(site.source, "torch")


def _with(site: Site, written: str, missing: bool, apart: Iterable[Change]) -> Iterable[Change]:
    from trainlint import importing, rewriting_blocks

    yield from rewriting_blocks.put_in_with(site, _statement(site), written, apart)
    if missing:
        yield from importing.import_line(site.source, "torch")


def _statement(site: Site) -> cst.For | cst.While | cst.SimpleStatementLine:
    """The innermost loop around the site, or the one-row statement that a comprehension stands in."""
    import libcst as cst

    from trainlint import rewriting

    comprehends = isinstance(site.node, (cst.BaseComp,))
    for node in reversed(site.around_all):
        if isinstance(node, (cst.For, cst.While)) and not comprehends:
            return node
        if isinstance(node, cst.SimpleStatementLine) and comprehends and len(node.body) == 1:
            return node
    raise rewriting.NoFix

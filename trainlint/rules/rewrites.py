"""Rewrites that several rules use. libcst is only imported when one is carried out: when there is a finding to fix."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from trainlint.rules.rule import Rewrite
from trainlint.semantic.facts import Binding, Call, Expr, Record
from trainlint.torch_api.changes import exists

if TYPE_CHECKING:
    from trainlint.rewriting import Change, Site
    from trainlint.semantic.script import Script

# Packages of torch that are there once torch is imported.
_LOADED = frozenset(
    "torch torch.amp torch.backends torch.backends.cuda torch.backends.cudnn torch.backends.mkldnn torch.backends.mps "
    "torch.compiler torch.cuda torch.distributed torch.func torch.library torch.linalg torch.nn torch.nn.functional "
    "torch.nn.init torch.nn.parallel torch.nn.utils torch.optim torch.optim.lr_scheduler torch.testing torch.utils "
    "torch.utils.data torch.nn.utils.parametrizations torchvision torchvision.transforms "
    "torchvision.transforms.functional".split()
)


def pass_keyword(name: str, value: str, *, safe: bool, instead: Rewrite | None = None) -> Rewrite:
    """`f(x)` -> `f(x, name=value)`; a keyword that is there gets the value."""

    def edit(site: Site) -> Iterable[Change]:
        from trainlint import rewriting

        return rewriting.set_keyword(site, site.call, name, value)

    return Rewrite(safe, f"Pass `{name}={value}`", edit, instead=instead)


def write_argument(call: Call, name: str, value: str, position: int | None) -> Rewrite:
    """`f(x)` -> `f(x, name=value)`; what is passed by that name, or at that position, is written over. Unsafe."""

    def edit(site: Site) -> Iterable[Change]:
        from trainlint import rewriting

        at = rewriting.argument(site.call, name, position)
        if at is not None:
            return [site.replace(site.call.args[at].value, value)]
        return rewriting.add_argument(site, site.call, f"{name}={value}")

    return Rewrite(False, f"Pass `{name}={value}`", edit, at=call)


def drop_arguments(names: Iterable[str], *, safe: bool) -> Rewrite:
    """Keywords, all of which must be written in the call."""
    gone = tuple(names)

    def edit(site: Site) -> Iterable[Change]:
        from trainlint import rewriting

        places = [rewriting.keyword(site.call, name) for name in gone]
        if any(place is None for place in places):
            raise rewriting.NoFix
        return rewriting.drop_arguments(site, site.call, [place for place in places if place is not None])

    return Rewrite(safe, f"Drop {' and '.join(f'`{name}`' for name in gone)}", edit)


def detach(value: Expr, *, safe: bool) -> Rewrite:
    """`x` -> `x.detach()`"""

    def edit(site: Site) -> Iterable[Change]:
        from trainlint import rewriting

        return rewriting.method_on(site, rewriting.expression(site.node), "detach")

    return Rewrite(safe, "Add `.detach()`", edit, at=value)


def write(value: Expr, content: str, *, safe: bool) -> Rewrite:
    """Another expression in the place of one."""

    def edit(site: Site) -> Iterable[Change]:
        from trainlint import rewriting

        return [site.replace(rewriting.expression(site.node), content)]

    return Rewrite(safe, f"Write `{content}`", edit, at=value)


def remove_statement(record: Record) -> Rewrite:
    """The statement that is nothing but this call, or that assigns to this target."""

    def edit(site: Site) -> Iterable[Change]:
        from trainlint import rewriting

        return rewriting.remove_statement(site)

    return Rewrite(False, "Remove the statement", edit, at=record)


Part = tuple[Record, Callable[["Site"], Iterable["Change"]]]


def together(message: str, parts: Sequence[Part], *, safe: bool = False, module: str | None = None) -> Rewrite:
    """One fix of several edits, each at a record of its own, and an import where one is needed."""

    def edit(site: Site) -> Iterable[Change]:
        from trainlint import rewriting

        for index, (record, change) in enumerate(parts):
            yield from change(site if index == 0 else site.of(record))
        if module is not None:
            yield from rewriting.import_line(site.source, module)

    return Rewrite(safe, message, edit, at=parts[0][0], others=tuple(record for record, _ in parts[1:]))


def row_before(record: Record, line: str) -> Part:
    """A row before the statement that a record stands in."""

    def edit(site: Site) -> Iterable[Change]:
        from trainlint import row_edits

        return row_edits.before(site, line)

    return record, edit


def row_behind(record: Record, *lines: str) -> Part:
    """Rows below the statement that a record stands in."""

    def edit(site: Site) -> Iterable[Change]:
        from trainlint import row_edits

        return row_edits.behind(site, *lines)

    return record, edit


def block_behind(record: Record, line: str) -> Part:
    """A row below the statement that a record stands in, with an empty one between."""
    return row_behind(record, "", line)


def first_row_in(record: Record, line: str) -> Part:
    """A row at the start of a loop's or function's body."""

    def edit(site: Site) -> Iterable[Change]:
        from trainlint import row_edits

        return row_edits.first_in(site, line)

    return record, edit


def through(call: Call, function: str) -> Part:
    """`x.f(a)` -> `function(x).f(a)`"""

    def edit(site: Site) -> Iterable[Change]:
        from trainlint import rewriting

        return rewriting.wrapped(site, rewriting.attribute(site.call.func).value, function)

    return call, edit


def deep_copy(script: Script, call: Call) -> Rewrite | None:
    """`x` -> `copy.deepcopy(x)`"""
    function = name_for(script, "copy.deepcopy", call)
    if function is None and not is_free(script, "copy", call):
        return None

    def edit(site: Site) -> Iterable[Change]:
        from trainlint import rewriting

        changes = rewriting.around_shallow_copy(site)
        if changes:
            return changes
        changes = rewriting.wrapped(site, site.call, function or "copy.deepcopy")
        return changes if function else [*changes, *rewriting.import_line(site.source, "copy")]

    return Rewrite(False, "Keep a copy", edit)


def has_remedy(script: Script, *remedies: str) -> bool:
    """Whether `torch.x` or `torch.f(keyword=)` is there in the oldest version of the target."""
    if script.settings is None:
        return True
    low = script.settings.torch_range.low
    return all(exists(remedy, low) for remedy in remedies)


def spreads(call: Call) -> bool:
    """Whether options come from `**kwargs`: a keyword that is added may then be there twice."""
    return any(keyword.name is None for keyword in call.keywords)


# ---------------------------------------------------------------------------------------------------------- names


def name_for(script: Script, full_name: str, record: Record) -> str | None:
    """How `torch.nn.ModuleList` is written where a record stands, by the imports that are there; None if by none."""
    parts = full_name.split(".")
    for length in range(len(parts), 0, -1):
        prefix = ".".join(parts[:length])
        for name, bindings in script.module.names.items():
            if not _imports(bindings, prefix) or _hidden(name, record):
                continue
            between = [".".join(parts[:i]) for i in range(length + 1, len(parts))]
            if all(part in _LOADED for part in between):
                return ".".join((name, *parts[length:]))
    return None


def is_free(script: Script, name: str, record: Record) -> bool:
    """Whether nothing has that name at the head of the file nor where the record stands."""
    return name not in script.module.names and not _hidden(name, record)


def _imports(bindings: list[Binding], full_name: str) -> bool:
    return all(b.how == "import" and b.source == full_name for b in bindings) and any(
        b.context.kind == "module" for b in bindings
    )


def _hidden(name: str, record: Record) -> bool:
    """Whether a function around the record has a name of its own that is the same."""
    return any(
        frame.kind == "function" and name in frame.record.locals and name not in frame.record.outer_names
        for frame in record.context.frames()
    )

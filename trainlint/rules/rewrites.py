"""Rewrites that several rules use. libcst is only imported when one is carried out: when there is a finding to fix."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from trainlint.records import NamedTuple
from trainlint.rules.rule import Rewrite
from trainlint.semantic.facts import Binding, Call, Constant, Expr, Name, Record
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


def pass_option(
    call: Call,
    name: str,
    value: str,
    *,
    position: int | None = None,
    over: tuple[object, ...] = (),
    absent: bool = False,
    safe: bool,
) -> Rewrite | None:
    """As `pass_keyword`, also where the option is passed by position. None where it may come from `**options`, or is
    given as something other than one of the literals `over`: then somebody else decides over it."""
    return pass_options(call, [Option(name, value, position, over, absent)], safe=safe)


class Option(NamedTuple):
    """An option that a fix gives to a call, over a literal that may be there."""

    name: str
    value: str
    position: int | None = None
    over: tuple[object, ...] = ()
    absent: bool = False  # where the call has no such argument, its `**options` are known to have none either


def pass_options(call: Call, options: Sequence[Option], *, safe: bool, needs: str | None = None) -> Rewrite | None:
    """As `pass_option`, several at once; `needs` is a module that must be imported for it."""
    for option in options:
        given = call.argument(option.position, option.name)
        if (call.unpacks and not option.absent) if given is None else not _is_literal(given, option.over):
            return None
    wanted = [(option.name, option.value, option.position) for option in options]

    def edit(site: Site) -> Iterable[Change]:
        from trainlint import importing, rewriting

        yield from rewriting.set_options(site, site.call, wanted)
        if needs is not None:
            yield from importing.import_line(site.source, needs)

    said = " and ".join(f"`{option.name}={option.value}`" for option in options)
    return Rewrite(safe, f"Pass {said}", edit)


def drop_option(call: Call, name: str, position: int | None, off: str, *, safe: bool) -> Rewrite | None:
    """An option that is literally `True` in the call, by keyword or position; None where it is not.

    Where more arguments follow by position, `off` is written instead. Each `None` just before it goes as well.
    """
    given = call.argument(position, name)
    if given is None or not _is_literal(given, (True,)):
        return None

    def edit(site: Site) -> Iterable[Change]:
        from trainlint import rewriting

        args = site.call.args
        at = rewriting.argument(site.call, name, position)
        if at is None:
            raise rewriting.NoFix
        if args[at].keyword is not None:
            return rewriting.drop_argument(site, site.call, at)
        if at + 1 < len(args) and args[at + 1].keyword is None and args[at + 1].star != "**":
            return [site.replace(args[at].value, off)]
        first = at
        while first > 0 and site.written(args[first - 1].value) == "None":
            first -= 1
        return rewriting.drop_arguments(site, site.call, range(first, at + 1))

    return Rewrite(safe, f"Drop `{name}`", edit)


def _is_literal(expr: Expr, values: tuple[object, ...]) -> bool:
    """Whether an expression is one of these values, written out."""
    if not isinstance(expr, Constant):
        return False
    return any(type(expr.value) is type(value) and expr.value == value for value in values)


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
        from trainlint import importing

        for index, (record, change) in enumerate(parts):
            yield from change(site if index == 0 else site.of(record))
        if module is not None:
            yield from importing.import_line(site.source, module)

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


def deep_copy(script: Script, value: Call | Name) -> Rewrite | None:
    """`x` -> `copy.deepcopy(x)`"""
    function = name_for(script, "copy.deepcopy", value)
    if function is None and not is_free(script, "copy", value):
        return None

    def edit(site: Site) -> Iterable[Change]:
        from trainlint import importing, rewriting

        changes = rewriting.around_shallow_copy(site) if isinstance(value, Call) else []
        if changes:
            return changes
        changes = rewriting.wrapped(site, rewriting.expression(site.node), function or "copy.deepcopy")
        return changes if function else [*changes, *importing.import_line(site.source, "copy")]

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

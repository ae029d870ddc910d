"""What torch and torchvision deprecated, made raise, or removed: rows kept by hand in `changes.json`.

A row says, for one or several full names:

`code`      the rule that reports it
`form`      what use of the name is meant:
            `use`          any reference to it
            `module`       the module and everything in it, imports included
            `argument`     a call that passes `argument` (by its name or at `position`, else where `parameters` says),
                           with one of `values` where these are given, and with none of `except_values`: both hold
                           literals as they are written, or full names
            `missing`      a call that does not pass `argument`
            `positional`   a call that passes by position what has to be passed by name
            `overload`     a call with a number at `position`, before a tensor: `add(x, 2, y)`
            `method`       a call of the method on a value of that class
            `subscript`    `value.name[0]`
            `instance`     a subclass that is made and called like a module
`since`     the release that deprecated it; `raises` where it exists and raises when called; `removed` where it is gone
`level`     what it is between `since` and `raises` or `removed`: `warning` (torch warns), `advice` (merely legacy)
`help`      what to write instead
`remedies`  full names that must exist for that, `torch.meshgrid(indexing=)` for a keyword
`fix`       a rewrite, see `Fix`
`exact`     only under this very name, not under others for the same object
`source`    where this is known from
"""

# No `from __future__ import annotations` here: NamedTuple would compile each annotation of each field at every start.

from functools import cache
from typing import Any

from trainlint.findings import Level
from trainlint.records import NamedTuple
from trainlint.torch_api.files import text_of
from trainlint.torch_api.table import canonical, keyword, lookup
from trainlint.torch_api.versions import Target, Version, version

FORMS = ("use", "module", "argument", "missing", "positional", "overload", "method", "subscript", "instance")
FIXES = (
    "rename",
    "rename-keyword",
    "drop-argument",
    "add-keyword",
    "value",
    "reduction",
    "name-arguments",
    "by-keyword",
    "unwrap",
    "item",
    "next",
)


class Fix(NamedTuple):
    """A rewrite that can be carried out without knowing torch.

    `do` is one of `FIXES`:
    `rename` writes `to` for the name; a `to` without a dot is another attribute of the same value, and where a method
    becomes a function its receiver becomes the first argument, and counts as one. `first` is put before the arguments,
    `keywords` after them. Arguments passed by position, from `positional_after` on, get the names in `positional`.
    `order` reorders them, `gather` puts them into one list. `needs` are keywords that must be passed with these literal
    values: `keywords` take their places. It holds only for calls with at least `at_least` and at
    most `arguments` arguments, no starred one among them. `called`: a bare reference becomes a call too.
    `rename-keyword` writes `to` for the argument's name, and `values` for its literal values; other values: no fix.
    `drop-argument` takes it out, unless another one follows it by position.
    `add-keyword` appends `keyword=value`. `value` writes `value` for what is passed.
    `reduction` writes `reduction=` for literal `size_average=` and `reduce=`; see `reduction_of`.
    `name-arguments` gives the arguments passed by position the `names`.
    `by-keyword` passes the row's `argument`, which stands at its `position`, by name; `value` arguments follow it.
    `unwrap`: `f(x)` becomes `x`, or `x.detach()`. `item`: `x.data[0]` becomes `x.item()`. `next`: `it.next()` becomes
    `next(it)`.
    `unless`: a pattern; where a file of the program holds it, there is no fix.
    """

    do: str
    safe: bool
    to: str = ""
    first: str = ""
    keywords: tuple[tuple[str, str], ...] = ()
    positional: tuple[str, ...] = ()
    positional_after: int = 0
    order: tuple[int, ...] = ()
    gather: bool = False
    at_least: int = 0
    arguments: int | None = None
    called: bool = False
    values: tuple[tuple[str, str], ...] = ()
    keyword: str = ""
    value: str = ""
    names: tuple[str, ...] = ()
    needs: tuple[tuple[str, str], ...] = ()
    unless: str = ""
    from_version: Version | None = None  # equivalent only where the target's low end has reached this


class Change(NamedTuple):
    """One row of `changes.json`; see the module's docstring."""

    code: str
    names: tuple[str, ...]
    form: str
    since: Version
    level: Level
    help: str
    source: str
    raises: Version | None = None
    removed: Version | None = None
    argument: str = ""
    position: int | None = None
    values: tuple[str, ...] = ()
    except_values: tuple[str, ...] = ()
    remedies: tuple[str, ...] = ()
    fix: Fix | None = None
    exact: bool = False

    def level_at(self, number: Version) -> Level | None:
        """How grave the use is in that release; None where nothing was deprecated yet."""
        for end in (self.raises, self.removed):
            if end is not None and number >= end:
                return Level.ERROR
        return self.level if number >= self.since else None


def reduction_of(size_average: bool | None, reduce: bool | None) -> str:
    """What `size_average=` and `reduce=` mean: `legacy_get_string` of torch/nn/_reduction.py (torch 2.13)."""
    if reduce is False:
        return "none"
    return "sum" if size_average is False else "mean"


@cache
def changes() -> tuple[Change, ...]:
    """All rows, in the order of the file."""
    import json  # costs 2 ms, and most runs never ask

    return tuple(_change(row) for row in json.loads(text_of("changes.json")))


@cache
def changes_of(full_name: str) -> tuple[Change, ...]:
    """The rows about a name, by whichever of its full names it is reached: `torch.nn.modules.loss.MSELoss` too.

    What lies in a module of which a row says that all of it is gone has that row.
    """
    by_name, modules = _index()
    found = by_name.get(full_name)
    if found is None:
        origins = _by_origin(full_name.rpartition(".")[2])
        found = origins.get(canonical(full_name), ()) if origins else ()
    parts = full_name.split(".")
    above = [row for depth in range(1, len(parts) + 1) for row in modules.get(".".join(parts[:depth]), ())]
    return tuple(dict.fromkeys((*found, *above)))


@cache
def _index() -> tuple[dict[str, tuple[Change, ...]], dict[str, tuple[Change, ...]]]:
    """Rows by name, and those of form `module` by the module's name."""
    by_name: dict[str, tuple[Change, ...]] = {}
    modules: dict[str, tuple[Change, ...]] = {}
    for row in changes():
        index = modules if row.form == "module" else by_name
        for name in row.names:
            index[name] = (*index.get(name, ()), row)
    return by_name, modules


@cache
def _by_leaf() -> dict[str, list[tuple[Change, str]]]:
    """Rows and their names, by the last part of the name."""
    rows: dict[str, list[tuple[Change, str]]] = {}
    for row in changes():
        if not row.exact and row.form != "module":
            for name in row.names:
                rows.setdefault(name.rpartition(".")[2], []).append((row, name))
    return rows


@cache
def _by_origin(leaf: str) -> dict[str, tuple[Change, ...]]:
    """Rows by the full name under which the thing is defined, of those whose name ends in `leaf`."""
    rows: dict[str, tuple[Change, ...]] = {}
    for row, name in _by_leaf().get(leaf, ()):
        origin = canonical(name)
        known = rows.get(origin, ())
        if row not in known:
            rows[origin] = (*known, row)
    return rows


@cache
def changes_of_argument(argument: str) -> tuple[Change, ...]:
    """The rows about an argument's name, whatever the callable: for a call that cannot be resolved."""
    return tuple(row for row in changes() if row.argument == argument)


def exists(remedy: str, number: Version) -> bool:
    """Whether a remedy, `torch.outer` or `torch.meshgrid(indexing=)`, is certain to be there in that release."""
    name, _, argument = remedy.partition("(")
    if argument:
        return keyword(name, argument.rstrip("=)")).at(number) is True
    return lookup(name).at(number) is True


def verdict(change: Change, target: Target) -> Level | None:
    """How grave the use is for a range of releases: judged at its high end."""
    return change.level_at(target.high)


def offered(change: Change, target: Target) -> bool:
    """Whether the remedy may be named and the fix offered: all of it must exist at the low end of the range."""
    fix = change.fix
    if fix is not None and fix.from_version is not None and target.low < fix.from_version:
        return False
    return all(exists(remedy, target.low) for remedy in change.remedies)


def _change(row: dict[str, Any]) -> Change:
    fix = row.get("fix")
    return Change(
        code=row["code"],
        names=tuple(row["names"]),
        form=row["form"],
        since=version(row["since"]),
        level=Level[row["level"].upper()],
        help=row["help"],
        source=row["source"],
        raises=version(row["raises"]) if "raises" in row else None,
        removed=version(row["removed"]) if "removed" in row else None,
        argument=row.get("argument", ""),
        position=row.get("position"),
        values=tuple(row.get("values", ())),
        except_values=tuple(row.get("except_values", ())),
        remedies=tuple(row.get("remedies", ())),
        fix=_fix(fix) if fix is not None else None,
        exact=row.get("exact", False),
    )


def _fix(row: dict[str, Any]) -> Fix:
    given: dict[str, Any] = {}
    for name, value in row.items():
        if name == "from":
            given["from_version"] = version(value)
        elif isinstance(value, dict):
            given[name] = tuple(value.items())
        else:
            given[name] = tuple(value) if isinstance(value, list) else value
    return Fix(**given)

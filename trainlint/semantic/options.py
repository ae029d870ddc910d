"""Command line and configuration options: what `args.workers` is when nobody says otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.patterns_on_use import Pattern
from trainlint.records import NamedTuple
from trainlint.semantic.bindings import lookup, solid
from trainlint.semantic.contexts import dotted_name
from trainlint.semantic.facts import Attribute, Call, Class, Constant, Context, Expr, Module, Name, Sequence
from trainlint.semantic.values import UNKNOWN, Const, Number, Object, Table, Text, Value, join

if TYPE_CHECKING:
    from trainlint.semantic.inference import Inference


_DECLARES = Pattern(rb"add_argument|set_defaults")


def option(inference: Inference, owner: Object, name: str) -> Value:
    """The value of one option of a parser's result, or of a namespace made by hand."""
    if owner.name == "namespace" and owner.call is not None:
        given = owner.call.keyword(name)
        if given is not None:
            held = inference.value(given)
            return Const(held.value, True) if isinstance(held, Const) else held
    modules = _modules(inference, owner)
    found: list[Value] = []
    for module in modules:
        found.extend(_declared(inference, module, name))
        for call in module.calls_by_attr.get("set_defaults", ()):
            given = call.keyword(name)
            if given is not None:
                found.append(inference.value(given))
    return join(found) if found else UNKNOWN


def _modules(inference: Inference, owner: Object) -> list[Module]:
    if owner.call is not None:
        first = owner.call.context.module
        project = inference.project
        paths = project.neighbours.speaking(sorted(project.imported(first)), _DECLARES)
        return [first, *(m for path in paths if (m := project.module(path)) is not None)]
    return []


def _declared(inference: Inference, module: Module, name: str) -> list[Value]:
    return [
        _default(inference, call) for call in module.calls_by_attr.get("add_argument", ()) if destination(call) == name
    ]


def destination(call: Call) -> str | None:
    """The attribute that an `add_argument` call fills."""
    dest = call.keyword("dest")
    if isinstance(dest, Constant) and isinstance(dest.value, str):
        return dest.value
    names = [a.value for a in call.args if isinstance(a, Constant) and isinstance(a.value, str)]
    long = [n for n in names if n.startswith("--")]
    chosen = long[0] if long else names[0] if names else None
    return chosen.lstrip("-").replace("-", "_") if chosen is not None else None


def _default(inference: Inference, call: Call) -> Value:
    action = call.keyword("action")
    kind = action.value if isinstance(action, Constant) else None
    default = call.keyword("default")
    if default is not None:
        held = inference.value(default)
        if isinstance(held, Const):
            return Const(held.value, True)
        return held
    if kind == "store_true":
        return Const(False, True)
    if kind == "store_false":
        return Const(True, True)
    if kind is not None and not isinstance(kind, str):
        return UNKNOWN
    type_ = call.keyword("type")
    text = getattr(type_, "id", None)
    if text in ("int", "float"):
        return join([Const(None, True), Number(text)]) if not _positional(call) else Number(text)
    if isinstance(call.keyword("choices"), Sequence) or text == "str":
        return Text()
    return Const(None, True)


def _positional(call: Call) -> bool:
    return bool(call.args) and isinstance(call.args[0], Constant) and not str(call.args[0].value).startswith("-")


def updated(inference: Inference, expr: Expr, table: Table, sure: bool = False) -> Table:
    """A dict display together with what is done to its name before the use: `.update(...)`, `|=`, item stores.

    A change under a condition is one more possibility for its keys; with `sure` it does not count.
    """
    table = _as_passed(inference, expr, table, sure)
    merged: dict[str, Value] = dict(table.items)
    complete = table.complete
    for change in sorted(_changes(inference, expr), key=lambda c: c.order):
        if change.items is None:
            complete, merged = False, dict.fromkeys(merged, UNKNOWN)
        elif expr.context.within(solid(change.context)):
            merged.update(change.items)
        elif not sure:
            for name, value in change.items:
                merged[name] = join([merged[name], value]) if name in merged else value
    return Table(tuple(merged.items()), table.rest, complete)


def _as_passed(inference: Inference, expr: Expr, table: Table, sure: bool) -> Table:
    """Where the name is a parameter with one caller: the dict as that caller has changed it before the call."""
    bindings = lookup(expr, expr.id)[0] if isinstance(expr, Name) else []
    if len(bindings) != 1 or bindings[0].how != "parameter" or bindings[0].context.function is None:
        return table
    function = bindings[0].context.function
    sites = inference.callgraph.callers(function)
    argument = sites[0].argument(function, bindings[0].source) if len(sites) == 1 else None
    held = inference.value(argument) if isinstance(argument, Expr) else UNKNOWN
    return updated(inference, argument, held, sure) if isinstance(argument, Expr) and isinstance(held, Table) else table


def saved_hyperparameters(inference: Inference, cls: Class) -> Value:
    """`self.hparams` of Lightning after `self.save_hyperparameters()`: what `__init__` was given, or its one argument."""
    init = inference.method(cls, "__init__")
    saving = [c for c in init.calls if c.attr == "save_hyperparameters"] if init is not None else []
    if init is None or len(saving) != 1:
        return UNKNOWN
    given = saving[0].argument(0)
    if given is not None and not isinstance(given, Constant):
        return inference.value(given)
    named = [p for p in init.parameters[1:] if p.kind in ("any", "keyword")]
    return Table(tuple((p.name, inference.parameter(init, p)) for p in named), UNKNOWN)


class _Change(NamedTuple):
    """Keys that a dict gets; None where they are not known."""

    order: int
    context: Context
    items: tuple[tuple[str, Value], ...] | None


def _changes(inference: Inference, expr: Expr) -> Iterator[_Change]:
    dotted = dotted_name(expr)
    if dotted is None:
        return
    module = expr.context.module
    for call in module.calls_by_attr.get("update", ()):
        if (
            call.receiver is None
            or dotted_name(call.receiver) != dotted
            or not _reaches(expr, call.context, call.order)
        ):
            continue
        known = tuple((k.name, inference.value(k.value)) for k in call.keywords if k.name is not None)
        if known:
            yield _Change(call.order, call.context, known)
        for argument in [*call.args, *(k.value for k in call.keywords if k.name is None)]:
            yield _Change(call.order, call.context, _items(inference.value(argument)))
    for binding in module.stores.get(dotted + "[]", ()):
        index = binding.source.index
        if binding.value is not None and _reaches(expr, binding.context, binding.order):
            if isinstance(index, Constant) and isinstance(index.value, str):
                yield _Change(binding.order, binding.context, ((index.value, inference.value(binding.value)),))
            else:
                yield _Change(binding.order, binding.context, None)
    if isinstance(expr, Name):
        for binding in lookup(expr, expr.id)[0]:
            if binding.how == "augment" and binding.value is not None:
                yield _Change(binding.order, binding.context, _items(inference.value(binding.value)))


def _items(value: Value) -> tuple[tuple[str, Value], ...] | None:
    return value.items if isinstance(value, Table) and value.complete else None


def _reaches(expr: Expr, context: Context, order: int) -> bool:
    """Whether a change to a name elsewhere comes before a use of that name."""
    if isinstance(expr, Attribute):
        return context.cls is expr.context.cls and (context.function is not expr.context.function or order < expr.order)
    if context.function is expr.context.function:
        return order < expr.order
    local = isinstance(expr, Name) and expr.context.function is not None and expr.id in expr.context.function.locals
    return not local and context.function is None

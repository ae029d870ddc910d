"""The rewrites that the table of changes (`torch_api/changes.json`) describes, carried out on a use."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import TYPE_CHECKING

from trainlint.rules import rewrites
from trainlint.rules.rule import Rewrite
from trainlint.semantic import walk
from trainlint.semantic.facts import Attribute, Call, Expr, Import, Name, Record, Starred
from trainlint.semantic.values import Const, each
from trainlint.torch_api.changes import Change, Fix, offered, reduction_of

if TYPE_CHECKING:
    import libcst as cst

    from trainlint import rewriting
    from trainlint.rewriting import Site
    from trainlint.semantic.script import Script

Changes = Iterable["rewriting.Change"]


def rewrite_of(script: Script, record: Record, change: Change) -> Rewrite | None:
    """None where there is none, where the target is too old for it, or where the use has another shape."""
    fix = change.fix
    if fix is None or not isinstance(record, Expr) or isinstance(record, Import):
        return None
    if script.settings is not None and not offered(change, script.settings.torch_range):
        return None
    if fix.do == "rename":
        return _rename(script, record, change, fix)
    if fix.do == "item":
        return Rewrite(fix.safe, "Write `.item()`", _item)
    if not isinstance(record, Call) or record.unpacks:
        return None
    if fix.do == "drop-argument":
        return rewrites.drop_arguments([change.argument], safe=fix.safe)
    if fix.do in ("add-keyword", "value"):
        return rewrites.pass_keyword(fix.keyword or change.argument, fix.value, safe=fix.safe)
    if fix.do == "rename-keyword":
        return Rewrite(fix.safe, f"Write `{fix.to}=`", lambda site: _rename_keyword(site, change.argument, fix))
    if fix.do == "reduction":
        return _reduction(script, record, fix)
    if fix.do == "unwrap" and len(record.args) == 1 and not record.keywords:
        return Rewrite(fix.safe, "Use the tensor itself", _unwrap)
    if fix.do == "next" and not record.args and not record.keywords:
        return Rewrite(fix.safe, "Write `next(...)`", _next)
    return None


# --------------------------------------------------------------------------------------------------------- names


def _rename(script: Script, record: Expr, change: Change, fix: Fix) -> Rewrite | None:
    called = isinstance(record, Call)
    callee = record.callee if isinstance(record, Call) else record
    if isinstance(record, Call) and not _fits(record, fix):
        return None
    if not called and (fix.first or fix.positional) and not fix.called:
        return None
    if fix.order or fix.gather:
        return None
    name = script.name_of(callee)
    known = name is not None and name.partition(".")[0] in ("torch", "torchvision")
    if "." not in fix.to or (known and name is not None and name.rpartition(".")[0] == fix.to.rpartition(".")[0]):
        if isinstance(callee, Attribute):
            new = fix.to.rpartition(".")[2]
            return Rewrite(fix.safe, f"Write `{new}`", lambda site: _renamed(site, fix, None, new, called))
    if "." not in fix.to or not known:
        return None  # a method that became a function
    written = rewrites.name_for(script, fix.to, record)
    if written is None:
        return None
    last = _last_import(script, callee)
    return Rewrite(fix.safe, f"Write `{written}`", lambda site: _renamed(site, fix, written, "", called, last))


def _fits(call: Call, fix: Fix) -> bool:
    count = len(call.args) + len(call.keywords)
    if any(isinstance(a, Starred) for a in call.args) or (call.unpacks and not fix.first):
        return False
    if fix.positional and len(call.args) - fix.positional_after > len(fix.positional):
        return False
    return count >= fix.at_least and (fix.arguments is None or count <= fix.arguments)


def _renamed(
    site: Site, fix: Fix, written: str | None, attribute: str, called: bool, last: Import | None = None
) -> Changes:
    from trainlint import rewriting

    callee = site.call.func if called else rewriting.expression(site.node)
    if written is not None:
        yield site.replace(callee, written + _bare(fix, called))
        if last is not None:
            yield from _without(site, last, site.written(callee))
    else:
        start = site.span(rewriting.attribute(callee).attr)
        yield rewriting.Change(*start, attribute + _bare(fix, called))
    if called:
        yield from _arguments(site, site.call, fix)


def _bare(fix: Fix, called: bool) -> str:
    """A decorator without parentheses, or a flag that became a function."""
    if called or not fix.called:
        return ""
    options = [fix.first] if fix.first else []
    return f"({', '.join([*options, *(f'{k}={v}' for k, v in fix.keywords)])})"


def _arguments(site: Site, call: cst.Call, fix: Fix) -> Changes:
    from trainlint import rewriting

    named = {}
    for place, argument in enumerate(call.args):
        if argument.keyword is None and fix.positional and place >= fix.positional_after:
            named[place] = fix.positional[place - fix.positional_after]
    for place, name in named.items():
        if place or not fix.first:
            yield site.insert(site.span(call.args[place])[0], f"{name}=")
    if fix.first:
        (first,) = rewriting.first_argument(site, call, fix.first)
        yield first._replace(content=f"{first.content}{named[0]}=") if 0 in named else first
    content = ", ".join(f"{k}={v}" for k, v in fix.keywords if rewriting.keyword(call, k) is None)
    if content and call.args:
        yield from rewriting.add_argument(site, call, content)
    elif content:
        yield site.insert(site.span(call)[1] - 1, f", {content}" if fix.first else content)


def _last_import(script: Script, callee: Expr) -> Import | None:
    """The import that nothing needs any more, once this one use of its name is gone."""
    if not isinstance(callee, Name):
        return None
    bindings = script.module.names.get(callee.id, ())
    if len(bindings) != 1 or not isinstance(bindings[0].statement, Import):
        return None
    uses = [e for e in walk.of_module(script.module) if isinstance(e, Name) and e.id == callee.id]
    exported = any(text == callee.id for _, text in walk.strings(script.module))
    return bindings[0].statement if len(uses) == 1 and not exported else None


def _without(site: Site, statement: Import, name: str) -> Changes:
    """A plain one-row import loses the name, or goes."""
    from trainlint import rewriting

    node = statement.node
    if not isinstance(node, ast.ImportFrom) or node.lineno != node.end_lineno or node.col_offset:
        return
    row = site.source.line(node.lineno)
    start = site.source.row_starts[node.lineno - 1]
    if row[node.end_col_offset :].strip() or "(" in row or not row.isascii():
        return
    if len(node.names) == 1:
        end = site.source.row_starts[node.lineno] if node.lineno < len(site.source.row_starts) else len(site.text)
        yield rewriting.Change(start, end, "")
        return
    place = next((i for i, alias in enumerate(node.names) if (alias.asname or alias.name) == name), None)
    if place is None:
        return
    if place + 1 < len(node.names):
        yield rewriting.Change(start + node.names[place].col_offset, start + node.names[place + 1].col_offset, "")
    else:
        before, last = node.names[place - 1].end_col_offset or 0, node.names[place].end_col_offset or 0
        yield rewriting.Change(start + before, start + last, "")


# ----------------------------------------------------------------------------------------------------- arguments


def _rename_keyword(site: Site, argument: str, fix: Fix) -> Changes:
    from trainlint import rewriting

    at = rewriting.keyword(site.call, argument)
    if at is None or rewriting.keyword(site.call, fix.to) is not None:
        raise rewriting.NoFix
    found = site.call.args[at]
    assert found.keyword is not None
    yield site.replace(found.keyword, fix.to)
    if fix.values:
        written = site.written(found.value)
        values = dict(fix.values)
        if written not in values:
            raise rewriting.NoFix
        yield site.replace(found.value, values[written])


def _reduction(script: Script, call: Call, fix: Fix) -> Rewrite | None:
    """`size_average=False` -> `reduction="sum"`"""
    if call.keyword("reduction") is not None:
        return None
    given: dict[str, bool | None] = {"size_average": None, "reduce": None}
    for name in given:
        said = call.keyword(name)
        if said is None:
            continue
        values = list(each(script.value(said)))
        if len(values) != 1 or not isinstance(values[0], Const) or values[0].settable:
            return None
        if values[0].value not in (True, False, None):
            return None
        given[name] = values[0].value
    text = reduction_of(given["size_average"], given["reduce"])
    names = [name for name in given if call.keyword(name) is not None]
    if not names:
        return None
    return Rewrite(fix.safe, f'Write `reduction="{text}"`', lambda site: _one_reduction(site, names, text))


def _one_reduction(site: Site, names: list[str], text: str) -> Changes:
    from trainlint import rewriting

    first, *others = (rewriting.keyword(site.call, name) for name in names)
    if first is None:
        raise rewriting.NoFix
    argument = site.call.args[first]
    assert argument.keyword is not None
    yield site.replace(argument.keyword, "reduction")
    yield site.replace(argument.value, f'"{text}"')
    yield from rewriting.drop_arguments(site, site.call, [at for at in others if at is not None])


# ----------------------------------------------------------------------------------------------------------- forms


def _unwrap(site: Site) -> Changes:
    """`Variable(x)` -> `x`"""
    import libcst as cst

    from trainlint import rewriting

    value = site.call.args[0].value
    written = site.written(value)
    parent = site.parent()
    if isinstance(parent, cst.Assign) and [site.tree.code_for_node(t.target) for t in parent.targets] == [written]:
        return rewriting.remove_statement(site)  # `x = Variable(x)`
    start, end = site.span(site.node)
    if "\n" in site.text[start:end] or "\r" in site.text[start:end] or isinstance(value, cst.GeneratorExp):
        raise rewriting.NoFix
    inner = written if _stands_free(site) else rewriting.atom(value, written)
    return [rewriting.Change(start, end, inner)]


def _stands_free(site: Site) -> bool:
    """An assigned value or an argument needs no parentheses around it."""
    import libcst as cst

    parent = site.parent()
    return isinstance(parent, (cst.Assign, cst.Arg, cst.Expr, cst.Return))


def _item(site: Site) -> Changes:
    """`loss.data[0]` -> `loss.item()`"""
    import libcst as cst

    from trainlint import rewriting

    if not isinstance(site.node, cst.Subscript):
        raise rewriting.NoFix
    data = rewriting.attribute(site.node.value)
    start, end = site.outer_span(data.value)[1], site.span(site.node)[1]
    if "#" in site.text[start:end] or data.lpar:
        raise rewriting.NoFix
    yield rewriting.Change(start, end, ".item()")


def _next(site: Site) -> Changes:
    """`it.next()` -> `next(it)`"""
    from trainlint import rewriting

    receiver = rewriting.attribute(site.call.func).value
    start, end = site.span(site.node)
    if "#" in site.text[start:end]:
        raise rewriting.NoFix
    yield rewriting.Change(start, end, f"next({site.written(receiver)})")

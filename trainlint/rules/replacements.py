"""The rewrites that the table of changes (`torch_api/changes.json`) describes, carried out on a use."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from trainlint.patterns_on_use import Pattern
from trainlint.rules import rewrites
from trainlint.rules.rule import Rewrite
from trainlint.semantic import version_guards, walk
from trainlint.semantic.facts import Attribute, Await, Call, Constant, Expr, Record, Starred, Walrus, Yield
from trainlint.semantic.graphs import may_have_graph
from trainlint.semantic.values import Const, Tensor, each
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
    if fix is None or not isinstance(record, Expr):
        return None
    if script.settings is not None and not offered(change, script.settings.torch_range):
        return None
    if version_guards.is_chosen_by_version(script.inference, record):
        return None
    if fix.unless and script.semantics.program.says(script.module, Pattern(fix.unless.encode())):
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
    if fix.do == "name-arguments" and len(record.args) <= len(fix.names):
        return Rewrite(fix.safe, "Name the arguments", lambda site: _name_arguments(site, fix))
    if fix.do == "by-keyword" and change.position is not None:
        return _by_keyword(record, change, fix, change.position)
    if fix.do == "unwrap" and len(record.args) == 1:
        return _plain_tensor(script, record, fix)
    if fix.do == "next" and not record.args and not record.keywords:
        return Rewrite(fix.safe, "Write `next(...)`", _next)
    return None


# --------------------------------------------------------------------------------------------------------- names


def _rename(script: Script, record: Expr, change: Change, fix: Fix) -> Rewrite | None:
    called = isinstance(record, Call)
    callee = record.callee if isinstance(record, Call) else record
    method = isinstance(callee, Attribute) and "." in fix.to and _is_tensor(script, callee.value)
    if isinstance(record, Call) and not _fits(record, fix, receiver=method):
        return None
    if not isinstance(record, Call) and (fix.order or fix.gather or fix.needs):
        return None
    if method:
        function = rewrites.name_for(script, fix.to, record) if isinstance(record, Call) else None
        if function is None or fix.gather or fix.first or fix.positional:
            return None
        return Rewrite(fix.safe, f"Write `{function}`", lambda site: _as_function(site, fix, function))
    if not called and (fix.first or fix.positional) and not fix.called:
        return None
    name = script.name_of(callee)
    known = name is not None and name.partition(".")[0] in ("torch", "torchvision")
    if "." not in fix.to or (known and name is not None and name.rpartition(".")[0] == fix.to.rpartition(".")[0]):
        if isinstance(callee, Attribute):
            new = fix.to.rpartition(".")[2]
            return Rewrite(fix.safe, f"Write `{new}`", lambda site: _renamed(site, fix, None, new, called))
    if "." not in fix.to or not known:
        return None
    written = rewrites.name_for(script, fix.to, record)
    if written is None:
        return None
    return Rewrite(fix.safe, f"Write `{written}`", lambda site: _renamed(site, fix, written, "", called))


def _is_tensor(script: Script, expr: Expr) -> bool:
    """Certainly one: `x` of `x.qr()`, which becomes `torch.linalg.qr(x)`."""
    return script.tensor(expr) is not None


def _fits(call: Call, fix: Fix, *, receiver: bool = False) -> bool:
    count = len(call.args) + len(call.keywords) + receiver - len(fix.needs)
    for name, value in fix.needs:
        given = call.keyword(name)
        if not isinstance(given, Constant) or repr(given.value) != value:
            return False
    if fix.order and (call.keywords or count != len(fix.order) or not all(_is_quiet(a) for a in call.args)):
        return False
    if any(isinstance(a, Starred) for a in call.args) or (call.unpacks and not fix.first):
        return False
    if fix.positional and len(call.args) - fix.positional_after > len(fix.positional):
        return False
    return count >= fix.at_least and (fix.arguments is None or count <= fix.arguments)


def _renamed(site: Site, fix: Fix, written: str | None, attribute: str, called: bool) -> Changes:
    from trainlint import rewriting

    callee = site.call.func if called else rewriting.expression(site.node)
    if written is not None:
        yield site.replace(callee, written + _bare(fix, called))
    else:
        start = site.span(rewriting.attribute(callee).attr)
        yield rewriting.Change(*start, attribute + _bare(fix, called))
    if called:
        yield from _arguments(site, site.call, fix)


def _is_quiet(expr: Expr) -> bool:
    """It may be evaluated earlier or later than what stands beside it."""
    return not any(isinstance(e, (Call, Await, Yield, Walrus)) for e in walk.inside(expr))


def _as_function(site: Site, fix: Fix, function: str) -> Changes:
    """`x.qr()` -> `torch.linalg.qr(x)`"""
    from trainlint import rewriting

    receiver = rewriting.attribute(site.call.func).value
    start, end = site.span(site.node)
    args = site.call.args
    if fix.order:
        texts = [site.inside(receiver), *(site.written(a.value) for a in args)]
        if "#" in site.text[start:end] or "\n" in site.text[start:end]:
            raise rewriting.NoFix
        return [rewriting.Change(start, end, f"{function}({', '.join(texts[i] for i in fix.order)})")]
    places = [rewriting.keyword(site.call, name) for name, _ in fix.needs]
    gone = [place for place in places if place is not None]
    kept = len(args) - len(gone)
    keywords = ", ".join(f"{k}={v}" for k, v in fix.keywords)
    if kept and gone:
        raise rewriting.NoFix
    first, last = site.outer_span(receiver)
    opening = site.span(args[0])[0] if kept else end - 1
    if "#" in site.text[last:opening]:
        raise rewriting.NoFix
    behind = ", " if kept else f", {keywords}" if keywords else ""
    return [rewriting.Change(first, opening, f"{function}({site.inside(receiver)}{behind}")]


def _bare(fix: Fix, called: bool) -> str:
    """A decorator without parentheses, or a flag that became a function."""
    if called or not fix.called:
        return ""
    options = [fix.first] if fix.first else []
    return f"({', '.join([*options, *(f'{k}={v}' for k, v in fix.keywords)])})"


def _arguments(site: Site, call: cst.Call, fix: Fix) -> Changes:
    from trainlint import rewriting

    if fix.gather:
        positional = [a for a in call.args if a.keyword is None]
        yield site.insert(site.span(positional[0])[0], "[")
        yield site.insert(site.outer_span(positional[-1].value)[1], "]")
        return
    if fix.order:
        texts = [site.written(a.value) for a in call.args]
        for argument, place in zip(call.args, fix.order, strict=True):
            yield site.replace(argument.value, texts[place])
        return
    if fix.needs:
        places = [rewriting.keyword(call, name) for name, _ in fix.needs]
        for (new, value), at in zip(fix.keywords, places, strict=True):
            keyword = call.args[at].keyword if at is not None else None
            if at is None or keyword is None:
                raise rewriting.NoFix
            yield site.replace(keyword, new)
            yield site.replace(call.args[at].value, value)
        return
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


def _name_arguments(site: Site, fix: Fix) -> Changes:
    """`module.state_dict(held, "part.")` -> `module.state_dict(destination=held, prefix="part.")`"""
    from trainlint import rewriting

    positional = [a for a in site.call.args if a.keyword is None]
    if any(rewriting.keyword(site.call, name) is not None for name in fix.names[: len(positional)]):
        raise rewriting.NoFix
    for argument, name in zip(positional, fix.names, strict=False):
        yield site.insert(site.span(argument)[0], f"{name}=")


def _by_keyword(call: Call, change: Change, fix: Fix, place: int) -> Rewrite | None:
    """`x.add_(2, y)` -> `x.add_(y, alpha=2)`"""
    if call.keyword(change.argument) is not None or len(call.args) != place + 1 + int(fix.value):
        return None

    def edit(site: Site) -> Changes:
        from trainlint import rewriting

        number, following = site.call.args[place], site.call.args[place + 1]
        start, end = site.span(number)[0], site.span(following)[0]
        if "#" in site.text[start:end] or "\n" in site.text[start:end]:
            raise rewriting.NoFix
        yield rewriting.Change(start, end, "")
        yield from rewriting.add_argument(site, site.call, f"{change.argument}={site.written(number.value)}")

    return Rewrite(fix.safe, f"Pass `{change.argument}=`", edit)


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


def _plain_tensor(script: Script, call: Call, fix: Fix) -> Rewrite | None:
    """What `Variable(x)` is: `x`, where that has no graph; `x.detach()`, where it has one, since the wrapper cuts it."""
    if any(k.name != "requires_grad" or script.constant(k.value) is not False for k in call.keywords):
        return None
    if not may_have_graph(script, call.args[0]):
        return Rewrite(fix.safe, "Use the tensor itself", _unwrap)
    held = list(each(script.value(call.args[0])))
    if any(isinstance(v, Tensor) and v.graph and v.sure for v in held):
        return Rewrite(fix.safe, "Write `.detach()`, which is all that it does", _detached)
    return Rewrite(False, "Use the tensor itself", _unwrap)


def _unwrap(site: Site) -> Changes:
    """`Variable(x)` -> `x`"""
    from trainlint import rewriting

    return rewriting.unwrap(site)


def _detached(site: Site) -> Changes:
    """`Variable(x)` -> `x.detach()`"""
    from trainlint import rewriting

    value = site.call.args[0].value
    start, end = site.span(site.node)
    if "\n" in site.text[start:end] or "\r" in site.text[start:end] or "#" in site.text[start:end]:
        raise rewriting.NoFix
    return [rewriting.Change(start, end, f"{rewriting.atom(value, site.written(value))}.detach()")]


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

"""`torch.zeros(n).to(device)` -> `torch.zeros(n, device=device)`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from trainlint.rules.rule import Rewrite
from trainlint.semantic.facts import Attribute, Call, Expr, Name
from trainlint.semantic.values import Const, External, Number, Object, Tensor, each

if TYPE_CHECKING:
    from trainlint.rewriting import Change, Site
    from trainlint.semantic.script import Script

_SAME = frozenset("torch." + n for n in "zeros ones full empty arange".split())
# of these a type may be asked for at once; others compute their values in it
_TYPED = _SAME - {"torch.arange"}
_RANDOM = frozenset("torch." + n for n in "rand randn randint randperm".split())
# methods between the two that give the same values on any device, and take no other tensor
_SHAPES = frozenset(
    "float long half double bool int short bfloat16 view reshape unsqueeze squeeze repeat expand transpose t permute "
    "contiguous flatten".split()
)


def rewrite_of(script: Script, move: Call, built: Call) -> Rewrite | None:
    """None where the tensor is not built and moved in one chain, or where `device=` would not say the same."""
    name = script.name_of(built.callee)
    if name not in _SAME | _RANDOM or move.unpacks or not _is_chain(script, move, built):
        return None
    if any(built.keyword(k) is not None for k in ("device", "generator", "requires_grad")):
        return None
    target = _target(script, move, built)
    if target is None:
        return None
    options, of_type = target
    typed = of_type or _asked_type(move) is not None
    between = 0
    current = move.receiver
    while current is not built and isinstance(current, Call):
        between += 1
        current = current.receiver
    if typed and (between or built.keyword("dtype") is not None or name not in _TYPED):
        return None  # the type would be set before the methods in between, or twice

    def edit(site: Site) -> Iterable[Change]:
        return _edit(site, between, options, of_type)

    return Rewrite(name in _SAME, "Build it on the device (`device=`)", edit)


def _is_chain(script: Script, move: Call, built: Call) -> bool:
    current = move.receiver
    while current is not built:
        if not isinstance(current, Call) or current.attr not in _SHAPES or current.unpacks:
            return False
        given = [*current.args, *(k.value for k in current.keywords)]
        if any(isinstance(v, Tensor) for a in given for v in each(script.value(a))):
            return False
        current = current.receiver
    return True


def _target(script: Script, move: Call, built: Call) -> tuple[str, bool] | None:
    """Which device: a template for the text of the move's first argument, and whether its type counts as well."""
    extra = {k.name for k in move.keywords} - {"non_blocking", "device", "dtype"}
    if extra or len(move.args) > (2 if move.attr == "to" else 1):
        return None
    if len(move.args) > 1 and not _is_type(script, move.args[1]):
        return None  # `.to(device, True)` is about waiting
    given = move.argument(0, "device")
    if move.attr == "cuda":
        if given is None:
            return '"cuda"', False
        held = list(each(script.value(given)))
        known = all((isinstance(v, Const) and v.value is not None) or isinstance(v, (Number, Object)) for v in held)
        return ("{}", False) if known else None  # `device=None` is the CPU, `.cuda(None)` is not
    if given is None or move.attr not in ("to", "type_as"):
        return None
    held = list(each(script.value(given)))
    if move.attr == "type_as" or any(isinstance(v, Tensor) for v in held):
        if not all(isinstance(v, Tensor) for v in held) or not _is_plain(given):
            return None
        return "{}.device", True
    if any(isinstance(v, External) or (isinstance(v, Const) and v.value is None) for v in held):
        return None
    return "{}", False


def _asked_type(move: Call) -> Expr | None:
    """`dtype` of `.to(device, dtype)`."""
    return move.argument(1, "dtype") if move.attr == "to" else None


def _is_type(script: Script, expr: Expr) -> bool:
    """`torch.float16`, `x.dtype`"""
    values = list(each(script.value(expr)))
    known = all(isinstance(v, External) and v.name.startswith("torch.") for v in values)
    return known or (isinstance(expr, Attribute) and expr.attr == "dtype")


def _is_plain(expr: Expr) -> bool:
    """A name or an attribute of one: it may be read twice."""
    while isinstance(expr, Attribute):
        expr = expr.value
    return isinstance(expr, Name)


def _edit(site: Site, between: int, device: str, of_type: bool) -> Iterable[Change]:
    from trainlint import rewriting

    receiver = rewriting.attribute(site.call.func).value
    inner = receiver
    for _ in range(between):
        inner = rewriting.attribute(rewriting.call(inner).func).value
    built = rewriting.call(inner)
    given = rewriting.argument(site.call, "device", 0)
    text = site.written(site.call.args[given].value) if given is not None else ""
    start, end = site.outer_span(receiver)[1], site.span(site.node)[1]
    if "#" in site.text[start:end] or "\n" in text or "\r" in text:
        raise rewriting.NoFix
    options = f"device={device.format(text)}"
    dtype = rewriting.argument(site.call, "dtype", 1)
    if of_type:
        options = f"{options}, dtype={text}.dtype"
    elif dtype is not None:
        options = f"{options}, dtype={site.written(site.call.args[dtype].value)}"
    yield from rewriting.add_argument(site, built, options)
    yield rewriting.Change(start, end, "")

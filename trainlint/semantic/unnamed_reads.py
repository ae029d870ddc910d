"""What a module holds that is read otherwise than as `self.name`: by a string, or as one of all its children."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from trainlint.patterns_on_use import Pattern
from trainlint.semantic import walk
from trainlint.semantic.bindings import lookup
from trainlint.semantic.contexts import is_self
from trainlint.semantic.facts import (
    Attribute,
    Call,
    Class,
    Constant,
    Context,
    Expr,
    For,
    FString,
    Module,
    Name,
    Operator,
)
from trainlint.semantic.values import Const, External, Object, each

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_CHILDREN = frozenset({"children", "named_children", "modules", "named_modules"})
# ways in which a class may use all that it holds, without a name
_ALL = frozenset({"vars", "__getattr__", "state_dict_keys", "fuse_modules", "register_forward_hook", "exec", "eval"})
_BY_STRING = ("getattr", "get_submodule", "attrgetter", "methodcaller", "__getattribute__")
BY_STRING = Pattern(rb"\bgetattr\(|\bget_submodule\(|\battrgetter\(")
_LOOKS_ONLY = frozenset({"isinstance", "hasattr", "type", "print", "id"})
_HOLES = Pattern(r"%[-+ #0]*\d*(?:\.\d+)?[a-zA-Z]|\{[^{}]*\}")
_DEEPEST = 4


# ------------------------------------------------------------------------------------------------------- all of them


def reads_all(script: Script, cls: Class, family: Iterable[Class]) -> bool:
    """Whether methods of a class may use any of what it holds, without saying which."""
    names = {id(c) for c in family}
    for method in cls.methods.values():
        for call in method.calls:
            if call.attr in _CHILDREN:
                if not _is_part(call.receiver) and _may_be(script, call.receiver, names) and not _only_looked_at(call):
                    return True
            elif call.attr in _ALL and (call.args or call.attr not in ("exec", "eval")):
                return True
            elif call.attr in _BY_STRING:
                holder, said = _parts(call)
                if said is not None and _text(script, said) is None and not _is_part(holder):
                    if _may_be(script, holder, names):
                        return True
    return any(a.context.cls is cls for n in ("_modules", "__dict__") for a in cls.module.attributes.get(n, ()))


def _is_part(holder: Expr | None) -> bool:
    """`self.encoder`, or a local that a call gave: in a method of a class no instance of that class."""
    if isinstance(holder, Attribute):
        return is_self(holder.value, holder.context)
    if isinstance(holder, Name):
        bindings = lookup(holder, holder.id)[0]
        return bool(bindings) and all(b.how == "assign" and isinstance(b.value, Call) and not b.path for b in bindings)
    return isinstance(holder, Call) and holder.attr != "super"


def _only_looked_at(call: Call) -> bool:
    """`for m in self.modules(): if isinstance(m, nn.Conv2d): init(m.weight)`: the layers are looked at and not called."""
    loop = call.statement
    if not isinstance(loop, For) or loop.iter is not call or not loop.body:
        return False
    target = loop.target.elements[-1] if hasattr(loop.target, "elements") else loop.target
    if not isinstance(target, Name):
        return False
    body = loop.body[0].context
    fine: set[int] = set()
    seen: list[Name] = []
    for expr in walk.of_module(call.context.module):
        if not expr.context.within(body):
            continue
        if isinstance(expr, Attribute) and isinstance(expr.value, Name) and expr.attr not in ("forward", "__call__"):
            fine.add(id(expr.value))
        elif isinstance(expr, Call) and isinstance(expr.callee, Name) and expr.callee.id in _LOOKS_ONLY:
            fine.update(id(a) for a in expr.args)
        elif isinstance(expr, Name) and expr.id == target.id and expr is not target:
            seen.append(expr)
    return all(id(name) in fine for name in seen)


# ---------------------------------------------------------------------------------------------------------- by string


def reads_by_string(script: Script, module: Module, name: str, family: Iterable[Class]) -> bool:
    """Whether some string of a file may be the name of an attribute: written out, or put together for `getattr`."""
    word = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)")
    if any(" " not in text and word.search(text) for _, text in walk.strings(module)):
        return True  # a key of a state dict, a name for getattr; not prose
    names = {id(c) for c in family}
    for attr in _BY_STRING:
        for call in module.calls_by_attr.get(attr, ()):
            holder, said = _parts(call)
            if said is None or not _may_be(script, holder, names):
                continue
            parts = _text(script, said)
            # what is not known at all may name anything; but then of an object that is known to be of the class
            if _fits(parts, name) if parts is not None else _is_one(script, holder, names):
                return True
    return False


def _parts(call: Call) -> tuple[Expr | None, Expr | None]:
    """(whose attribute, the string) of `getattr(x, s)`, `x.get_submodule(s)`, `attrgetter(s)`."""
    if call.attr == "getattr":
        return (call.args[0], call.args[1]) if len(call.args) > 1 else (None, None)
    return call.receiver if call.attr in ("get_submodule", "__getattribute__") else None, call.args[
        0
    ] if call.args else None


def _may_be(script: Script, holder: Expr | None, names: set[int]) -> bool:
    """Whether an object can be one of these classes; what is not known can."""
    if holder is None or (is_self(holder, holder.context) and _is_in(holder.context, names)):
        return True
    for value in each(script.value(holder)):
        if isinstance(value, External):
            continue
        if not isinstance(value, Object) or value.inner or (value.cls is None and value.call is None):
            return True
        if value.cls is not None and id(value.cls) in names:
            return True
    return False


def _is_one(script: Script, holder: Expr | None, names: set[int]) -> bool:
    if holder is None:
        return False
    if is_self(holder, holder.context):
        return _is_in(holder.context, names)
    return any(isinstance(v, Object) and v.cls is not None and id(v.cls) in names for v in each(script.value(holder)))


def _is_in(context: Context, names: set[int]) -> bool:
    return context.cls is None or id(context.cls) in names


def _text(script: Script, expr: Expr, depth: int = 0) -> list[list[str]] | None:
    """The pieces that are known of a string, in order, for each of what it can be; None where it can be anything."""
    known = script.value(expr)
    if isinstance(known, Const):
        return [[known.value]] if isinstance(known.value, str) and not known.settable else None
    if isinstance(expr, FString):
        pieces = [p for p in expr.text.split("\0") if p]
        return [pieces] if pieces else None
    if isinstance(expr, Call) and expr.attr == "format" and isinstance(expr.receiver, Constant):
        return _pieces(expr.receiver)
    if isinstance(expr, Operator):
        if expr.op == "%" and isinstance(expr.operands[0], Constant):
            return _pieces(expr.operands[0])
        if expr.op == "+":
            texts = [e.value for e in walk.inside(expr) if isinstance(e, Constant) and isinstance(e.value, str)]
            texts = [t for t in texts if t]
            return [texts[:1]] if texts else None  # which comes first is not told by the walk: one of them is enough
    if isinstance(expr, Name) and depth < _DEEPEST:
        bindings = lookup(expr, expr.id)[0]
        if bindings and all(b.how == "assign" and b.value is not None and not b.path for b in bindings):
            found: list[list[str]] = []
            for binding in bindings:
                one = _text(script, binding.value, depth + 1) if binding.value is not None else None
                if one is None:
                    return None
                found.extend(one)
            return found
    return None


def _pieces(template: Constant) -> list[list[str]] | None:
    if not isinstance(template.value, str):
        return None
    pieces = [p for p in _HOLES.split(template.value) if p]
    return [pieces] if pieces else None


def _fits(texts: list[list[str]], name: str) -> bool:
    """Whether the pieces stand in a name one after the other."""
    for pieces in texts:
        at = 0
        for piece in pieces:
            found = name.find(piece, at)
            if found < 0:
                break
            at = found + len(piece)
        else:
            return True
    return False

"""Where a file speaks of torch and torchvision: every reference by its full name, and calls of methods of their classes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.records import NamedTuple
from trainlint.semantic.contexts import dotted_name
from trainlint.semantic.facts import Attribute, Call, Expr, Import, Name, Record
from trainlint.semantic.values import External, Method, Object, Unknown, Value, each

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

ROOTS = frozenset({"torch", "torchvision"})
_NOT_ONLY_OF_TENSORS = frozenset({"resize", "type", "add", "sub", "cross"})
# with a number and a tensor after it: what has such a method is a tensor
_NUMBER_FIRST = frozenset({"add_", "sub_", "addcmul_", "addcdiv_"})


class Reference(NamedTuple):
    """`name`: the full name, aliases resolved. `call`: the call of it, where it is called. `record`: the place: the call,
    the expression, or the import statement."""

    record: Record
    name: str
    call: Call | None = None


def references(script: Script) -> list[Reference]:
    """Uses of names of torch in code, in source order; imports are not among them."""
    found = [*_attributes(script), *_plain_calls(script)]
    return sorted(found, key=lambda r: r.record.order)


def imports(script: Script) -> Iterator[Reference]:
    """The names and modules that a file imports from torch."""
    for statement in script.module.imports:
        names = dict.fromkeys([*statement.modules, *(full for bound, full in statement.names if bound != "*")])
        for full in names:
            if full.partition(".")[0] in ROOTS and not _is_own(script, statement, full):
                yield Reference(statement, full)


def _is_own(script: Script, statement: Import, full: str) -> bool:
    return script.project.target(statement.context.module.path, full.partition(".")[0]) is not None


def _attributes(script: Script) -> Iterator[Reference]:
    """`torch.nn.init.normal`, the longest dotted name of each."""
    module = script.module
    accesses = [a for found in module.attributes.values() for a in found]
    inner = {id(a.value) for a in accesses}
    called = {id(c.callee): c for c in module.calls}
    aliases = _aliases(script)
    stored = {id(t) for s in module.statements for t in getattr(s, "targets", ())}
    for access in accesses:
        if id(access) in inner or id(access) in stored:
            continue
        full = _full_name(script, access, aliases)
        if full is not None:
            call = called.get(id(access))
            yield Reference(call if call is not None else access, full, call)


def _full_name(script: Script, access: Attribute, aliases: frozenset[str]) -> str | None:
    dotted = dotted_name(access)
    if dotted is None:
        return None
    root, _, rest = dotted.partition(".")
    if root not in aliases:
        return None
    expr: Expr = access
    while isinstance(expr, Attribute):
        expr = expr.value
    held = script.value(expr)
    if isinstance(held, External) and held.name.partition(".")[0] in ROOTS:
        return f"{held.name}.{rest}"
    return None


def _plain_calls(script: Script) -> Iterator[Reference]:
    """`kaiming_normal(weight)` after `from torch.nn.init import kaiming_normal`"""
    aliases = _aliases(script)
    for call in script.module.calls:
        callee = call.callee
        if isinstance(callee, Name) and callee.id in aliases:
            held = script.value(callee)
            if isinstance(held, External) and held.name.partition(".")[0] in ROOTS:
                yield Reference(call, held.name, call)


def _aliases(script: Script) -> frozenset[str]:
    """Names that may stand for something of torch: imported ones, and those assigned from such a name, in whatever scope."""
    module = script.module
    found: set[str] = {"torch"}
    assigned: dict[str, set[str]] = {}  # from the first name of what is assigned to the names that get it
    for scope in (module.names, *(f.locals for f in module.functions)):
        for name, bindings in scope.items():
            for binding in bindings:
                if binding.how == "import":
                    found.add(name)
                elif binding.how == "assign" and isinstance(binding.value, (Name, Attribute)):
                    root = (dotted_name(binding.value) or "").partition(".")[0]
                    if root:
                        assigned.setdefault(root, set()).add(name)
    if any(bound == "*" for s in module.imports for bound, _ in s.names):
        found.update(c.callee.id for c in module.calls if isinstance(c.callee, Name))
    waiting = list(found)
    while waiting:
        further = assigned.pop(waiting.pop(), set()) - found
        found |= further
        waiting.extend(further)
    return frozenset(found)


def methods(script: Script, names: frozenset[str]) -> Iterator[Reference]:
    """Calls of methods with these last names on values of torch's classes: `torch.Tensor.symeig` for `x.symeig()`."""
    for name in sorted(names):
        for call in script.module.calls_by_attr.get(name, ()):
            if not isinstance(call.callee, Attribute):
                continue
            owner = owner_class(script, call)
            if owner is not None:
                yield Reference(call, f"{owner}.{name}", call)


def owner_class(script: Script, call: Call) -> str | None:
    """The full name of the outside class whose method a call runs, where that is certain."""
    receiver = call.receiver
    if receiver is None:
        return None
    tensor = script.tensor(receiver)
    if tensor is not None:
        if call.attr in _NOT_ONLY_OF_TENSORS and tensor.device is None and tensor.graph is None:
            return None  # by its name or use alone: a PIL image or an array has such a method too
        return "torch.Tensor" if tensor.sure else None
    if call.attr in _NUMBER_FIRST and len(call.args) > 1 and isinstance(script.value(receiver), Unknown):
        return "torch.Tensor" if script.tensor(call.args[-1]) is not None else None
    owners = {_owner(value) for value in each(script.value(call.callee))}
    owner = owners.pop() if len(owners) == 1 else None
    return owner


def _owner(value: Value) -> str | None:
    if not isinstance(value, Method) or not isinstance(value.owner, Object):
        return None
    owner = value.owner
    if owner.role == "iterator" and owner.name == "iter" and owner.inner:
        held = owner.inner[0]
        if isinstance(held, Object) and held.role == "loader" and held.name.startswith("torch.utils.data."):
            return "torch.utils.data.dataloader._BaseDataLoaderIter"
        return None
    if owner.cls is None and owner.name.partition(".")[0] in ROOTS:
        return owner.name
    return None

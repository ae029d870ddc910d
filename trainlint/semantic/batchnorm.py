"""Which layer feeds which: neighbours in a `Sequential`, and layers joined in a module's `forward`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.patterns_on_use import Pattern
from trainlint.semantic import placement, walk
from trainlint.semantic.bindings import lookup
from trainlint.semantic.contexts import dotted_name, is_self
from trainlint.semantic.facts import (
    Assign,
    Attribute,
    Call,
    Class,
    Compare,
    Constant,
    Expr,
    Function,
    If,
    Mapping,
    Name,
    Operator,
    Sequence,
    Starred,
)
from trainlint.semantic.values import Object, each

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

# the place of `bias` among the positional arguments (torch 2.13)
_BIAS = {
    "Linear": 2,
    "Conv1d": 7,
    "Conv2d": 7,
    "Conv3d": 7,
    "ConvTranspose1d": 7,
    "ConvTranspose2d": 7,
    "ConvTranspose3d": 7,
}
_NORMS = frozenset({"BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm"})


def before_batchnorm(script: Script) -> Iterator[tuple[Call, Expr]]:
    """(the call that builds a layer with a bias, the BatchNorm that alone gets what it computes), for this file."""
    seen: set[int] = set()
    for layer, norm in [*_in_sequentials(script), *_in_forwards(script)]:
        if id(layer) not in seen:
            seen.add(id(layer))
            yield layer, norm


def is_part(layer: Call) -> bool:
    """Whether a layer stands among others in its statement: it is not the value that the statement assigns."""
    return getattr(layer.statement, "value", None) is not layer


def _in_sequentials(script: Script) -> Iterator[tuple[Call, Expr]]:
    for call in script.calls("torch.nn.Sequential"):
        parts = _parts(script, call)
        for first, second in itertools.pairwise(parts):
            # a layer from a helper may stand elsewhere, too: only what is built in the display itself
            if isinstance(first, Call) and _has_bias(script, first) and _is_norm(script, second):
                yield first, second


def _parts(script: Script, call: Call) -> list[Expr]:
    """The expressions of a Sequential's layers in order; [] where they cannot be seen."""
    found: list[Expr] = []
    for argument in call.args:
        display = _display(argument.value) if isinstance(argument, Starred) else None
        if isinstance(argument, Starred):
            if display is None:
                return []
            found.extend(display)
        elif isinstance(argument, Call) and argument.attr == "OrderedDict" and len(call.args) == 1 and argument.args:
            pairs = argument.args[0]
            if isinstance(pairs, Mapping):
                return list(pairs.values)
            if isinstance(pairs, Sequence):
                inner = [p.elements[1] for p in pairs.elements if isinstance(p, Sequence) and len(p.elements) == 2]
                return inner if len(inner) == len(pairs.elements) else []
        else:
            found.append(argument)
    return found


def _display(expr: Expr) -> list[Expr] | None:
    """The elements of a list that is written out: `*[a, b]`, or a name that is bound to one and never added to."""
    if isinstance(expr, Name):
        bindings = lookup(expr, expr.id)[0]
        if len(bindings) != 1 or bindings[0].how != "assign" or bindings[0].path or bindings[0].value is None:
            return None
        for method in ("append", "insert", "extend", "pop", "remove"):
            for call in expr.context.module.calls_by_attr.get(method, ()):
                if call.receiver is not None and dotted_name(call.receiver) == expr.id:
                    return None
        expr = bindings[0].value
    if isinstance(expr, Sequence) and not any(isinstance(e, Starred) for e in expr.elements):
        return list(expr.elements)
    return None


def _has_bias(script: Script, call: Call) -> bool:
    name = script.name_of(call.callee) or ""
    position = _BIAS.get(name.rpartition(".")[2]) if name.startswith("torch.nn.") else None
    if position is None or call.unpacks:
        return False
    bias = call.argument(position, "bias")
    return bias is None or script.constant(bias) is True


def bias_position(script: Script, call: Call) -> int | None:
    """The place of `bias` among the positional arguments of a layer."""
    return _BIAS.get((script.name_of(call.callee) or "").rpartition(".")[2])


_PRETRAINED = Pattern(rb"load_state_dict_from_url|model_zoo|load_from_hub|hf_hub_download|from_pretrained")


def needs_bias(script: Script, layer: Call) -> bool:
    """Whether the program may read the bias of a layer: pretrained weights hold it, or code asks for it unguarded."""
    program = script.semantics.program
    if program.says(script.module, _PRETRAINED):
        return True
    name = (script.name_of(layer.callee) or "").rpartition(".")[2]
    for module in program.modules(script.module, _BIAS_READ):
        for access in module.attributes.get("bias", ()):
            if not (_asks_for_bias(access) or _is_about_others(access, name)):
                return True
    return False


_BIAS_READ = Pattern(rb"\.bias\b")


def _asks_for_bias(access: Attribute) -> bool:
    """`if m.bias is not None: m.bias.data.zero_()`: the test, and what stands under it."""
    tests = [f.test for f in access.context.frames() if f.kind == "branch" and f.test is not None]
    statement = placement.own_statement(access)
    if isinstance(statement, If):
        tests.append(statement.test)
    return any(_asks(test) for test in tests)


def _asks(test: Expr) -> bool:
    """`m.bias is not None`, `m.bias`, `hasattr(m, "weight") and m.bias is not None`"""
    if isinstance(test, (Compare, Operator)):
        return any(_asks(operand) for operand in test.operands)
    return isinstance(test, Attribute) and test.attr == "bias"


def _is_about_others(access: Attribute, name: str) -> bool:
    """`if isinstance(m, nn.BatchNorm2d): nn.init.zeros_(m.bias)`"""
    for frame in access.context.frames():
        if frame.kind != "branch" or frame.test is None or frame.negated:
            continue
        words = {getattr(e, "attr", None) or getattr(e, "id", None) for e in walk.inside(frame.test)}
        if "isinstance" in words and not words & {name, "_ConvNd", "Module"}:
            return True
        texts = [e.value for e in walk.inside(frame.test) if isinstance(e, Constant) and isinstance(e.value, str)]
        if "find" in words and texts and not any(name.startswith(text) for text in texts):
            return True  # `classname.find("BatchNorm") != -1`
    return False


def _is_norm(script: Script, expr: Expr) -> bool:
    values = list(each(script.value(expr)))
    return bool(values) and all(_is_norm_object(v) for v in values)


def _is_norm_object(value: object) -> bool:
    return (
        isinstance(value, Object)
        and value.cls is None
        and value.name.startswith("torch.nn.")
        and value.name.rpartition(".")[2] in _NORMS
    )


# ------------------------------------------------------------------------------------------------------------- forward


def _in_forwards(script: Script) -> Iterator[tuple[Call, Expr]]:
    for cls in script.module.classes:
        forward = cls.methods.get("forward")
        if forward is not None and script.role(cls) == "module":
            yield from _in_forward(script, cls, forward)


def _in_forward(script: Script, cls: Class, forward: Function) -> Iterator[tuple[Call, Expr]]:
    calls = [c for c in forward.calls if len(c.args) == 1 and not c.keywords and _own_attribute(c.callee)]
    for norm in calls:
        if not _is_norm(script, norm.callee):
            continue
        fed = _only_source(norm.args[0], forward)
        if fed is None or _own_attribute(fed.callee) is None:
            continue
        built = _built(script, cls, _own_attribute(fed.callee) or "")
        if built is not None and _has_bias(script, built) and _is_called_once(cls, fed):
            yield built, norm


def _own_attribute(callee: Expr) -> str | None:
    if isinstance(callee, Attribute) and is_self(callee.value, callee.context):
        return callee.attr
    return None


def _only_source(expr: Expr, function: Function) -> Call | None:
    """The call whose result an argument is, where nothing else uses that result."""
    if isinstance(expr, Call):
        return expr
    if not isinstance(expr, Name):
        return None
    bindings = lookup(expr, expr.id)[0]
    if len(bindings) != 1 or bindings[0].how != "assign" or bindings[0].path or not isinstance(bindings[0].value, Call):
        return None
    for other in walk.names_read(function.module):
        if other is not expr and other.id == expr.id and other.context.function is function:
            if any(b is bindings[0] for b in lookup(other, other.id)[0]):
                return None
    return bindings[0].value


def _built(script: Script, cls: Class, name: str) -> Call | None:
    """The call in this file that an attribute is assigned from, where it is assigned once."""
    bindings = cls.attributes.get(name, [])
    if len(bindings) != 1 or not isinstance(bindings[0].value, Call) or not isinstance(bindings[0].statement, Assign):
        return None
    return bindings[0].value


def _is_called_once(cls: Class, call: Call) -> bool:
    name = dotted_name(call.callee)
    return sum(dotted_name(c.callee) == name for method in cls.methods.values() for c in method.calls) == 1

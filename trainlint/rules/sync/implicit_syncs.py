"""The places where Python needs a tensor's value without saying `.item()`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from trainlint.patterns_on_use import Pattern
from trainlint.rules import describe
from trainlint.semantic import walk
from trainlint.semantic.facts import (
    Assert,
    Call,
    Compare,
    Conditional,
    Context,
    Expr,
    FString,
    If,
    Mapping,
    Name,
    Operator,
    Sequence,
    Slice,
    Starred,
    Subscript,
    While,
)
from trainlint.semantic.logged import LOG_METHODS, is_written
from trainlint.semantic.values import Const, External, Items, Object, Routine, Text, Type, each

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_CONVERSIONS = frozenset({"float", "int", "bool", "str", "repr", "format", "complex"})
_PRINTS = frozenset({"print", "tqdm.tqdm.write", "pprint.pprint"})
_REDUCTIONS = frozenset({"max", "min", "sorted", "any", "all"})
_SIZED = frozenset("full zeros ones empty rand randn arange linspace eye randperm".split())
_SINKS = frozenset(
    "add_scalar add_scalars set_postfix set_postfix_str set_description log_metric log_metrics write_scalar log_scalar "
    "report_scalar".split()
)
_ASKING = _CONVERSIONS | _PRINTS | {"range", "log", "get_scale"} | _REDUCTIONS | _SIZED | _SINKS | LOG_METHODS
_SINK_OWNERS = Pattern(r"wandb|mlflow|neptune|comet|writer|tensorboard|aim|clearml|swanlab|tb", re.I)


Wanted = Callable[[Context], bool]


def find(script: Script, wanted: Wanted) -> Iterator[tuple[Expr, str]]:
    """Every expression that waits for a tensor, with words for what it does, in the places that are `wanted`.

    That is asked first: what a value is costs far more than where it stands.
    """
    yield from _calls(script, wanted)
    yield from tests(script, wanted)
    yield from _texts(script, wanted)
    yield from _indexes(script, wanted)


def _is_device(script: Script, expr: Expr) -> bool:
    if isinstance(expr, Starred):
        return _is_device(script, expr.value)
    return script.device_tensor(expr) is not None


# ------------------------------------------------------------------------------------------------------------ calls


def _calls(script: Script, wanted: Wanted) -> Iterator[tuple[Expr, str]]:
    for call in script.module.calls:
        attr = call.attr
        if attr is None or attr not in _ASKING or not wanted(call.context):
            continue
        if isinstance(call.callee, Name):
            yield from _builtin(script, call, attr)
        elif attr in _SINKS or attr == "log":
            yield from _sink(script, call, attr)
        elif attr in LOG_METHODS and any(_is_device(script, a) for a in call.args) and is_written(script, call):
            for argument in call.args:
                if _is_device(script, argument):
                    yield argument, f"logging {describe.text(argument)}"
        elif attr == "get_scale" and script.is_method_of(call, "scaler"):
            yield call, f"{describe.text(call)} reads the scale from the device and"
        elif attr in _SIZED and _outside(script, call.callee, f"torch.{attr}"):
            for argument in call.args[:2] if attr == "full" else call.args:
                for one in argument.elements if isinstance(argument, Sequence) else (argument,):
                    if _is_device(script, one):
                        yield one, f"{describe.text(one)} as an argument of torch.{attr}"


def _builtin(script: Script, call: Call, attr: str) -> Iterator[tuple[Expr, str]]:
    if attr in _CONVERSIONS and len(call.args) >= 1 and _outside(script, call.callee, attr):
        if _is_device(script, call.args[0]):
            yield call, describe.text(call)
    elif attr in _PRINTS and _outside(script, call.callee, attr):
        for argument in call.args:
            if _is_device(script, argument) or _holds_device(script, argument):
                yield argument, f"printing {describe.text(argument)}"
    elif attr in _REDUCTIONS and _outside(script, call.callee, attr):
        if _compares_tensors(script, call):
            yield call, f"the builtin {describe.text(call)}"
    elif attr == "range" and _outside(script, call.callee, "range"):
        for argument in call.args:
            if _is_device(script, argument):
                yield argument, f"{describe.text(argument)} as an argument of range"


def _outside(script: Script, callee: Expr, name: str) -> bool:
    """Whether a called name is the builtin (or torch's function), not something that hides it."""
    return any(isinstance(v, External) and v.name == name for v in each(script.value(callee)))


def _compares_tensors(script: Script, call: Call) -> bool:
    """`max(a, b)` of tensors, or over a list of 0-d tensors; `max(t)` of one tensor compares its elements.

    What a module returns, as a whole, may be a dict (of losses), and that gives its keys.
    """
    if len(call.args) > 1:
        return any(_is_device(script, a) for a in call.args if not isinstance(a, Starred))
    if not call.args:
        return False
    if _holds_device(script, call.args[0]):
        return True
    tensor = script.device_tensor(call.args[0])
    return tensor is not None and tensor.origin != "module"


def _holds_device(script: Script, expr: Expr) -> bool:
    """A list or dict display or comprehension of device tensors: printing or comparing it reads each of them."""
    for value in each(script.value(expr)):
        if isinstance(value, Items) and value.kind in ("list", "tuple", "set", "generator"):
            parts = value.elements if value.elements is not None else (value.element,)
            if parts and all(_tensor_value(p) for p in parts):
                return True
    return False


def _tensor_value(value: object) -> bool:
    from trainlint.semantic.values import Tensor

    return isinstance(value, Tensor) and value.device != "host"


def _sink(script: Script, call: Call, attr: str) -> Iterator[tuple[Expr, str]]:
    """Loggers turn a tensor into a number at once."""
    receiver = call.receiver
    if receiver is None:
        return
    for value in each(script.value(receiver)):
        if isinstance(value, (Routine, Type)):
            return
        if isinstance(value, Object) and value.role in ("module", "fabric"):
            return  # Lightning's self.log keeps the tensor
        if isinstance(value, Object) and value.cls is not None:
            return  # a logger of the project: what it does with the tensor is followed as a call
    if attr == "log":
        name = describe.text(receiver)
        if not _SINK_OWNERS.search(name) and not any(
            isinstance(v, Object) and v.role == "accelerator" for v in each(script.value(receiver))
        ):
            return
    for argument in [*call.args, *(k.value for k in call.keywords)]:
        for one in _values_in(argument):
            if _is_device(script, one):
                yield one, f"{describe.text(one)} handed to {attr}"


def _values_in(expr: Expr) -> Iterator[Expr]:
    if isinstance(expr, Mapping):
        for value in expr.values:
            yield from _values_in(value)
    elif isinstance(expr, Call) and expr.attr == "dict":
        for keyword in expr.keywords:
            yield keyword.value
    else:
        yield expr


# ------------------------------------------------------------------------------------------------------------ tests


def tests(script: Script, wanted: Wanted) -> Iterator[tuple[Expr, str]]:
    """Those of `find` that are conditions."""
    for statement in script.module.statements:
        if not isinstance(statement, (If, While, Assert)) or not wanted(statement.context):
            continue
        if isinstance(statement, (If, While)):
            yield from _truth(script, statement.test, "while" if isinstance(statement, While) else "if")
        else:
            yield from _truth(script, statement.test, "assert")
    for comprehension in script.module.comprehensions:
        for generator in comprehension.generators:
            for condition in generator.conditions:
                if wanted(condition.context):
                    yield from _truth(script, condition, "if")
    for expr in walk.of_module(script.module):
        if isinstance(expr, Conditional) and wanted(expr.context):
            yield from _truth(script, expr.test, "if")


def _is_list(script: Script, expr: Expr) -> bool:
    """A list or tuple: `in` compares its items one by one (a set or dict would look for the tensor's identity)."""
    return all(isinstance(v, Items) and v.kind in ("list", "tuple") for v in each(script.value(expr)))


def _truth(script: Script, test: Expr, word: str) -> Iterator[tuple[Expr, str]]:
    """The parts of a condition whose truth is a tensor's."""
    if isinstance(test, Operator) and test.op in ("and", "or", "not"):
        for operand in test.operands:
            yield from _truth(script, operand, word)
        return
    if isinstance(test, Compare) and any(op in ("is", "is not") for op in test.ops):
        return
    if isinstance(test, Compare) and any(op in ("in", "not in") for op in test.ops):
        if _is_device(script, test.operands[0]) and _is_list(script, test.operands[1]):
            yield test, f"{describe.text(test)}"
        return
    if isinstance(test, Call) and test.attr in ("equal", "allclose"):
        if any(_is_device(script, a) for a in test.args):
            yield test, f"`{word} {describe.text(test)}`"
        return
    if isinstance(test, Call) and test.attr == "bool" and isinstance(test.callee, Name):
        return  # reported as a conversion
    if _is_device(script, test):
        yield test, f"`{word} {describe.text(test)}`"


# ------------------------------------------------------------------------------------------------------------- text


def _texts(script: Script, wanted: Wanted) -> Iterator[tuple[Expr, str]]:
    for expr in walk.of_module(script.module):
        if not isinstance(expr, (FString, Operator, Call)) or not _may_format(expr) or not wanted(expr.context):
            continue
        if isinstance(expr, FString):
            for value in expr.values:
                if _is_device(script, value):
                    yield expr, f"formatting {describe.text(value)}"
                    break
        elif isinstance(expr, Operator) and expr.op == "%" and _is_text(script, expr.operands[0]):
            right = expr.operands[1]
            for value in _formatted(right):
                if _is_device(script, value) or (isinstance(value, Starred) and _holds_device(script, value.value)):
                    yield expr, f"formatting {describe.text(value)}"
                    break
        elif (
            isinstance(expr, Call)
            and expr.attr == "format"
            and expr.receiver is not None
            and _is_text(script, expr.receiver)
        ):
            for value in [*expr.args, *(k.value for k in expr.keywords)]:
                if _is_device(script, value):
                    yield expr, f"formatting {describe.text(value)}"
                    break


def _may_format(expr: FString | Operator | Call) -> bool:
    if isinstance(expr, Operator):
        return expr.op == "%"
    return isinstance(expr, FString) or expr.attr == "format"


def _formatted(right: Expr) -> Iterator[Expr]:
    if isinstance(right, Sequence):
        yield from right.elements
    elif isinstance(right, Operator) and right.op == "+":
        for operand in right.operands:
            yield from _formatted(operand)
    elif isinstance(right, Mapping):
        yield from right.values
    else:
        yield right


def _is_text(script: Script, expr: Expr) -> bool:
    values = each(script.value(expr))
    return any(isinstance(v, Text) or (isinstance(v, Const) and isinstance(v.value, str)) for v in values)


# ---------------------------------------------------------------------------------------------------------- indexes


def _indexes(script: Script, wanted: Wanted) -> Iterator[tuple[Expr, str]]:
    """A tensor as slice bound or as index of a Python list."""
    for expr in walk.of_module(script.module):
        if not isinstance(expr, Subscript) or not wanted(expr.context):
            continue
        parts = expr.index.elements if isinstance(expr.index, Sequence) else (expr.index,)
        for part in parts:
            if isinstance(part, Slice):
                for bound in (part.lower, part.upper, part.step):
                    if bound is not None and _is_device(script, bound):
                        yield bound, f"{describe.text(bound)} as a slice bound"
        if _is_device(script, expr.index) and any(
            isinstance(v, Items) and v.kind == "list" for v in each(script.value(expr.value))
        ):
            yield expr.index, f"{describe.text(expr.index)} as the index of a list"

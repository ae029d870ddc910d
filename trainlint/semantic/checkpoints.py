"""Files that `torch.save` writes and `torch.load` reads: what goes into them, and which load reads which file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.patterns_on_use import Pattern
from trainlint.records import NamedTuple
from trainlint.semantic import arguments
from trainlint.semantic.bindings import lookup
from trainlint.semantic.contexts import dotted_name
from trainlint.semantic.facts import (
    Attribute,
    Call,
    Constant,
    Context,
    Expr,
    FString,
    Function,
    Mapping,
    Module,
    Name,
    Sequence,
    Starred,
    With,
)
from trainlint.semantic.options import updated
from trainlint.semantic.values import (
    Array,
    Batch,
    Const,
    External,
    Items,
    Number,
    Object,
    Table,
    Tensor,
    Text,
    Unknown,
    Value,
    each,
)

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

LOADS = ("torch.load", "torch.serialization.load")
SAVES = ("torch.save", "torch.serialization.save")
_SPEAKS = Pattern(rb"\bsave\b|\bload\b|safe_globals")
_SAVING = Pattern(r"save|writ|dump|store|checkpoint|ckpt|snapshot|persist|export", re.I)
_ADDS = Pattern(rb"add_safe_globals")
_DEEPEST = 6


class Save(NamedTuple):
    """One place where an object is written. `call`: where the object can be seen, which may be a call of a wrapper."""

    call: Call
    content: Expr
    path: Expr | None


# ------------------------------------------------------------------------------------------------------ who saves, loads


def program_calls(script: Script, names: tuple[str, ...]) -> list[Call]:
    """Calls of outside functions anywhere in the program that a file belongs to."""
    return _calls_in(script, script.semantics.program.modules(script.module, _SPEAKS), names)


def _calls_in(script: Script, modules: list[Module], names: tuple[str, ...]) -> list[Call]:
    wanted = frozenset(names)
    last = sorted({n.rpartition(".")[2] for n in names})
    found: list[Call] = []
    for module in modules:
        for local in sorted({*last, *_renamed(module, last)}):
            for call in module.calls_by_attr.get(local, ()):
                if any(isinstance(v, External) and v.name in wanted for v in each(script.value(call.callee))):
                    found.append(call)
    return found


def _renamed(module: Module, names: list[str]) -> set[str]:
    """`from torch import load as read`"""
    return {
        bound for s in module.imports for bound, full in s.names if full.rpartition(".")[2] in names and "torch" in full
    }


def saves(script: Script) -> list[Save]:
    """Every place in the program that writes an object with `torch.save`, directly or through a wrapper of the project."""
    found: list[Save] = []
    for call in program_calls(script, SAVES):
        found.extend(_followed(script, call, 0))
    return found


def _followed(script: Script, call: Call, depth: int) -> Iterator[Save]:
    """The save itself, or the calls of the function that only passes its own parameter on."""
    function = call.context.function
    content = call.argument(0, "obj")
    path = call.argument(1, "f")
    if content is None and call.args and isinstance(call.args[0], Starred) and function is not None:
        # def save_on_master(*args, **kwargs): torch.save(*args, **kwargs)
        for site in script.inference.callgraph.callers(function):
            if site.call.args and depth < _DEEPEST and not isinstance(site.call.args[0], Starred):
                yield Save(site.call, site.call.args[0], site.call.argument(1, "f"))
        return
    if content is None:
        return
    parameter = _parameter(content, function)
    if parameter is None or function is None or depth >= _DEEPEST:
        yield Save(call, content, path)
        return
    yield from _passed(script, Save(call, content, path), function, parameter, depth, True)


def _passed(script: Script, inner: Save, function: Function, name: str, depth: int, follows: bool) -> Iterator[Save]:
    """What the callers of a function give for a parameter that is saved there. `follows`: the place is the caller's, as
    far out as functions are called to save something."""
    wanted = next(p for p in function.parameters if p.name == name)
    for site in script.inference.callgraph.callers(function):
        argument = site.argument(function, wanted)
        if not isinstance(argument, Expr):
            continue
        outward = follows and _is_wrapper(function, argument)
        save = (
            Save(site.call, argument, inner.path if depth == 0 else None)
            if outward
            else inner._replace(content=argument)
        )
        outer = site.call.context.function
        further = _parameter(argument, outer)
        if further is not None and outer is not None and outer is not function and depth < _DEEPEST:
            yield from _passed(script, save, outer, further, depth + 1, outward)
        else:
            yield save


def _is_wrapper(function: Function, given: Expr) -> bool:
    """A function that is called to save something: it is named so, or what it is given is put together for it. What
    saves its options among all else it does (`train(args)`) is none."""
    name = function.name
    if name == "__call__" and function.cls is not None:
        name = function.cls.name
    return bool(_SAVING.search(name)) or not isinstance(given, (Name, Attribute))


def _parameter(expr: Expr, function: Function | None) -> str | None:
    """The parameter of the function that an expression is, never assigned anew and never added to."""
    if function is None or not isinstance(expr, Name):
        return None
    if not any(p.name == expr.id for p in function.parameters):
        return None
    if function.cls is not None and function.parameters[0].name == expr.id:
        return None
    if any(b.how != "parameter" for b in function.locals.get(expr.id, ())):
        return None
    return expr.id


# -------------------------------------------------------------------------------------------------------------- paths


def path_key(script: Script, path: Expr | None) -> str | None:
    """What tells one file from another: its last component where that is written out, else the expression as written."""
    return _path_key(script, path, 0)


def _path_key(script: Script, path: Expr | None, depth: int) -> str | None:
    if path is None or depth > _DEEPEST:
        return None
    if isinstance(path, Call) and path.attr in (
        "open",
        "Path",
        "str",
        "PosixPath",
        "fspath",
        "expanduser",
        "abspath",
        "resolve",
        "as_posix",
    ):
        inner = path.args[0] if path.args else path.receiver
        return _path_key(script, inner, depth + 1) if inner is not None else None
    held = script.value(path)
    if isinstance(held, Const) and isinstance(held.value, str):
        name = re.split(r"[\\/]", held.value)[-1]
        if name and not held.settable:
            return f"file:{name}"
    if isinstance(path, Call) and path.attr in ("join", "joinpath") and path.args:
        return _path_key(script, path.args[-1], depth + 1)
    if isinstance(path, FString):
        parts = [dotted_name(v) for v in path.values]
        return "form:" + " ".join(p or "?" for p in parts) if parts else None
    operands = getattr(path, "operands", ())
    if operands and getattr(path, "op", "") in ("/", "+"):
        return _path_key(script, operands[-1], depth + 1)
    if isinstance(path, Name):
        bindings = lookup(path, path.id)[0]
        if (
            len(bindings) == 1
            and bindings[0].how == "assign"
            and not bindings[0].path
            and bindings[0].value is not None
        ):
            return _path_key(script, bindings[0].value, depth + 1)
        if len(bindings) == 1 and bindings[0].how == "with" and bindings[0].value is not None:
            return _path_key(script, bindings[0].value, depth + 1)
    dotted = dotted_name(path)
    return f"name:{dotted}" if dotted is not None else None


def in_memory(script: Script, path: Expr | None) -> bool:
    """A buffer, not a file: `io.BytesIO()`."""
    seen = 0
    while isinstance(path, Name) and seen < _DEEPEST:
        bindings = lookup(path, path.id)[0]
        if len(bindings) != 1 or bindings[0].how not in ("assign", "with"):
            return False
        path = bindings[0].value
        seen += 1
    return isinstance(path, Call) and path.attr == "BytesIO"


def own_saves(script: Script, load: Call) -> list[Call]:
    """The `torch.save` calls of the program, and of the scripts beside it, that write the file which a load reads."""
    key = path_key(script, load.argument(0, "f"))
    if key is None:
        return []
    modules = script.semantics.program.modules(script.module, _SPEAKS)
    found = [c for c in _calls_in(script, modules, SAVES) if path_key(script, c.argument(1, "f")) == key]
    if found or not key.startswith("file:"):
        return found
    beside = _beside(script, modules, key.removeprefix("file:").encode())
    return [c for c in _calls_in(script, beside, SAVES) if path_key(script, c.argument(1, "f")) == key]


def _beside(script: Script, known: list[Module], name: bytes) -> list[Module]:
    """Scripts in the same folder that speak of a file: one prepares the data, the other trains on it."""
    project = script.project
    folder = os.path.dirname(script.module.path)
    seen = {m.path for m in known}
    paths = [p for p in project.locator.files() if os.path.dirname(p) == folder and p.endswith(".py") and p not in seen]
    found = [
        project.module(p)
        for p in paths
        if name in project.neighbours.bytes_of(p) and b"torch.save" in project.neighbours.bytes_of(p)
    ]
    return [m for m in found if m is not None]


# --------------------------------------------------------------------------------------------------------- how it loads


def allows_more(script: Script, context: Context) -> bool:
    """Under `with torch.serialization.safe_globals([...])`, or in a program that calls `add_safe_globals`."""
    if under_safe_globals(context):
        return True
    return any(
        module.calls_by_attr.get("add_safe_globals")
        for module in script.semantics.program.modules(script.module, _ADDS)
    )


def under_safe_globals(context: Context) -> bool:
    for frame in context.frames():
        record = frame.record
        if frame.kind == "with" and isinstance(record, With):
            for item in record.items:
                if isinstance(item.value, Call) and item.value.attr == "safe_globals":
                    return True
    return False


def adds_safe_globals(module: Module, context: Context) -> bool:
    """Whether `add_safe_globals` is called in the same function, or at the top of the same file."""
    calls = module.calls_by_attr.get("add_safe_globals", ())
    return any(call.context.function in (None, context.function) for call in calls)


def weights_only(script: Script, load: Call) -> object:
    """True, False, None where it is not said, `...` where it cannot be told."""
    held = arguments.given(script.inference, load, "weights_only")
    if held is None:
        return None
    values = {v.value if isinstance(v, Const) and isinstance(v.value, (bool, type(None))) else ... for v in each(held)}
    return values.pop() if len(values) == 1 else ...


def reads_in_full(script: Script) -> bool:
    """Whether some load of the program asks for whole objects, or lists the classes that it expects."""
    loads = program_calls(script, LOADS)
    return any(weights_only(script, load) is False or allows_more(script, load.context) for load in loads)


# ------------------------------------------------------------------------------------------------------------- content


class Part(NamedTuple):
    """One part of what is saved that only a full unpickling can read. `what`: in the field's words."""

    what: str
    key: str


def refused(script: Script, content: Expr) -> list[Part]:
    """The parts of an object that `torch.load(weights_only=True)` refuses, as far as they are known.

    Checked on torch 2.13: namespaces, modules, optimizers, numpy arrays and scalars, pathlib paths, and instances of the
    project's own classes are refused; tensors, numbers, strings, lists, tuples, sets, dicts and devices are not.
    """
    found: list[Part] = []
    for value in each(script.value(content)):
        found.extend(_refused(value, "", 0))
        if isinstance(value, Table):
            for name, held in updated(script.inference, content, value).items:
                if not any(name == key and held == old for key, old in value.items):
                    for one in each(held):
                        found.extend(_refused(one, name, 1))
    return list(dict.fromkeys(found))


def _refused(value: Value, key: str, depth: int) -> Iterator[Part]:
    if depth > _DEEPEST:
        return
    if isinstance(value, Table):
        for name, held in value.items:
            for one in each(held):
                yield from _refused(one, key or name, depth + 1)
    elif isinstance(value, Items):
        for held in value.elements if value.elements is not None else (value.element,):
            for one in each(held):
                yield from _refused(one, key, depth + 1)
    elif isinstance(value, Array):
        yield Part("a numpy value", key)
    elif isinstance(value, Object):
        what = _object(value)
        if what is not None:
            yield Part(what, key)


def _object(value: Object) -> str | None:
    if value.role == "options":
        if value.name.startswith("omegaconf."):
            return "an OmegaConf config"
        if value.name == "namespace":
            return "a namespace"
        # by name alone (`args`, `cfg`) it may be a plain dict
        return "an argparse.Namespace" if value.call is not None or value.name.startswith("argparse.") else None
    if value.role in ("module", "loss"):
        return "a whole module"
    if value.role in ("optimizer", "scheduler", "scaler") and (value.call is not None or value.name):
        return f"a whole {value.role}"
    if value.role == "object" and value.cls is not None:
        return f"an instance of {value.cls.name}"
    return None


def on_host(script: Script, content: Expr) -> bool:
    """Whether every tensor in what is saved is known to lie in host memory, and there is nothing else that is unknown."""
    value = script.value(content)
    if isinstance(value, Table):
        value = updated(script.inference, content, value)
    return all(_on_host(one, 0) for one in each(value))


def _on_host(value: Value, depth: int) -> bool:
    if depth > _DEEPEST or isinstance(value, Unknown):
        return False
    if isinstance(value, (Tensor, Batch)):
        return value.device == "host"
    if isinstance(value, (Const, Number, Text, Array)):
        return True
    if isinstance(value, Table):
        return bool(value.items) and all(_on_host(o, depth + 1) for _, v in value.items for o in each(v))
    if isinstance(value, Items):
        parts = value.elements if value.elements is not None else (value.element,)
        return all(_on_host(o, depth + 1) for p in parts for o in each(p))
    return False


def identity(script: Script, content: Expr) -> tuple[object, ...]:
    """Tells saved objects apart: two saves of one dict, or of one model, are the same object."""
    if isinstance(content, Name):
        bindings = lookup(content, content.id)[0]
        if len(bindings) == 1 and isinstance(bindings[0].value, Expr):
            return ("made", id(bindings[0].value))
    if isinstance(content, (Mapping, Sequence, Call, Constant)):
        return ("at", id(content))
    dotted = dotted_name(content)
    function = content.context.function
    if isinstance(content, (Name, Attribute)) and dotted is not None:
        return ("name", dotted, id(content.context.cls if dotted.startswith("self.") else function))
    return ("at", id(content))

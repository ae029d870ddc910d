"""Mixed precision: autocast regions and the dtype they run in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainlint.records import NamedTuple
from trainlint.semantic import known
from trainlint.semantic.bindings import lookup
from trainlint.semantic.facts import Call, Context, Expr, Name
from trainlint.semantic.values import Const, External, Object, Text, Unknown, each

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_HALF = frozenset({"torch.float16", "torch.half"})
_BFLOAT = frozenset({"torch.bfloat16"})


def autocast_calls(script: Script) -> list[Call]:
    """Calls that make an autocast region, in source order."""
    return list(script.calls(*known.AUTOCASTS))


def autocast_dtype(script: Script, call: Call) -> str | None:
    """ "float16", "bfloat16", or None when it cannot be told.

    Without `dtype`, autocast uses float16 on cuda, mps and xpu, bfloat16 on cpu and hpu (checked on torch 2.13:
    `torch.get_autocast_dtype`).
    """
    names = {v.name for v in each(script.value(call.callee)) if isinstance(v, External)}
    legacy = any(n.startswith(("torch.cuda.amp.", "torch.cpu.amp.")) for n in names)
    call = _with_partial(script, call)
    dtype = call.argument(1, "dtype") or call.keyword("fast_dtype")
    if dtype is not None:
        return _dtype(script, call, dtype)
    if call.unpacks:
        return None
    if legacy:
        return "float16" if all(n.startswith("torch.cuda.amp.") for n in names) else "bfloat16"
    return _default(script, call)


def _with_partial(script: Script, call: Call) -> Call:
    """For `mixed = partial(torch.autocast, device_type="cuda")` and `mixed()`: the call that names the options."""
    callee = call.callee
    if isinstance(callee, Name) and not call.args and not call.keywords:
        for binding in lookup(callee, callee.id)[0]:
            made = binding.value
            if isinstance(made, Call) and made.attr == "partial" and made.args:
                return Call(made.node, made.args[0], made.args[1:], made.keywords)
    return call


def _dtype(script: Script, call: Call, dtype: object) -> str | None:
    kinds: set[str | None] = set()
    for value in each(script.value(dtype)):  # type: ignore[arg-type]
        if isinstance(value, External) and value.name in _HALF:
            kinds.add("float16")
        elif isinstance(value, External) and value.name in _BFLOAT:
            kinds.add("bfloat16")
        elif isinstance(value, Const) and value.value is None:
            kinds.add(_default(script, call))
        else:
            kinds.add(None)
    return kinds.pop() if len(kinds) == 1 else None


def _default(script: Script, call: Call) -> str | None:
    device = call.argument(0, "device_type")
    if device is None:
        return None
    kinds: set[str | None] = set()
    for value in each(script.value(device)):
        if isinstance(value, Const) and isinstance(value.value, str):
            kind = value.value.partition(":")[0]
            kinds.add("bfloat16" if kind in ("cpu", "hpu") else "float16" if kind in ("cuda", "mps", "xpu") else None)
        elif isinstance(value, (Text, Unknown)):
            kinds.add("float16" if _follows_device(script, device) else None)
        elif isinstance(value, Object) and value.role == "device":
            kinds.add("bfloat16" if value.name == "cpu" else "float16")
        else:
            kinds.add(None)
    if "float16" in kinds and None not in kinds:
        return "float16"  # on one of the devices that the script may pick
    return kinds.pop() if len(kinds) == 1 else None


def _follows_device(script: Script, device: object) -> bool:
    """`device_type=device.type`, where the device may be an accelerator."""
    owner = getattr(device, "value", None)
    if owner is None or getattr(device, "attr", "") != "type":
        return False
    return any(
        isinstance(v, Object) and v.role == "device" and not v.name.startswith("cpu") for v in each(script.value(owner))
    )


# --------------------------------------------------------------------------------------------- regions and scalers


class Region(NamedTuple):
    """An autocast around a place. `enabled`: False where it is switched off for good, None where it depends on a value
    that is not known or a flag that is off by default. `calls`: those that lead from the region to the place, nearest first."""

    call: Call
    enabled: bool | None
    calls: tuple[Call, ...] = ()


def region(script: Script, context: Context) -> Region | None:
    """The innermost autocast under which a place runs, by its with blocks, decorators and callers."""
    return _region(script, context, (), set())


def _region(script: Script, context: Context, calls: tuple[Call, ...], seen: set[int]) -> Region | None:
    for frame in context.local_frames():
        found: Call | None = None
        if frame.kind == "with":
            for item in reversed(frame.record.items):
                found = found or _autocast_behind(script, item.value)
        elif frame.kind == "function":
            for decorator in frame.record.decorators:
                found = found or _autocast_behind(script, decorator)
        if found is not None:
            return Region(found, is_enabled(script, found), calls)
    function = context.function
    if function is None or id(function) in seen or len(calls) > 6:
        return None
    seen.add(id(function))
    for site in script.inference.callgraph.callers(function):
        inner = _region(script, site.call.context, (*calls, site.call), seen)
        if inner is not None:
            return inner
    return None


def _autocast_behind(script: Script, expr: Expr, depth: int = 0) -> Call | None:
    """The autocast call that a context manager expression stands for, also through a context manager of the project."""
    for value in each(script.value(expr)):
        if isinstance(value, Object) and value.name in known.AUTOCASTS and value.call is not None:
            return value.call
    if isinstance(expr, Call) and depth < 3:
        for callee in script.inference.callgraph.callees(expr):
            for given in callee.function.yields:
                for frame in given.context.local_frames():
                    if frame.kind == "with":
                        for item in frame.record.items:
                            found = _autocast_behind(script, item.value, depth + 1)
                            if found is not None:
                                return found
    return None


def enabling(script: Script, call: Call) -> Expr | None:
    """What an autocast or scaler is given for `enabled`."""
    call = _with_partial(script, call)
    given = call.keyword("enabled")
    if given is None and call.args and _is_legacy(script, call) and call.attr != "GradScaler":
        given = call.args[0]
    return given


def is_enabled(script: Script, call: Call) -> bool | None:
    """`enabled=` of an autocast or scaler: True, False, or None where it depends."""
    given = enabling(script, call)
    if given is None:
        return None if call.unpacks else True
    values = set()
    for value in each(script.value(given)):
        if not isinstance(value, Const) or (value.settable and not value.value):
            return None
        values.add(bool(value.value))
    return values.pop() if len(values) == 1 else None


def _is_legacy(script: Script, call: Call) -> bool:
    names = {v.name for v in each(script.value(call.callee)) if isinstance(v, External)}
    return any(n.startswith(("torch.cuda.amp.", "torch.cpu.amp.")) for n in names)


def autocast_device(script: Script, call: Call) -> str | None:
    """ "cuda", "cpu" ... of an autocast, None when not known."""
    names = {v.name for v in each(script.value(call.callee)) if isinstance(v, External)}
    if names and all(n.startswith("torch.cuda.amp.") for n in names):
        return "cuda"
    if names and all(n.startswith("torch.cpu.amp.") for n in names):
        return "cpu"
    given = _with_partial(script, call).argument(0, "device_type")
    if given is None:
        return None
    for value in each(script.value(given)):
        if isinstance(value, Const) and isinstance(value.value, str) and value.value.partition(":")[0] == "cuda":
            return "cuda"
    if _follows_device(script, given):
        return "cuda"
    value = script.value(given)
    return value.value if isinstance(value, Const) and isinstance(value.value, str) else None


def scaler_calls(script: Script) -> list[Call]:
    """Calls that make a GradScaler, in source order."""
    return list(script.calls(*known.SCALERS))

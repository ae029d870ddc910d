"""What an expression can hold: the records that `inference` computes. Immutable; compared by content."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from trainlint.records import NamedTuple

if TYPE_CHECKING:
    from trainlint.semantic.facts import Call, Class, Function


class Unknown(NamedTuple):
    """Nothing is known: a rule that asks stays silent. `why` is for `--why`."""

    why: str = ""


class Const(NamedTuple):
    """A number, string, True, False or None known by value. `settable`: the default of a command line or config option."""

    value: object
    settable: bool = False


class Number(NamedTuple):
    """A Python number (or bool) that is not known by value. `synced`: it came out of a tensor."""

    kind: str = "number"  # "int", "float", "bool", "number"


class Text(NamedTuple):
    """A string not known by value."""


class Tensor(NamedTuple):
    """`device`: "host", "device" (an accelerator, where there is one) or None when not known. `graph`: whether it hangs on
    an autograd graph when autograd is on (None: not known). `origin`: where it comes from, in the field's words.
    `sure` is False when only convention says that it is a tensor (a name, a position). `size`: "scalar", or None."""

    device: str | None = None
    graph: bool | None = None
    origin: str = "tensor"
    sure: bool = True
    size: str | None = None


class Array(NamedTuple):
    """A numpy array or scalar, on the host by nature."""


class Items(NamedTuple):
    """A tuple, list or set. `elements` None: length unknown, each one is `element`. `grown`: it began empty, and each of
    those that were added is `element`, also by position."""

    kind: str
    elements: tuple[Value, ...] | None
    element: Value
    grown: bool = False


class Table(NamedTuple):
    """A dict with known string keys; `rest` for keys that are not known."""

    items: tuple[tuple[str, Value], ...]
    rest: Value
    complete: bool = False  # no other keys

    def get(self, key: object) -> Value:
        for name, value in self.items:
            if name == key:
                return value
        return self.rest


class Batch(NamedTuple):
    """What a loader yields: a structure of host tensors, its shape unknown until it is unpacked. `part`: one item of it,
    which is a tensor as soon as it is used like one."""

    device: str | None = "host"
    part: bool = False


class Object(NamedTuple):
    """An instance. `role` in the field's words: module, loss, optimizer, scheduler, scaler, loader, sampler, dataset,
    device, accelerator, fabric, engine (DeepSpeed), trainer, writer, parser, options, iterator ... or "object".
    `name` is the full name of its class, `cls` the project's class, `call` what built it, `inner` what it wraps."""

    role: str
    name: str = ""
    cls: Class | None = None
    call: Call | None = None
    inner: tuple[Value, ...] = ()


class Routine(NamedTuple):
    """A function of the project, bound to an object when it is a method; `given` positional arguments are filled in."""

    function: Function
    owner: Value | None = None
    given: int = 0


class Type(NamedTuple):
    """A class of the project."""

    cls: Class


class External(NamedTuple):
    """Something outside the project by its full name: "torch.utils.data.DataLoader"."""

    name: str


class Method(NamedTuple):
    """A bound method that is not the project's: `loss.item`, `loader.__len__`."""

    owner: Value
    name: str


class OneOf(NamedTuple):
    """Different things on different paths."""

    values: tuple[Value, ...]


Value: TypeAlias = (
    Unknown
    | Const
    | Number
    | Text
    | Tensor
    | Array
    | Items
    | Table
    | Batch
    | Object
    | Routine
    | Type
    | External
    | Method
    | OneOf
)

UNKNOWN = Unknown()
NONE = Const(None)


def each(value: Value) -> tuple[Value, ...]:
    """The alternatives of a value; None (a placeholder) is left out where there is anything else."""
    return value.values if isinstance(value, OneOf) else (value,)


def join(values: list[Value]) -> Value:
    """One value for several paths. `None` placeholders and what is not known go when something is known."""
    if len(values) == 1 and not isinstance(values[0], OneOf):
        return values[0]
    flat: list[Value] = []
    known: list[Value]
    for value in values:
        for alternative in each(value):
            # records of different kinds can be equal as tuples
            if not any(type(v) is type(alternative) and v == alternative for v in flat):
                flat.append(alternative)
    known = [v for v in flat if not isinstance(v, Unknown) and not (isinstance(v, Const) and v.value is None)]
    if len(known) < len(flat) and any(isinstance(v, Unknown) for v in flat):
        known = [_anywhere(v) for v in known]
    if not known:
        known = [v for v in flat if not isinstance(v, Unknown)] or flat
    tensors = [v for v in known if isinstance(v, Tensor)]
    if len(tensors) > 1:
        merged = merge_tensors(tensors)
        known = [v for v in known if not isinstance(v, Tensor)]
        known.append(merged)
    if not known:
        return UNKNOWN
    if len(known) == 1:
        return known[0]
    return OneOf(tuple(known[:8]))


def _anywhere(value: Value) -> Value:
    """On a path that is not known, what is on the host here may be on a device."""
    if isinstance(value, Tensor) and value.device == "host":
        return value._replace(device=None)
    if isinstance(value, Object) and value.role == "device" and value.name == "cpu":
        return value._replace(name="")
    return value


def merge_tensors(tensors: list[Tensor]) -> Tensor:
    devices = {t.device for t in tensors}
    device = "device" if "device" in devices else None if None in devices else "host"
    graphs = {t.graph for t in tensors}
    graph = True if True in graphs else None if None in graphs else False
    origin = next((t.origin for t in tensors if t.origin != "tensor"), "tensor")
    sizes = {t.size for t in tensors}
    return Tensor(device, graph, origin, any(t.sure for t in tensors), sizes.pop() if len(sizes) == 1 else None)


def constant(value: Value) -> object:
    """The Python value of a known constant, `...` for anything else (so that None stays a value of its own)."""
    return value.value if isinstance(value, Const) else ...

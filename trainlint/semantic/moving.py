"""Whether the batches that a loop draws are moved to CUDA: in the loop itself, or in what it hands them to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.patterns_on_use import Pattern
from trainlint.semantic import external, known
from trainlint.semantic.facts import (
    Attribute,
    Binding,
    Call,
    Comprehension,
    Conditional,
    Context,
    Expr,
    For,
    Function,
    Name,
    Operator,
    Sequence,
    Starred,
    Subscript,
    Walrus,
)
from trainlint.semantic.values import Const, External, Object, Tensor, Value, each

if TYPE_CHECKING:
    from trainlint.semantic.feeding import Feed
    from trainlint.semantic.script import Script

_DEEPEST = 5
_CUDA = Pattern(rb"cuda|accelerator\b|nvidia|device_map|[\"']gpu|\bgpu")
# builtins whose result has nothing of the tensor that they are given
_ANSWERS = frozenset("len range int float bool str print isinstance type id repr ".split())


def move_to_cuda(script: Script, feed: Feed) -> Call | None:
    """The first call that moves what a loop draws to a device that may be CUDA, None when there is none."""
    return _Mover(script).of_feed(feed)


def is_cuda(script: Script, expr: Expr | None) -> bool:
    """Whether a device argument is known to name CUDA, on some way at least."""
    if expr is None:
        return False
    names = {n for v in each(script.value(expr)) for n in _device_names(script, v) if n is not None}
    return any(n.partition(":")[0] == "cuda" for n in names)


def may_be_cuda(script: Script, expr: Expr | None) -> bool:
    """Whether a device argument may point to CUDA. An unknown device does where the file speaks of CUDA at all."""
    if expr is None:
        return False
    unknown = False
    names: set[str] = set()
    for value in each(script.value(expr)):
        for name in _device_names(script, value):
            if name is None:
                unknown = True
            else:
                names.add(name.partition(":")[0])
    if "cuda" in names:
        return True
    if not unknown or external.device_of(script.inference, expr) == "host":
        return False
    if external.device_of(script.inference, expr) != "device":
        return False
    module = expr.context.module
    return _speaks_of_cuda(script, module.path)


def _device_names(script: Script, value: Value) -> Iterator[str | None]:
    if isinstance(value, Const) and isinstance(value.value, str):
        yield value.value
    elif isinstance(value, Const) and isinstance(value.value, int):
        yield "cuda"
    elif isinstance(value, Object) and value.role == "device":
        given = value.call.argument(0, "type") if value.call is not None else None
        if value.name:
            yield value.name
        elif given is not None:
            for one in each(script.value(given)):
                yield from _device_names(script, one)
        else:
            yield None
    elif isinstance(value, Tensor):
        yield "cpu" if value.device == "host" else None
    else:
        yield None


def _speaks_of_cuda(script: Script, path: str) -> bool:
    neighbours = script.project.neighbours
    return neighbours.any_speaks(neighbours.around(path), _CUDA)


class _Mover:
    """Follows names that hold (part of) a batch through assignments and calls."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.seen: set[tuple[int, frozenset[str]]] = set()

    def of_feed(self, feed: Feed) -> Call | None:
        record = feed.record
        if isinstance(record, Call):
            return self._of_next(record, feed)
        assert feed.frame is not None
        names: set[str] = set()
        targets = [record.target] if isinstance(record, For) else []
        if isinstance(record, Comprehension):
            targets = [g.target for g in record.generators]
        for target in targets:
            names |= _target_names(target)
        scope = feed.frame.function
        return self._within(feed.frame, scope, names, 0)

    def _of_next(self, record: Call, feed: Feed) -> Call | None:
        """`batch = next(it)`: the names it is assigned to, and moves of the call itself."""
        context = record.context
        function = context.function
        return self._within(context if function is None else function.inner, function, set(), 0, record)

    def _within(
        self, frame: Context, function: Function | None, names: set[str], depth: int, source: Call | None = None
    ) -> Call | None:
        key = (id(frame), frozenset(names))
        if depth > _DEEPEST or key in self.seen:
            return None
        self.seen.add(key)
        names = self._spread(frame, function, names, source)
        calls = function.calls if function is not None else self.script.semantics.loops.calls_of(frame)
        inside = [c for c in calls if c.context.within(frame)]
        for call in inside:
            if self._moves(call, names, source):
                return call
        for call in inside:
            found = self._entered(call, names, depth, source)
            if found is not None:
                return found
        return None

    def _spread(self, frame: Context, function: Function | None, names: set[str], source: Call | None) -> set[str]:
        """All names in a block that get (part of) what is in `names`."""
        names = set(names)
        scope = function.locals if function is not None else frame.module.names
        bindings = [b for group in scope.values() for b in group if b.value is not None and b.context.within(frame)]
        grown = True
        while grown:
            grown = False
            for binding in bindings:
                if binding.name not in names and self._carries(binding, names, source):
                    names.add(binding.name)
                    grown = True
        return names

    def _carries(self, binding: Binding, names: set[str], source: Call | None) -> bool:
        assert binding.value is not None
        return _reads(self.script, binding.value, names, source)

    def _moves(self, call: Call, names: set[str], source: Call | None) -> bool:
        attr = call.attr
        receiver = call.receiver
        if receiver is not None and attr in ("cuda", "to", "type", "type_as", "copy_"):
            if attr == "copy_":
                held = self.script.value(receiver)
                given = call.argument(0)
                return (
                    isinstance(held, Tensor)
                    and held.device == "device"
                    and given is not None
                    and _reads(self.script, given, names, source)
                )
            return _reads(self.script, receiver, names, source) and self._to_cuda(call)
        if attr is not None and external.MOVERS.search(attr) and not self.script.callees(call):
            return any(_reads(self.script, a, names, source) for a in call.args)
        return False

    def _to_cuda(self, call: Call) -> bool:
        if call.attr == "cuda":
            return True
        target = call.keyword("device") or call.argument(0) or call.keyword("other")
        if target is None:
            return False
        for value in each(self.script.value(target)):
            if isinstance(value, External):
                if value.name.startswith("torch.cuda."):
                    return True
                second = call.argument(1)
                if value.name.startswith("torch.") and second is not None:
                    return may_be_cuda(self.script, second)
            elif isinstance(value, Const) and isinstance(value.value, str) and value.value.startswith("torch.cuda."):
                return True
        if call.attr in ("type", "type_as"):
            return any(isinstance(v, Tensor) and v.device == "device" for v in each(self.script.value(target)))
        return may_be_cuda(self.script, target)

    def _entered(self, call: Call, names: set[str], depth: int, source: Call | None) -> Call | None:
        arguments: list[tuple[int | str | None, Expr]] = list(enumerate(call.args))
        arguments += [(k.name, k.value) for k in call.keywords]
        given = [(place, a) for place, a in arguments if _reads(self.script, a, names, source)]
        on_batch = call.receiver is not None and _reads(self.script, call.receiver, names, source)
        if not given and not on_batch:
            return None
        for callee in self.script.inference.callgraph.callees(call):
            function = callee.function
            inner: set[str] = set()
            for place, argument in given:
                inner |= _parameters(function, place, callee.shift, argument)
            if on_batch and callee.shift == 1 and function.parameters:
                inner.add(function.parameters[0].name)
            if inner:
                found = self._within(function.inner, function, inner, depth + 1)
                if found is not None:
                    return found
        return None


def _parameters(function: Function, place: int | str | None, shift: int, argument: Expr) -> set[str]:
    if isinstance(place, int):
        if isinstance(argument, Starred):
            return {p.name for p in function.parameters[place + shift :]}
        index = place + shift
        if index < len(function.parameters):
            return {function.parameters[index].name}
        return {p.name for p in function.parameters if p.kind == "*"}
    if place is None:
        return {p.name for p in function.parameters[shift:]}
    return {p.name for p in function.parameters if p.name == place or p.kind == "**"}


def _target_names(target: Expr) -> set[str]:
    if isinstance(target, Name):
        return {target.id}
    if isinstance(target, Starred):
        return _target_names(target.value)
    if isinstance(target, Sequence):
        return {n for e in target.elements for n in _target_names(e)}
    return set()


def _reads(script: Script, expr: Expr, names: set[str], source: Call | None) -> bool:
    """Whether an expression is (part of) what a name holds, or made of it on the same device."""
    stack: list[Expr] = [expr]
    while stack:
        current = stack.pop()
        if current is source:
            return True
        if isinstance(current, Name):
            if current.id in names:
                return True
        elif isinstance(current, (Attribute, Subscript, Starred, Walrus)):
            if isinstance(current, Attribute) and current.attr in ("shape", "device", "dtype"):
                continue
            stack.append(current.value)
        elif isinstance(current, Operator):
            stack += current.operands
        elif isinstance(current, Conditional):
            stack += [current.body, current.orelse]
        elif isinstance(current, Sequence):
            stack += current.elements
        elif isinstance(current, Comprehension):
            stack.append(current.element)
            stack += [g.iter for g in current.generators]
        elif isinstance(current, Call):
            if current.receiver is not None and current.attr not in ("size", "numel", "dim", "item", "tolist"):
                stack.append(current.receiver)
            if _passes_on(script, current):
                stack += [*current.args, *(k.value for k in current.keywords)]
    return False


def _passes_on(script: Script, call: Call) -> bool:
    """Whether what a call gives may hold what it is given."""
    if call.attr in _ANSWERS:
        return False
    for value in each(script.value(call.callee)):
        if isinstance(value, External) and value.name in known.FACTORIES:
            return value.name.rpartition(".")[2] in ("tensor", "as_tensor", "from_numpy", "asarray")
        if isinstance(value, Object) and value.role in ("module", "loss", "engine"):
            return False  # an output, wherever it lies
    return True

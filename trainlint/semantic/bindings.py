"""Which of a name's bindings can be the one that a use sees. By structure (blocks, branches, loops), without a flow graph."""

from __future__ import annotations

from collections.abc import Sequence

from trainlint.semantic.facts import Binding, Context, Expr

_TRANSPARENT = ("with", "try", "finally")


def lookup(expr: Expr, name: str) -> tuple[list[Binding], bool]:
    """The bindings that a use of `name` at `expr` can see, and whether the name is bound in this file at all."""
    context, order = expr.context, expr.order
    direct = True  # still in the scope where the use stands
    for frame in context.frames():
        kind = frame.kind
        if kind == "function":
            function = frame.record
            found = function.locals.get(name)
            if found is not None:
                seen = reaching(found, context, order) if direct else visible(found, context)
                if seen:
                    return seen, True
            direct = False
        elif kind == "class":
            if direct:
                found = frame.record.attributes.get(name)
                if found is not None:
                    own = [b for b in found if b.context.kind != "function" and b.context.function is frame.function]
                    if own:
                        return own, True
        elif kind == "module":
            found = frame.module.names.get(name)
            if found is not None:
                seen = reaching(found, context, order) if direct else visible(found, context)
                return seen, True
    return [], False


def visible(bindings: Sequence[Binding], context: Context) -> list[Binding]:
    """From an inner function all bindings of an outer scope count, except those of comprehensions elsewhere."""
    seen = [b for b in bindings if b.how != "delete" and _in_scope(b, context)]
    # a module's `x = None` placeholder that is filled in later says nothing
    return seen


def _in_scope(binding: Binding, context: Context) -> bool:
    """A comprehension's target exists in that comprehension only."""
    frame: Context | None = binding.context
    while frame is not None and frame.kind not in ("function", "module", "class"):
        if frame.kind == "loop" and binding.statement is frame.record and binding.how == "for":
            if not hasattr(frame.record, "body"):
                return context.within(frame)
            return True
        frame = frame.parent
    return True


def solid(context: Context) -> Context:
    """The frame that decides whether code runs: with and try bodies run whenever what is around them does."""
    while context.kind in _TRANSPARENT:
        assert context.parent is not None
        context = context.parent
    return context


def reaching(bindings: Sequence[Binding], context: Context, order: int) -> list[Binding]:
    """Bindings of one scope that can reach a use in the same scope, latest first."""
    found: list[Binding] = []
    covered: dict[int, set[bool]] = {}
    settled: Context | None = None  # a binding in this frame is certain to have run before the use
    for binding in reversed(bindings):
        if binding.order >= order or not _in_scope(binding, context):
            continue
        place = solid(binding.context)
        if _excluded(place, context):
            continue
        if binding.how == "delete":
            continue
        found.append(binding)
        if binding.how == "augment":
            continue
        reached = _climb(place, context, covered)
        if reached is not None:
            settled = reached
            break
    found.extend(_carried(bindings, context, order, settled))
    return found


def _climb(place: Context, context: Context, covered: dict[int, set[bool]]) -> Context | None:
    """The frame around the use in which a binding at `place` surely runs, if any: `if` and `else` together count as one."""
    while True:
        if context.within(place):
            return place
        if place.kind == "branch" and place.parent is not None and not place.rest:
            sides = covered.setdefault(id(place.record), set())
            sides.add(place.negated)
            if len(sides) == 2:
                place = solid(place.parent)
                continue
        return None


def _excluded(place: Context, context: Context) -> bool:
    """Whether binding and use stand in the two arms of one `if`."""
    frame: Context | None = place
    while frame is not None and frame.kind not in ("function", "module", "class"):
        if frame.kind == "branch" and not frame.rest:
            other: Context | None = context
            while other is not None and other.depth >= frame.depth:
                if other.kind == "branch" and other.record is frame.record and not other.rest:
                    if other.negated != frame.negated and other.test is frame.test:
                        return True
                other = other.parent
        frame = frame.parent
    return False


def _carried(bindings: Sequence[Binding], context: Context, order: int, settled: Context | None) -> list[Binding]:
    """Bindings after the use that an earlier turn of a loop around both has made."""
    found: list[Binding] = []
    outermost: Context | None = None
    for frame in context.local_frames():
        if settled is not None and settled.within(frame):
            break
        if frame.kind == "loop":
            outermost = frame
    if outermost is None:
        return found
    for binding in bindings:
        if binding.order > order and binding.how != "delete" and binding.context.within(outermost):
            if _in_scope(binding, context):
                found.append(binding)
    return found

"""Inputs whose size changes from step to step: random scales and crops, batches padded to their longest item."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from trainlint.patterns_on_use import Pattern
from trainlint.semantic import loading, walk
from trainlint.semantic.facts import Call, Expr, Function, Module, Name, Operator, Sequence, Slice, Subscript
from trainlint.semantic.origins import origins
from trainlint.semantic.values import Routine, each

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_SPEAKS = Pattern(rb"interpolate|randint|randrange|random\.|pad_sequence")
_CONVOLVES = Pattern(rb"[Cc]onv[123]d|torchvision|timm|resnet|unet", re.I)
_DRAWS = Pattern(
    r"^(?:random\.(?:choice|choices|randint|randrange|uniform|sample|random)|numpy\.random\.\w+|torch\.(?:randint|rand))$"
)
_RESIZES = frozenset(
    {"interpolate", "resize", "upsample", "pad", "Resize", "resized_crop", "grid_sample", "adaptive_avg_pool2d"}
)


def varying_input(script: Script) -> Expr | None:
    """The place in the program that makes the size of the inputs change, None where none is known."""
    for module in script.semantics.program.modules(script.module, _SPEAKS):
        found = _rescaled(script, module) or _cropped(script, module) or _padded(script, module)
        if found is not None:
            return found
    return None


def _rescaled(script: Script, module: Module) -> Expr | None:
    """`F.interpolate(images, size=side)` where `side` is drawn at random."""
    for call in module.calls_by_attr.get("interpolate", ()):
        sizes = [call.argument(1, "size"), call.argument(2, "scale_factor")]
        if any(s is not None and _is_random(script, s) for s in sizes) and _is_usual(script, call):
            return call
    return None


def _is_usual(script: Script, expr: Expr) -> bool:
    """On every step, and not only with a flag that is off by default."""
    hot = script.hot(expr)
    return hot is not None and not hot.flagged


def _cropped(script: Script, module: Module) -> Expr | None:
    """`images[..., top : top + side, ...]` where `side` is drawn at random, and nothing brings it back to one size."""
    resized = {
        id(part)
        for name in _RESIZES
        for call in module.calls_by_attr.get(name, ())
        for a in call.args
        for part in walk.inside(a)
    }
    stored = {id(target) for s in module.statements for target in getattr(s, "targets", ())}
    for expr in walk.of_module(module):
        if (
            isinstance(expr, Subscript)
            and isinstance(expr.index, Sequence)  # a slice of the first dimension takes other items, not other sizes
            and id(expr) not in resized
            and id(expr) not in stored
            and script.tensor(expr.value) is not None
        ):
            extents = [_extent(part) for part in walk.inside(expr.index) if isinstance(part, Slice)]
            if any(e is not None and _is_random(script, e) for e in extents) and _is_usual(script, expr):
                return expr
    return None


def _extent(part: Slice) -> Expr | None:
    """What decides how much a slice takes: `side` of `top : top + side`, `keep` of `:keep`."""
    if part.lower is None:
        return part.upper
    upper = part.upper
    if isinstance(part.lower, Name) and isinstance(upper, Operator) and upper.op == "+":
        others = [o for o in upper.operands if not (isinstance(o, Name) and o.id == part.lower.id)]
        return others[0] if len(others) == 1 else None
    return None


def _is_random(script: Script, expr: Expr, depth: int = 0) -> bool:
    for part in walk.inside(expr):
        if isinstance(part, Call) and _DRAWS.search(script.name_of(part.callee) or ""):
            return True
        if isinstance(part, Name) and depth < 3:
            for origin in origins(script.inference, part):
                if (
                    origin is not None
                    and origin.expr is not part
                    and not origin.element
                    and _is_random(script, origin.expr, depth + 1)
                ):
                    return True
    return False


def _padded(script: Script, module: Module) -> Expr | None:
    """A `collate_fn` that pads each batch to its longest item, where convolutions run."""
    if not script.semantics.program.says(module, _CONVOLVES):
        return None
    for call in module.calls_by_attr.get("DataLoader", ()):
        collate = call.argument(loading.position("collate_fn"), "collate_fn")
        if collate is None:
            continue
        for value in each(script.value(collate)):
            if isinstance(value, Routine):
                found = _pads(value.function)
                if found is not None:
                    return found
    return None


def _pads(function: Function) -> Call | None:
    return next((c for c in function.calls if c.attr == "pad_sequence"), None)

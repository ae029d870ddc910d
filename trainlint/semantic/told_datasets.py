"""Datasets that the main process changes while a loader is in use: `dataset.set_epoch(epoch)`. Workers that live on keep
the copy that they started with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainlint.semantic import loading
from trainlint.semantic.contexts import is_self
from trainlint.semantic.facts import Attribute, Call, Class, Expr
from trainlint.semantic.values import Object, each

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


def is_told(script: Script, loader: Call) -> bool:
    """Whether anything, in a loop, sets an attribute of the dataset of a loader, or calls a method of it that does."""
    classes = {id(d.cls): d.cls for d in loading.datasets(script, loader) if d.cls is not None}
    if not classes:
        return False
    setters = {name for cls in classes.values() for name in _setters(script, cls)}
    for module in script.feeding.modules(loader.context.module):
        for name in setters:
            for call in module.calls_by_attr.get(name, ()):
                if call.receiver is not None and _in_loop(call) and _is_one_of(script, call.receiver, classes):
                    return True
        for bindings in module.stores.values():
            for binding in bindings:
                target = binding.source
                if isinstance(target, Attribute) and any(f.kind == "loop" for f in binding.context.local_frames()):
                    if _is_one_of(script, target.value, classes):
                        return True
    return False


def _setters(script: Script, cls: Class) -> set[str]:
    """The methods of a class and its bases that set something on `self`, other than those that Python or a loader calls."""
    return {
        function.name
        for base in (cls, *script.inference.bases(cls))
        if isinstance(base, Class)
        for bindings in base.attributes.values()
        for binding in bindings
        if (function := binding.context.function) is not None and not function.name.startswith("__")
    }


def _is_one_of(script: Script, expr: Expr, classes: dict[int, Class]) -> bool:
    """A dataset of these classes, or `loader.dataset`; not `self` in the dataset's own code."""
    if is_self(expr, expr.context):
        return False
    if isinstance(expr, Attribute) and expr.attr == "dataset":
        return True
    return any(isinstance(v, Object) and id(v.cls) in classes for v in each(script.value(expr)))


def _in_loop(call: Call) -> bool:
    return any(frame.kind == "loop" for frame in call.context.local_frames())

"""Code that is written for one version of a library: `if version >= ...`, `hasattr(torch, ...)`, `try/except ImportError`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from trainlint.patterns_on_use import Pattern
from trainlint.semantic import placement, walk
from trainlint.semantic.bindings import lookup
from trainlint.semantic.contexts import dotted_name
from trainlint.semantic.facts import (
    Attribute,
    Binding,
    Call,
    Compare,
    Conditional,
    Constant,
    Context,
    Expr,
    Name,
    Operator,
    Record,
    Sequence,
    Subscript,
    Try,
    Walrus,
)
from trainlint.semantic.values import Routine, each

if TYPE_CHECKING:
    from trainlint.semantic.inference import Inference

_ASKS = frozenset({"hasattr", "getattr", "find_spec", "try_import"})
_VERSION = Pattern(
    r"(?:^|_)versions?(?:_|$)|version$|^Version|^TORCH_(?:MAJOR|MINOR|\d)|pt_?2|torch_?(?:2|1_)|(?:greater|less)_than_\d",
    re.I,
)
_IMPORT_ERRORS = frozenset("ImportError ModuleNotFoundError AttributeError NameError TypeError".split())
_CATCH_ALL = frozenset("Exception BaseException".split())
_SHORT = 3  # statements of a try body whose `except Exception` is about them
_DEEPEST = 6


def is_guarded(inference: Inference, context: Context) -> bool:
    """Whether a place, or every call that leads to it, stands under a condition on a version."""
    return _is_guarded(inference, context, set())


def is_chosen_by_version(inference: Inference, record: Record) -> bool:
    """Whether an expression is one side of `new if VERSION >= ... else old`."""
    own = placement.own_statement(record)
    if own is None:
        return False
    return any(
        isinstance(choice, Conditional)
        and any(one is record for side in (choice.body, choice.orelse) for one in walk.inside(side))
        and asks_version(inference, choice.test)
        for choice in walk.inside(own)
    )


def _is_guarded(inference: Inference, context: Context, seen: set[int]) -> bool:
    for frame in context.frames():
        if frame.kind == "branch" and frame.test is not None and _branch_asks(inference, frame.test, context):
            return True
        if frame.kind in ("try", "except") and _is_import_fallback(frame):
            return True
    function = context.function
    if function is None or id(function) in seen:
        return False
    seen.add(id(function))
    sites = inference.callgraph.callers(function)
    return bool(sites) and all(_is_guarded(inference, site.call.context, seen) for site in sites)


def _branch_asks(inference: Inference, test: Expr, context: Context) -> bool:
    """Kept: the first test of a chain of `elif` is around all that follows."""
    memo, question = context.module.memo, ("asks version", id(test))
    return inference.solver.solve(question, lambda: asks_version(inference, test), False, memo)  # type: ignore[no-any-return]


def asks_version(inference: Inference, test: Expr, depth: int = 0) -> bool:
    """Whether a condition is about which version, name or package is there."""
    if depth > _DEEPEST:
        return False
    if isinstance(test, (Operator, Compare)):
        return any(asks_version(inference, o, depth + 1) for o in test.operands)
    if isinstance(test, (Walrus, Subscript)):
        return asks_version(inference, test.value, depth + 1)
    if isinstance(test, Sequence):
        return any(asks_version(inference, e, depth + 1) for e in test.elements)
    if isinstance(test, Conditional):
        return any(asks_version(inference, e, depth + 1) for e in (test.test, test.body, test.orelse))
    if isinstance(test, Call):
        return _call_asks(inference, test, depth)
    if isinstance(test, Constant):
        return False
    return _name_asks(inference, test, depth)


def _call_asks(inference: Inference, test: Call, depth: int) -> bool:
    name = test.attr or ""
    if name in _ASKS or _VERSION.search(name):
        return True
    if any(asks_version(inference, a, depth + 1) for a in (*test.args, *(k.value for k in test.keywords))):
        return True
    if test.receiver is not None and asks_version(inference, test.receiver, depth + 1):
        return True
    for value in each(inference.value(test.callee)):
        if isinstance(value, Routine):
            if any(r.value is not None and asks_version(inference, r.value, depth + 2) for r in value.function.returns):
                return True
    return False


def _name_asks(inference: Inference, test: Expr, depth: int) -> bool:
    dotted = dotted_name(test)
    if dotted is None:
        return isinstance(test, Attribute) and asks_version(inference, test.value, depth + 1)
    if any(_VERSION.search(part) for part in dotted.split(".")):
        return True
    if not isinstance(test, Name):
        return False
    return any(_binding_asks(inference, b, depth) for b in lookup(test, test.id)[0])


def _binding_asks(inference: Inference, binding: Binding, depth: int) -> bool:
    """`HAS_X = hasattr(torch, "x")`, and `try: import x; HAS_X = True`, also in another file."""
    if binding.how == "import":
        target = inference.project.target(binding.context.module.path, binding.source)
        if isinstance(target, tuple):
            module, name = target
            return any(b.how != "import" and _binding_asks(inference, b, depth + 1) for b in module.names.get(name, ()))
        # a package that may be missing: `try: import fast` / `except ImportError: fast = None`, later `if fast:`
        return any(f.kind in ("try", "except") and _is_import_fallback(f) for f in binding.context.local_frames())
    if binding.how != "assign" or binding.value is None:
        return False
    if any(f.kind in ("try", "except") and _is_import_fallback(f) for f in binding.context.local_frames()):
        return True
    return asks_version(inference, binding.value, depth + 1)


def _is_import_fallback(frame: Context) -> bool:
    """A try body, or an except block, of `try: new form / except ImportError: old form`."""
    record: Record = frame.record
    if isinstance(record, Try):
        for handler in record.handlers:
            caught = _caught(handler.type)
            if caught & _IMPORT_ERRORS or (len(record.body) <= _SHORT and (not caught or caught & _CATCH_ALL)):
                return True
        return False
    caught = _caught(getattr(record, "type", None))
    return bool(caught & _IMPORT_ERRORS) or not caught or bool(caught & _CATCH_ALL)


def _caught(type_: Expr | None) -> set[str]:
    parts = type_.elements if isinstance(type_, Sequence) else (type_,) if type_ is not None else ()
    return {(dotted_name(p) or "").rpartition(".")[2] for p in parts}

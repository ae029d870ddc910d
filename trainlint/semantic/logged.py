"""Log calls of the standard library that are sure to be written: `logger.info("loss %s", loss)` where the program asks
for that level. What is not written is not formatted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainlint.patterns_on_use import Pattern
from trainlint.semantic.facts import Call, Expr
from trainlint.semantic.origins import origins
from trainlint.semantic.values import Const, External, each

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "warn": 30, "error": 40, "critical": 50}
LOG_METHODS = frozenset(_LEVELS)
_SETS = Pattern(rb"basicConfig|setLevel")
_DEFAULT = 30  # of the root logger


def is_written(script: Script, call: Call) -> bool:
    """Whether a call writes its message, wherever it is of a logger of `logging` at all."""
    level = _LEVELS.get(call.attr or "")
    return (
        level is not None
        and call.receiver is not None
        and _is_logger(script, call.receiver)
        and level >= _asked(script)
    )


def _is_logger(script: Script, expr: Expr) -> bool:
    if script.name_of(expr) == "logging":
        return True
    made = origins(script.inference, expr)
    return bool(made) and all(
        o is not None
        and not o.path
        and not o.element
        and isinstance(o.expr, Call)
        and script.name_of(o.expr.callee) == "logging.getLogger"
        for o in made
    )


def _asked(script: Script) -> int:
    """The highest level that any part of the program sets, as far as it is known: what is at or above it is written."""
    found: list[int] = []
    for module in script.semantics.program.modules(script.module, _SETS):
        for call in module.calls_by_attr.get("basicConfig", ()):
            given = call.keyword("level")
            found.append(_level(script, given) if given is not None else _DEFAULT)
        for call in module.calls_by_attr.get("setLevel", ()):
            given = call.argument(0, "level")
            found.append(_level(script, given) if given is not None else _DEFAULT)
    return max(found, default=_DEFAULT)


def _level(script: Script, expr: Expr) -> int:
    known = []
    for value in each(script.value(expr)):
        if isinstance(value, External) and value.name.startswith("logging."):
            known.append(_LEVELS.get(value.name.rpartition(".")[2].lower(), 100))
        elif isinstance(value, Const) and isinstance(value.value, int):
            known.append(value.value)
        elif isinstance(value, Const) and isinstance(value.value, str):
            known.append(_LEVELS.get(value.value.lower(), 100))
        else:
            known.append(100)
    return max(known, default=100)

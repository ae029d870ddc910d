"""What runs when a file is started or imported: module level, the main guard, and who is called from there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainlint.semantic.contexts import dotted_name
from trainlint.semantic.facts import Compare, Constant, Context, Expr, Function, Operator, Record

if TYPE_CHECKING:
    from trainlint.semantic.inference import Inference


def is_main_test(test: Expr) -> bool:
    """`__name__ == "__main__"`, also with further conditions."""
    if isinstance(test, Compare) and test.ops == ("==",):
        names = {dotted_name(o) for o in test.operands}
        values = {o.value for o in test.operands if isinstance(o, Constant)}
        return "__name__" in names and "__main__" in values
    return isinstance(test, Operator) and test.op == "and" and any(is_main_test(o) for o in test.operands)


def under_main_guard(context: Context) -> bool:
    """Whether code runs only in the process that was started, not in one that spawn makes and that imports the file."""
    for frame in context.frames():
        if frame.kind == "branch" and frame.test is not None:
            if is_main_test(frame.test) and not frame.negated:
                return True
            if frame.negated and isinstance(frame.test, Compare) and frame.test.ops == ("!=",):
                names = {dotted_name(o) for o in frame.test.operands}
                if "__name__" in names:
                    return True
    return False


class Entry:
    """Whether code runs on import of its file, found through the callers."""

    def __init__(self, inference: Inference) -> None:
        self.inference = inference
        self._active: set[int] = set()

    def unguarded(self, context: Context) -> Context | None:
        """The module-level place, not under a main guard, from which code is run; None where there is none."""
        if under_main_guard(context):
            return None
        function = context.function
        if function is None:
            return context
        return self._function(function)

    def unguarded_starts(self, record: Record) -> list[Record]:
        """All that stands at module level, not under a main guard, and runs some code: the code itself, or calls."""
        found: list[Record] = []
        seen: set[int] = set()
        pending = [record]
        for current in pending:
            if under_main_guard(current.context):
                continue
            function = current.context.function
            if function is None:
                found.append(current)
            elif id(function) not in seen:
                seen.add(id(function))
                pending.extend(site.call for site in self.inference.callgraph.callers(function))
        return found

    def _function(self, function: Function) -> Context | None:
        memo, question = function.module.memo, ("unguarded", id(function))
        if question in memo:
            return memo[question]  # type: ignore[no-any-return]
        key = id(function)
        if key in self._active:
            return None
        self._active.add(key)
        found: Context | None = None
        try:
            for site in self.inference.callgraph.callers(function):
                found = self.unguarded(site.call.context)
                if found is not None:
                    break
        finally:
            self._active.discard(key)
        memo[question] = found
        return found

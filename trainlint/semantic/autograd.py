"""Whether autograd records at a place: no_grad blocks and decorators, set_grad_enabled, and what the callers hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainlint.semantic import frameworks, known
from trainlint.semantic.facts import Call, Context, Evaluate, Expr, Function, Module, With
from trainlint.semantic.values import External, Method, Object, Routine, each

if TYPE_CHECKING:
    from trainlint.semantic.inference import Inference

ON, OFF, MIXED = "on", "off", "mixed"


class Autograd:
    def __init__(self, inference: Inference) -> None:
        self.inference = inference

    def mode(self, context: Context, order: int) -> str:
        """ON, OFF, or MIXED (depends on the caller or on a value that is not known)."""
        found = self.local(context, order)
        if found is not None:
            return found
        return self.function(context.function) if context.function is not None else ON

    def local(self, context: Context, order: int) -> str | None:
        """The mode that the innermost function around a place sets for it by itself, None when its callers decide."""
        for frame in context.frames():
            if frame.kind == "with":
                found = self._with(frame.record) or self._entered(frame, order)
                if found is not None:
                    return found
            elif frame.kind == "function":
                switched = self._switched(frame.record.calls, order)
                return switched if switched is not None else self._declared(frame.record)
            elif frame.kind == "module":
                return self._switched(_module_level(frame.module), order)
        return None

    def _with(self, statement: With) -> str | None:
        for item in statement.items:
            found = self.of_expression(item.value)
            if found is not None:
                return found
        return None

    def _entered(self, frame: Context, order: int) -> str | None:
        """`stack.enter_context(torch.no_grad())` of an ExitStack, before the place."""
        found: str | None = None
        for call in frame.module.calls_by_attr.get("enter_context", ()):
            if call.args and call.order < order and call.context.within(frame):
                found = self.of_expression(call.args[0]) or found
        return found

    def of_expression(self, expr: Expr) -> str | None:
        """The mode that a context manager (or decorator) expression sets, None when it has nothing to do with it."""
        call = expr if isinstance(expr, Call) else None
        for value in each(self.inference.value(call.callee if call is not None else expr)):
            if isinstance(value, External):
                if value.name in known.NO_GRAD:
                    off = call is not None and self.inference.constant(call.argument(0, "mode")) is False
                    return ON if off else OFF
                if value.name in known.ENABLE_GRAD:
                    return ON
                if value.name in known.SET_GRAD and call is not None:
                    given = self.inference.constant(call.argument(0, "mode"))
                    return ON if given is True else OFF if given is False else MIXED
            if isinstance(value, Routine):
                return self._project_made(value.function)
            if isinstance(value, Object) and value.name in known.NO_GRAD:
                return OFF
            if isinstance(value, Method) and value.name == "no_sync":
                return None
        if call is not None and call.attr in ("nullcontext", "suppress"):
            return None
        return self._conditional(expr)

    def _conditional(self, expr: Expr) -> str | None:
        """`with torch.no_grad() if not train else nullcontext():`"""
        body, orelse = getattr(expr, "body", None), getattr(expr, "orelse", None)
        if body is None or orelse is None:
            return None
        found = {self.of_expression(body), self.of_expression(orelse)}
        return None if found == {None} else found.pop() if len(found) == 1 else MIXED

    def _project_made(self, function: Function) -> str | None:
        """A decorator or context manager of the project that turns autograd off."""
        memo, key = function.module.memo, ("turns autograd off", id(function))
        if key not in memo:
            memo[key] = None
            memo[key] = self._turns_off(function)
        return memo[key]  # type: ignore[no-any-return]

    def _turns_off(self, function: Function) -> str | None:
        inner = [f for f in function.module.functions if f is not function and f.inner.within(function.inner)]
        for one in [function, *inner]:
            for decorator in one.decorators:
                if one is not function and self.of_expression(decorator) == OFF:
                    return OFF
            for call in one.calls:
                if isinstance(call.callee, (Call,)) or call.attr in ("no_grad", "inference_mode", "set_grad_enabled"):
                    found = self._in_decorator(call)
                    if found is not None:
                        return found
        return None

    def _in_decorator(self, call: Call) -> str | None:
        callee = call.callee
        name = self.inference.name_of(callee)
        if name in known.NO_GRAD:
            return OFF
        if name in known.SET_GRAD:
            given = self.inference.constant(call.argument(0, "mode"))
            return OFF if given is False else MIXED
        if isinstance(callee, Call):
            return self.of_expression(callee)
        # `(torch.inference_mode if new else torch.no_grad)()(fn)`
        names = {getattr(v, "name", None) for v in each(self.inference.value(callee))}
        return OFF if names and names <= known.NO_GRAD else None

    def _switched(self, calls: list[Call], order: int) -> str | None:
        """A bare `torch.set_grad_enabled(False)` before the place, in the same function or at module level."""
        found: str | None = None
        for call in calls:
            if call.order >= order or not isinstance(call.statement, Evaluate) or call.statement.value is not call:
                continue
            if self.inference.name_of(call.callee) in known.SET_GRAD:
                given = self.inference.constant(call.argument(0, "mode"))
                found = ON if given is True else OFF if given is False else MIXED
        return found

    def function(self, function: Function) -> str:
        """The mode in which a function's body runs."""
        # a circle of callers decides nothing: what enters it does
        solver, memo = self.inference.solver, function.module.memo
        return solver.solve(("autograd", id(function)), lambda: self._function(function), OFF, memo)  # type: ignore[no-any-return]

    def _declared(self, function: Function) -> str | None:
        """What decorators, or the framework that calls it, set for a function."""
        for decorator in function.decorators:
            found = self.of_expression(decorator)
            if found is not None:
                return found
        cls = function.cls
        if frameworks.in_lightning(self.inference, cls) and frameworks.hook_phase(self.inference, function) == "eval":
            return OFF
        return None

    def _function(self, function: Function) -> str:
        declared = self._declared(function)
        if declared is not None:
            return declared
        sites = self.inference.callgraph.callers(function)
        modes = {self.mode(site.call.context, site.call.order) for site in sites}
        if not modes:
            return self._switched(_module_level(function.module), 1 << 60) or ON
        # one caller that records is enough
        return ON if ON in modes else MIXED if MIXED in modes else OFF


def _module_level(module: Module) -> list[Call]:
    return [c for c in module.calls_by_attr.get("set_grad_enabled", ()) if c.context.function is None]

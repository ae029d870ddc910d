"""Conditions that make code rare: `step % 100 == 0`, `i == 0`, a debug flag that is off, an error path.

Not guards: rank checks, `sync_gradients`, warm-up, a cadence under which training itself happens, a flag on by default.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from trainlint.patterns_on_use import Pattern
from trainlint.semantic.bindings import lookup
from trainlint.semantic.contexts import dotted_name
from trainlint.semantic.facts import (
    Attribute,
    Call,
    Compare,
    Constant,
    Context,
    Evaluate,
    Expr,
    If,
    Name,
    Operator,
    Raise,
    Sequence,
    Statement,
    Walrus,
)
from trainlint.semantic.values import Const, Number, Routine, Unknown, constant, each
from trainlint.semantic.work import BACKWARD, Work

if TYPE_CHECKING:
    from trainlint.semantic.inference import Inference

RARE, OFF, QUIET = "rare", "off", "quiet"

_QUIET_NAME = Pattern(
    r"(?:^|_)(?:log|print|verbose|debug|vis|visuali[sz]e|plot|dump|profil\w*|interval|display|should|sanity|save|report|"
    r"summary|checkpoint|freq|every|trace|inspect|stats?|show|draw|benchmark|dry_run|time_to|demo|bench)(?:_|$|ging|ger|s)",
    re.I,
)
_RANK_NAME = Pattern(
    r"(?:^|_)(?:rank|main_process|is_main|is_master|master|global_zero|is_distributed|distributed|primary)|rank$|is_main|is_master|RANK",
    re.I,
)
_LIMITS = 16  # `i < 3` is rare, `i < 1000` is not


class Guards:
    def __init__(self, inference: Inference, work: Work) -> None:
        self.inference = inference
        self.work = work

    def guard(self, frame: Context) -> str | None:
        """RARE, OFF (a flag that is off by default), QUIET (named like a guard, not resolved), or None."""
        if frame.kind == "except":
            return RARE
        if frame.kind != "branch" or frame.test is None:
            return None
        memo, key = frame.module.memo, ("guard", id(frame))
        if key not in memo:
            memo[key] = None
            memo[key] = self._guard(frame)
        return memo[key]  # type: ignore[no-any-return]

    def _guard(self, frame: Context) -> str | None:
        assert frame.test is not None
        if self._error_path(frame) or (
            isinstance(frame.test, Name) and not frame.negated and self._set_on_error_path(frame.test)
        ):
            return RARE
        if self._fills_once(frame):
            return RARE
        found = self.condition(frame.test, frame.negated)
        if found is not None and found != OFF and self._is_cadence(frame):
            return None
        return found

    def _fills_once(self, frame: Context) -> bool:
        """`state = None` before the loop, and in it `if state is None: state = net.start(...)`: on the first turn only."""
        test, record = frame.test, frame.record
        if frame.rest or frame.negated or not isinstance(record, If) or not _is_none(test):
            return False
        assert isinstance(test, Compare)
        subject = test.operands[0]
        around = next((f for f in frame.local_frames() if f.kind == "loop"), None)
        if not isinstance(subject, Name):
            return False
        bindings = lookup(subject, subject.id)[0]
        if around is None or not bindings or not any(b.context.within(frame) for b in bindings):
            return False
        for binding in bindings:
            if binding.how not in ("assign", "augment"):
                return False
            made = isinstance(binding.value, (Call, Operator))
            if binding.context.within(around) and not made and not binding.context.within(frame):
                return False  # it may be emptied on each turn
        return True

    def _error_path(self, frame: Context) -> bool:
        """`if not isfinite(loss): print(...); sys.exit(1)`"""
        record = frame.record
        if frame.rest or not isinstance(record, If):
            return False
        block = record.orelse if frame.negated else record.body
        return bool(block) and _raises(block[-1])

    def _is_cadence(self, frame: Context) -> bool:
        """Training itself happens under the condition: `if i % n_critic == 0: loss_G.backward(); optimizer_G.step()`.

        An optimizer step alone does not make one: what follows `if i % accumulation: continue` is rare.
        """
        function = frame.function
        calls = (
            function.calls if function is not None else [c for c in frame.module.calls if c.context.function is None]
        )
        done = self.work.within([c for c in calls if c.context.within(frame)], frame)
        return BACKWARD in done.once and BACKWARD not in done.looped

    # ------------------------------------------------------------------------------------------------ conditions

    def condition(self, test: Expr, negated: bool = False, depth: int = 0) -> str | None:
        if depth > 6:
            return None
        if isinstance(test, Walrus):
            return self.condition(test.value, negated, depth)
        if isinstance(test, Operator):
            return self._operator(test, negated, depth)
        if isinstance(test, Compare):
            return self._compare(test, negated, depth)
        if isinstance(test, (Name, Attribute)):
            return self._named(test, negated, depth)
        if isinstance(test, Call):
            return self._called(test, negated, depth)
        if isinstance(test, Constant):
            return RARE if bool(test.value) == negated else None
        return None

    def _operator(self, test: Operator, negated: bool, depth: int) -> str | None:
        if test.op == "not":
            return self.condition(test.operands[0], not negated, depth)
        if test.op in ("and", "or"):
            found = [self.condition(o, negated, depth + 1) for o in test.operands]
            if (test.op == "and") != negated:
                # all of them must hold: one that is rare makes it rare
                return next((f for kind in (RARE, OFF, QUIET) for f in found if f == kind), None)
            if all(found):
                return RARE if RARE in found else found[0]
            return None
        if test.op == "%":
            # `if step % 100:` is true nearly always, its contrary rarely
            return self._modulo(test) if negated else None
        return None

    def _modulo(self, test: Operator) -> str | None:
        if not self._counts(test.operands[0]):
            return None
        every = constant(self.inference.value(test.operands[1]))
        return None if every == 1 else RARE

    def _counts(self, expr: Expr) -> bool:
        """A step counter: not a string that is formatted with `%`."""
        return not (isinstance(expr, Constant) and isinstance(expr.value, (str, bytes)))

    def _compare(self, test: Compare, negated: bool, depth: int) -> str | None:
        if len(test.ops) != 1:
            return None
        left, right = test.operands
        op = test.ops[0]
        if negated:
            op = _CONTRARY.get(op, op)
        for modulo in (left, right):
            if isinstance(modulo, Operator) and modulo.op == "%" and op == "==":
                return self._modulo(modulo)
            if isinstance(modulo, Name) and op == "==":
                # `phase = step % 10; if phase == 0`
                value = self._assigned(modulo)
                if isinstance(value, Operator) and value.op == "%":
                    return self._modulo(value)
        if op == "in" and isinstance(right, (Name, Attribute, Sequence)):
            names = dotted_name(right) or ""
            return (
                RARE
                if (isinstance(right, Sequence) and self._is_step(left)) or "step" in names or "iter" in names
                else None
            )
        if op == "==":
            return self._equals(left, right)
        if op in ("<", "<="):
            return self._below(left, right)
        if op in (">", ">="):
            return self._below(right, left) or self._elapsed(left)
        return None

    def _equals(self, left: Expr, right: Expr) -> str | None:
        """`i == 0`, `i == len(loader) - 1`: one turn of many."""
        for counter, other in ((left, right), (right, left)):
            if self._is_step(counter):
                value = self.inference.value(other)
                if isinstance(value, Unknown) and _is_sum(counter) and isinstance(other, (Name, Attribute)):
                    return RARE  # `i + 1 == args.batches`: only who counts adds one
                if (isinstance(value, (Number, Const)) and not isinstance(constant(value), (str, bool))) or isinstance(
                    other, Operator
                ):
                    return RARE
        for flag, other in ((left, right), (right, left)):
            # `if args.debug == True`
            if isinstance(other, Constant) and isinstance(other.value, bool):
                return self.condition(flag, not other.value, 1)
        return None

    def _is_step(self, expr: Expr) -> bool:
        """A name that counts the turns of a loop."""
        if isinstance(expr, Operator) and expr.op in ("+", "-") and len(expr.operands) == 2:
            return isinstance(expr.operands[1], Constant) and self._is_step(expr.operands[0])  # `i + 1`
        if not isinstance(expr, (Name, Attribute)):
            return False
        name = expr.id if isinstance(expr, Name) else expr.attr
        if _RANK_NAME.search(name):
            return False
        if isinstance(expr, Name):
            bindings, _ = lookup(expr, expr.id)
            if any(b.how == "for" and (b.path in ((0,), ()) or b.path == (0, 0)) for b in bindings):
                return any(isinstance(v, Number) for v in each(self.inference.value(expr)))
        return bool(
            re.search(
                r"(?:^|_)(?:step|steps|iter|iteration|idx|index|i|batch_idx|batch_i|itr|counter|count|n_iter|it)$|step|iter",
                name,
            )
        )

    def _below(self, left: Expr, right: Expr) -> str | None:
        """`i < 3`; `step < warmup` is no guard."""
        limit = constant(self.inference.value(right))
        if isinstance(limit, int) and not isinstance(limit, bool) and limit <= _LIMITS and self._is_step(left):
            return RARE
        return None

    def _elapsed(self, expr: Expr) -> str | None:
        """`time.time() - last > 10`"""
        if isinstance(expr, Operator) and expr.op == "-":
            first = expr.operands[0]
            if isinstance(first, Call):
                name = self.inference.name_of(first.callee) or ""
                if name.startswith("time."):
                    return RARE
        return None

    def _assigned(self, expr: Name) -> Expr | None:
        bindings, _ = lookup(expr, expr.id)
        if len(bindings) == 1 and bindings[0].how == "assign" and not bindings[0].path:
            return bindings[0].value
        return None

    def _named(self, test: Name | Attribute, negated: bool, depth: int) -> str | None:
        name = test.id if isinstance(test, Name) else test.attr
        if _RANK_NAME.search(name) or name in ("sync_gradients", "training"):
            return None
        if isinstance(test, Name):
            assigned = self._assigned(test)
            if assigned is not None and not isinstance(assigned, (Constant, Name)):
                found = self.condition(assigned, negated, depth + 1)
                if found is not None:
                    return found
        value = self.inference.value(test)
        truths = set()
        for one in each(value):
            known = constant(one)
            truths.add(None if known is ... else bool(known))
        if truths == {False}:
            return OFF if not negated else None
        if truths == {True}:
            return OFF if negated else None
        if truths == {True, False}:
            return None
        if _QUIET_NAME.search(name) and not negated and isinstance(value, (Unknown, Number)):
            return QUIET
        return None

    def _set_on_error_path(self, test: Name) -> bool:
        """`failed = False; try: ... except OutOfMemoryError: failed = True`, then `if failed:`."""
        bindings, _ = lookup(test, test.id)
        errors = 0
        for binding in bindings:
            if binding.how != "assign" or not isinstance(binding.value, Constant):
                return False
            if binding.value.value:
                if not any(frame.kind == "except" for frame in binding.context.local_frames()):
                    return False
                errors += 1
        return errors > 0

    def _called(self, test: Call, negated: bool, depth: int) -> str | None:
        name = test.attr or ""
        if _RANK_NAME.search(name):
            return None
        for value in each(self.inference.value(test.callee)):
            if isinstance(value, Routine) and len(value.function.returns) == 1:
                returned = value.function.returns[0].value
                if returned is not None:
                    return self.condition(returned, negated, depth + 1)
            if isinstance(value, Routine) and _QUIET_NAME.search(name) and not negated:
                return QUIET
        if name == "bool" and test.args:
            return self.condition(test.args[0], negated, depth + 1)
        if name == "isEnabledFor" and not negated:
            return OFF
        if _QUIET_NAME.search(name) and not negated:
            return QUIET
        return None


_CONTRARY = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">", "in": "not in", "not in": "in"}


def _is_sum(expr: Expr) -> bool:
    return isinstance(expr, Operator) and expr.op in ("+", "-")


def _is_none(test: Expr | None) -> bool:
    """`x is None`"""
    return (
        isinstance(test, Compare)
        and test.ops == ("is",)
        and isinstance(test.operands[1], Constant)
        and test.operands[1].value is None
    )


def _raises(statement: Statement) -> bool:
    if isinstance(statement, Raise):
        return True
    if isinstance(statement, Evaluate) and isinstance(statement.value, Call):
        return dotted_name(statement.value.callee) in ("sys.exit", "exit", "quit", "os._exit")
    return False

"""Distributed programs: who starts or wraps, which conditions pick a process, and which code only some ranks reach."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

from trainlint.patterns_on_use import Pattern
from trainlint.records import NamedTuple
from trainlint.semantic import known
from trainlint.semantic.bindings import lookup
from trainlint.semantic.contexts import dotted_name, is_self
from trainlint.semantic.facts import (
    Attribute,
    Binding,
    Call,
    Compare,
    Conditional,
    Constant,
    Context,
    Expr,
    Function,
    Module,
    Name,
    Operator,
    Sequence,
    Subscript,
)
from trainlint.semantic.program import Program
from trainlint.semantic.values import External, Routine, constant, each
from trainlint.semantic.walk import expressions

if TYPE_CHECKING:
    from trainlint.semantic.inference import Inference

ONE, OTHERS = "one", "others"
_CONTRARY = {ONE: OTHERS, OTHERS: ONE}

_STARTS = known.DDP | {
    "torch.distributed.init_process_group",
    "torch.distributed.distributed_c10d.init_process_group",
    "deepspeed.init_distributed",
    "torch.distributed.tensor.parallel.parallelize_module",
}
_START_WORDS = Pattern(
    rb"init_process_group|DistributedDataParallel|FullyShardedDataParallel|fully_shard|init_distributed"
)
_WRAP_WORDS = Pattern(rb"DistributedDataParallel|FullyShardedDataParallel|fully_shard")
_RANK_CALLS = frozenset(
    "get_rank get_node_local_rank get_local_rank Get_rank get_ordinal local_rank rank process_index".split()
)
_RANK_VARIABLES = frozenset(
    "RANK LOCAL_RANK SLURM_PROCID SLURM_LOCALID OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_LOCAL_RANK PMI_RANK "
    "NODE_RANK".split()
)
_RANK = Pattern(
    r"^_*(?:(?:ddp|dist|mpi|my|cur|current|this|global|local|node|world|process|proc|dp)_?)*rank$|^(?:local_)?process_index$",
    re.I,
)
_LEADER = Pattern(
    r"^_?(?:is_|i_am_|am_i_)?(?:local_|global_|world_)?(?:main|master|leader|chief|primary)(?:_?(?:process|proc|node|rank|worker))?$"
    r"|is_(?:local_)?(?:main|master|leader|chief|primary)|main_proc(?:ess)?$|(?:is_)?global_zero|(?:is_)?rank_?(?:zero|0)$",
    re.I,
)
# wider, for silence: whatever has to do with the choice of a process
_ANY_RANK = Pattern(
    r"(?:^|_)rank|rank(?:$|_)|RANK|main_?proc|is_main|master|leader|chief|global_?zero|primary|process_index|process_id|procid"
    r"|^rank0|zero_rank|host_id|is_first|node_id",
    re.I,
)
_MANY = Pattern(
    r"distributed|(?:^|_)(?:ddp|fsdp|dist)(?:_|$)|is_initialized|world_?size|multi_?(?:gpu|process|node)|n_?gpus?$",
    re.I,
)
_CARD = Pattern(r"^_?(?:gpu|gpu_?id|device_?id|card|proc|pid|worker_id|local_id|device)$", re.I)
_ONLY_DECORATOR = Pattern(r"rank_?(?:zero|0)|master_only|main_process|only_main|is_main|leader_only", re.I)
_ORDERS = Pattern(
    r"first|main|master|leader|zero|rank", re.I
)  # `with main_process_first():`, whatever is in it runs in turns
_DEEPEST = 5

Owner: TypeAlias = Function | Module


class Restriction(NamedTuple):
    """Some ranks only: the condition's frame, whom it lets through, and the calls that lead inside, nearest first."""

    frame: Context
    side: str
    calls: tuple[Call, ...]


class Ranks:
    def __init__(self, inference: Inference, program: Program) -> None:
        self.inference = inference
        self.program = program

    # ------------------------------------------------------------------------------- what is distributed at all

    def is_distributed(self, context: Context) -> bool:
        """Whether code runs in a process that joins others: something that leads to it also starts or wraps."""
        starters = self._starting(context.module)
        return bool(starters) and any(_owner(place) in starters for place in self._upwards(context))

    def _upwards(self, context: Context) -> Iterator[Context]:
        """The place, and the places that it is called from, each function once."""
        seen: set[Owner] = set()
        stack = [context]
        while stack:
            place = stack.pop()
            if _owner(place) in seen:
                continue
            seen.add(_owner(place))
            yield place
            if place.function is not None:
                stack.extend(site.call.context for site in self.inference.callgraph.callers(place.function))

    def _starting(self, module: Module) -> frozenset[Owner]:
        """Owners (functions, or files for their module level) that start or wrap, themselves or by a call."""
        memo = module.memo
        if "starters" not in memo:
            memo["starters"] = frozenset()
            memo["starters"] = frozenset(self._find_starters(module))
        return memo["starters"]  # type: ignore[no-any-return]

    def _find_starters(self, module: Module) -> set[Owner]:
        found: set[Owner] = set()
        stack: list[Context] = [c.context for m in self.program.modules(module, _START_WORDS) for c in self.starts(m)]
        while stack:
            place = stack.pop()
            if _owner(place) in found:
                continue
            found.add(_owner(place))
            if place.function is not None:
                for site in self.inference.callgraph.callers(place.function):
                    if site.arguments is None:  # who spawns the processes is none of them
                        stack.append(site.call.context)
        return found

    def wraps_models(self, module: Module) -> bool:
        """Whether a program wraps anything at all, by a look at its text."""
        return self.program.says(module, _WRAP_WORDS)

    def starts(self, module: Module) -> list[Call]:
        """Calls of a file that join the process group or wrap a model."""
        names = {n.rpartition(".")[2] for n in _STARTS}
        names |= {bound for s in module.imports for bound, full in s.names if full.rpartition(".")[2] in names}
        calls = [c for name in sorted(names) for c in module.calls_by_attr.get(name, ())]
        return [
            c
            for c in calls
            if any(isinstance(v, External) and v.name in _STARTS for v in each(self.inference.value(c.callee)))
        ]

    # -------------------------------------------------------------------------------- exactly: one rank, or the rest

    def restricted(self, context: Context) -> Restriction | None:
        """The condition that lets one rank (or all but one) through to a place, here or around a call that leads here."""
        return self._restricted(context, (), set())

    def _restricted(self, context: Context, calls: tuple[Call, ...], seen: set[int]) -> Restriction | None:
        for frame in context.local_frames():
            if frame.kind != "branch" or frame.test is None:
                continue
            if self._is_single(frame.test, frame.negated):
                return None  # runs alone anyway
            side = self.side(frame.test, frame.negated)
            if side is not None:
                return Restriction(frame, side, calls)
        function = context.function
        if function is None or id(function) in seen or len(calls) > _DEEPEST:
            return None
        seen.add(id(function))
        for site in self.inference.callgraph.callers(function):
            if not self._contradicts(site, function, context):
                found = self._restricted(site.call.context, (*calls, site.call), seen)
                if found is not None:
                    return found
        return None

    def _contradicts(self, site, function: Function, context: Context) -> bool:  # type: ignore[no-untyped-def]
        """`gather(x, distributed=False)` does not reach what stands under `if distributed:`."""
        for frame in context.local_frames():
            test, negated = frame.test, frame.negated
            while isinstance(test, Operator) and test.op == "not":
                test, negated = test.operands[0], not negated
            if frame.kind != "branch" or not isinstance(test, Name):
                continue
            for parameter in function.parameters:
                if parameter.name == test.id:
                    given = site.argument(function, parameter)
                    if given is None and not site.call.unpacks:
                        given = parameter.default
                    known_value = self.inference.constant(given) if isinstance(given, Expr) else ...
                    if known_value is not ... and bool(known_value) == negated:
                        return True
        return False

    def is_paired(
        self, found: Restriction, takes_part: Callable[[Call], bool], may_take_part: Callable[[Call], bool]
    ) -> bool:
        """Whether the ranks that the condition keeps out take part at another place: on the other branch, or in another
        method of the class (leader goes first, in `__enter__` and `__exit__`)."""
        place = found.frame
        calls = list(
            place.function.calls
            if place.function is not None
            else [c for c in place.module.calls if c.context.function is None]
        )
        if place.cls is not None:
            calls += [c for m in place.cls.methods.values() if m is not place.function for c in m.calls]
        for call in calls:
            side = self._side_of(call.context)
            if side == _CONTRARY[found.side] and (takes_part(call) or may_take_part(call)):
                return True
        return False

    def _side_of(self, context: Context) -> str | None:
        for frame in context.local_frames():
            if frame.kind == "branch" and frame.test is not None:
                side = self.side(frame.test, frame.negated)
                if side is not None:
                    return side
        return None

    def side(self, test: Expr, negated: bool = False, depth: int = 0) -> str | None:
        """ONE where a condition holds on a single rank, OTHERS where on all but one, None for anything else."""
        if depth > _DEEPEST:
            return None
        if isinstance(test, Operator):
            return self._operator_side(test, negated, depth)
        found: str | None = None
        if isinstance(test, Compare):
            found = self._compare_side(test)
        elif isinstance(test, Call):
            found = self._call_side(test, depth)
        elif isinstance(test, (Name, Attribute)):
            found = self._name_side(test, depth)
        return _CONTRARY[found] if found is not None and negated else found

    def _operator_side(self, test: Operator, negated: bool, depth: int) -> str | None:
        if test.op == "not":
            return self.side(test.operands[0], not negated, depth)
        if test.op not in ("and", "or"):
            return None
        sides = [self.side(o, negated, depth + 1) for o in test.operands]
        if (test.op == "and") != negated:
            return next((s for s in sides if s is not None), None)
        # any of them lets through: all must pick the same rank, or hold only where there is one process
        decided = {s for s, o in zip(sides, test.operands, strict=False) if not self._is_single(o, negated)}
        return decided.pop() if len(decided) == 1 else None

    def _compare_side(self, test: Compare) -> str | None:
        if len(test.ops) != 1:
            return None
        op = test.ops[0]
        for expr, other, turned in (
            (test.operands[0], test.operands[1], False),
            (test.operands[1], test.operands[0], True),
        ):
            if isinstance(expr, Operator) and expr.op == "%":
                expr = expr.operands[0]  # one per node
            if not self.is_rank(expr):
                continue
            if op in ("in", "not in") and not turned and isinstance(other, Sequence):
                numbers = [self._number(e) for e in other.elements]
                if numbers and all(n in (-1, 0) for n in numbers) and 0 in numbers:
                    return ONE if op == "in" else OTHERS
                return None
            number = self._number(other)
            if number is None or number < 0:
                return None
            if op in ("==", "is"):
                return ONE
            if op in ("!=", "is not"):
                return OTHERS
            if turned:
                op = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(op, op)
            if (op, number) in ((">", 0), (">=", 1)):
                return OTHERS
            if (op, number) in (("<", 1), ("<=", 0)):
                return ONE
        return None

    def _number(self, expr: Expr) -> int | None:
        if isinstance(expr, Operator) and expr.op == "-" and len(expr.operands) == 1:
            inner = self._number(expr.operands[0])
            return -inner if inner is not None else None
        value = constant(self.inference.value(expr)) if isinstance(expr, (Constant, Name, Attribute)) else ...
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def _call_side(self, test: Call, depth: int) -> str | None:
        for value in each(self.inference.value(test.callee)):
            if isinstance(value, Routine) and len(value.function.returns) == 1:
                returned = value.function.returns[0].value
                if returned is not None:
                    return self.side(returned, False, depth + 1)
        name = test.attr or ""
        if name == "bool" and len(test.args) == 1:
            return self.side(test.args[0], False, depth + 1)
        return ONE if _LEADER.search(name) else None

    def _name_side(self, test: Name | Attribute, depth: int) -> str | None:
        if self.is_rank(test):
            return OTHERS  # `if rank:`
        name = test.id if isinstance(test, Name) else test.attr
        bindings = self._bindings(test)
        values = [b.value for b in bindings if b.how == "assign" and b.value is not None and not b.path]
        if bindings and len(values) == len(bindings):
            sides = {self.side(v, False, depth + 1) for v in values if not isinstance(v, Constant)}
            if len(sides) == 1:
                found = sides.pop()
                if found is not None:
                    return found
        if isinstance(test, Attribute) or not bindings or any(b.how == "parameter" for b in bindings):
            return ONE if _LEADER.search(name) else None
        return ONE if _LEADER.search(name) and any(self.chooses(v) for v in values) else None

    def is_rank(self, expr: Expr, depth: int = 0) -> bool:
        """Whether an expression is the number of a process."""
        if depth > _DEEPEST:
            return False
        if isinstance(expr, Call):
            name = expr.attr or ""
            if name in ("int", "str") and expr.args:
                return self.is_rank(expr.args[0], depth + 1)
            if name in ("get", "getenv") and expr.args:
                return isinstance(expr.args[0], Constant) and expr.args[0].value in _RANK_VARIABLES
            if name in _RANK_CALLS:
                return True
            for value in each(self.inference.value(expr.callee)):
                if isinstance(value, Routine) and len(value.function.returns) == 1:
                    returned = value.function.returns[0].value
                    return returned is not None and self.is_rank(returned, depth + 1)
            return False
        if isinstance(expr, Subscript):
            return isinstance(expr.index, Constant) and expr.index.value in _RANK_VARIABLES
        if isinstance(expr, Conditional):
            return self.is_rank(expr.body, depth + 1) or self.is_rank(expr.orelse, depth + 1)
        if isinstance(expr, (Name, Attribute)):
            if _RANK.search(expr.id if isinstance(expr, Name) else expr.attr):
                return True
            return any(self._binds_rank(b, depth) for b in self._bindings(expr))
        return False

    def _binds_rank(self, binding: Binding, depth: int) -> bool:
        if binding.how == "parameter":
            return self._is_spawned_first(binding)
        value = binding.value
        if binding.how != "assign" or value is None:
            return False
        if binding.path:
            if isinstance(value, Sequence) and len(binding.path) == 1 and isinstance(binding.path[0], int):
                if 0 <= binding.path[0] < len(value.elements):
                    return self.is_rank(value.elements[binding.path[0]], depth + 1)
            return False
        return self.is_rank(value, depth + 1)

    def _is_spawned_first(self, binding: Binding) -> bool:
        """The first parameter of what `mp.spawn` starts."""
        function = binding.context.function
        if function is None or not function.parameters:
            return False
        for site in self.inference.callgraph.callers(function):
            if site.arguments is not None and 0 < site.shift <= len(function.parameters):
                if function.parameters[site.shift - 1] is binding.source and site.call.attr in (
                    "spawn",
                    "start_processes",
                ):
                    return True
            argument = site.argument(function, binding.source)
            if site.arguments is None and isinstance(argument, Expr) and isinstance(argument, (Name, Attribute)):
                if _RANK.search(argument.id if isinstance(argument, Name) else argument.attr):
                    return True
        return False

    def _bindings(self, expr: Name | Attribute) -> list[Binding]:
        if isinstance(expr, Name):
            found = lookup(expr, expr.id)[0]
            imported = [b for b in found if b.how == "import"]
            if not imported:
                return found
            kept = [b for b in found if b.how != "import"]
            for binding in imported:
                target = self.inference.project.target(binding.context.module.path, binding.source)
                if isinstance(target, tuple):
                    kept.extend(target[0].names.get(target[1], ()))
            return kept
        if is_self(expr.value, expr.context) and expr.context.cls is not None:
            bases = self.inference.bases(expr.context.cls)
            return [b for base in bases if not isinstance(base, str) for b in base.attributes.get(expr.attr, ())]
        dotted = dotted_name(expr)
        return expr.context.module.stores.get(dotted, []) if dotted is not None else []

    def _is_single(self, test: Expr, negated: bool) -> bool:
        """A condition that holds where there is one process only: `not distributed`, `world_size == 1`."""
        while isinstance(test, Operator) and test.op == "not":
            test, negated = test.operands[0], not negated
        if isinstance(test, Compare) and len(test.ops) == 1:
            number = self._number(test.operands[1])
            op = test.ops[0]
            if _MANY.search(_own_name(test.operands[0])):
                single = (
                    (op == "==" and number in (0, 1)) or (op == "<" and number == 2) or (op == "<=" and number == 1)
                )
                several = (
                    (op == ">" and number in (0, 1))
                    or (op == "!=" and number in (0, 1))
                    or (op == ">=" and number == 2)
                )
                return (single and not negated) or (several and negated)
            if number == -1 and self.is_rank(test.operands[0]):
                return (op == "==") != negated and op in ("==", "!=")
            return False
        if isinstance(test, (Name, Attribute, Call)):
            return negated and bool(_MANY.search(_own_name(test)))
        return False

    # -------------------------------------------------------------------------------------- widely: for silence

    def guarded(self, context: Context) -> bool:
        """Whether a condition or block around a place in its own function, or a decorator, may pick a process."""
        for frame in context.local_frames():
            if frame.kind == "branch" and frame.test is not None:
                if self.chooses(frame.test) or self._is_single(frame.test, frame.negated):
                    return True
            elif frame.kind == "with":
                if any(isinstance(i.value, Call) and _ORDERS.search(i.value.attr or "") for i in frame.record.items):
                    return True
            elif frame.kind == "function":
                if any(_ONLY_DECORATOR.search(w) for d in frame.record.decorators for w in _words(d)):
                    return True
        return False

    def on_every_rank(self, context: Context) -> tuple[Call, ...] | None:
        """The calls (nearest first) by which every rank of a distributed program reaches a place; None where a rank
        guard may stand on the way, or nothing is known to be distributed."""
        starters = self._starting(context.module)
        return self._on_every_rank(context, starters, (), set()) if starters else None

    def _on_every_rank(
        self, context: Context, starters: frozenset[Owner], calls: tuple[Call, ...], seen: set[int]
    ) -> tuple[Call, ...] | None:
        if self.guarded(context):
            return None
        if _owner(context) in starters:
            return calls
        function = context.function
        if function is None or id(function) in seen:
            return None
        seen.add(id(function))
        for site in self.inference.callgraph.callers(function):
            found = self._on_every_rank(site.call.context, starters, (*calls, site.call), seen)
            if found is not None:
                return found
        return None

    def chooses(self, test: Expr, depth: int = 0) -> bool:
        """Whether a condition may have to do with the choice of a process, in any way."""
        if depth > _DEEPEST:
            return True
        for expr in expressions(test):
            if isinstance(expr, Constant) and isinstance(expr.value, str) and _ANY_RANK.search(expr.value):
                return True
            if isinstance(expr, Compare) and any(isinstance(o, Constant) and o.value == 0 for o in expr.operands):
                if any(_CARD.search(w) for w in _words(expr)):
                    return True
            if not isinstance(expr, (Name, Attribute)):
                continue
            if _ANY_RANK.search(expr.id if isinstance(expr, Name) else expr.attr):
                return True
            if self.is_rank(expr) or any(self._flags_rank(b, depth) for b in self._bindings(expr)):
                return True
        for call in [e for e in expressions(test) if isinstance(e, Call)]:
            for value in each(self.inference.value(call.callee)):
                if isinstance(value, Routine) and any(
                    r.value is not None and self._is_flag(r.value, depth + 1) for r in value.function.returns
                ):
                    return True
        return False

    def _flags_rank(self, binding: Binding, depth: int) -> bool:
        """A flag set by rank: by its value, or by where it was set (`saver = None; if rank == 0: saver = ...`)."""
        if binding.how == "parameter":
            function = binding.context.function
            if function is None or depth > 2:
                return False
            for site in self.inference.callgraph.callers(function):
                argument = site.argument(function, binding.source)
                if isinstance(argument, (Name, Attribute, Compare, Operator, Call, Conditional)) and self._is_flag(
                    argument, depth + 1
                ):
                    return True
            return False
        if binding.how != "assign" or binding.value is None:
            return False
        if any(
            f.kind == "branch" and f.test is not None and depth < 3 and self.chooses(f.test, depth + 2)
            for f in binding.context.local_frames()
        ):
            return True
        return self._is_flag(binding.value, depth + 1)

    def _is_flag(self, value: Expr, depth: int) -> bool:
        """Follows only what makes a flag: comparisons, logic, a choice; not whatever was computed with a rank."""
        if isinstance(value, Compare) or (isinstance(value, Operator) and value.op in ("not", "and", "or")):
            return self.chooses(value, depth)
        if isinstance(value, Conditional):
            return self.chooses(value.test, depth)
        if isinstance(value, (Name, Attribute)):
            return self.chooses(value, depth)
        if isinstance(value, Call):
            if _ANY_RANK.search(value.attr or ""):
                return True
            return value.attr in ("int", "bool") and bool(value.args) and self._is_flag(value.args[0], depth)
        return False

    def names_rank(self, expr: Expr, depth: int = 0) -> bool:
        """Whether a path is each process's own: it holds the rank, a process id, a temporary name, or is a buffer."""
        if depth > _DEEPEST:
            return True
        for part in expressions(expr):
            if (
                isinstance(part, Constant)
                and isinstance(part.value, str)
                and re.search(r"rank|/dev/null", part.value, re.I)
            ):
                return True
            word = part.id if isinstance(part, Name) else part.attr if isinstance(part, (Attribute, Call)) else None
            if word and (_ANY_RANK.search(word) or _OWN.search(word)):
                return True
            if isinstance(part, (Name, Attribute)):
                if self.is_rank(part):
                    return True
                for binding in self._bindings(part):
                    if binding.how == "parameter":
                        if depth < 3 and self._given_rank(binding, depth):
                            return True
                    elif binding.value is not None and depth < 3 and self.names_rank(binding.value, depth + 1):
                        return True
        return False

    def _given_rank(self, binding: Binding, depth: int) -> bool:
        function = binding.context.function
        if function is None:
            return False
        for site in self.inference.callgraph.callers(function):
            argument = site.argument(function, binding.source)
            if isinstance(argument, Expr) and self.names_rank(argument, depth + 1):
                return True
        return False


_OWN = Pattern(r"getpid|uuid|tempfile|mkdtemp|mkstemp|BytesIO|buffer|shard|worker|gpu|hostname|proc", re.I)


def _owner(context: Context) -> Owner:
    """The function, or the file for its module level, that a place lies in."""
    return context.function if context.function is not None else context.module


def _own_name(expr: Expr) -> str:
    """`world_size` of `args.world_size` and of `dist.world_size()`."""
    if isinstance(expr, Name):
        return expr.id
    return (expr.attr or "") if isinstance(expr, (Attribute, Call)) else ""


def _words(expr: Expr) -> set[str]:
    """Names and attributes that stand anywhere in an expression."""
    return {e.id if isinstance(e, Name) else e.attr for e in expressions(expr) if isinstance(e, (Name, Attribute))}

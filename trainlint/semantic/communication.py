"""Communication between the ranks of a program: calls in which all of them must take part, and transfers in pairs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from trainlint.patterns_on_use import Pattern
from trainlint.semantic import frameworks, known
from trainlint.semantic.facts import Call, Expr, Function, Module, Name
from trainlint.semantic.values import External, Object, Unknown, Value, each
from trainlint.semantic.walk import names_read

if TYPE_CHECKING:
    from trainlint.semantic.inference import Inference

# of torch.distributed (documentation of torch 2.13), deprecated names included
_COLLECTIVES = (
    "barrier monitored_barrier broadcast broadcast_object_list all_reduce all_reduce_coalesced reduce all_gather "
    "all_gather_into_tensor all_gather_object all_gather_coalesced gather gather_object scatter scatter_object_list "
    "reduce_scatter reduce_scatter_tensor all_to_all all_to_all_single _all_gather_base _reduce_scatter_base"
).split()
COLLECTIVES = frozenset(
    f"{module}.{name}"
    for name in _COLLECTIVES
    for module in ("torch.distributed", "torch.distributed.distributed_c10d")
)
TRANSFERS = frozenset(
    f"{module}.{name}"
    for name in ("isend", "irecv")
    for module in ("torch.distributed", "torch.distributed.distributed_c10d")
)
# state of sharded models, which all ranks collect together
_SHARDED = frozenset(
    f"torch.distributed.fsdp.{owner}.{name}"
    for owner in ("FullyShardedDataParallel", "fully_sharded_data_parallel.FullyShardedDataParallel")
    for name in (
        "full_optim_state_dict",
        "sharded_optim_state_dict",
        "optim_state_dict",
        "scatter_full_optim_state_dict",
    )
) | {
    "torch.distributed.checkpoint.save",
    "torch.distributed.checkpoint.save_state_dict",
    "torch.distributed.checkpoint.state_dict.get_model_state_dict",
    "torch.distributed.checkpoint.state_dict.get_optimizer_state_dict",
    "torch.distributed.checkpoint.state_dict.get_state_dict",
}
# fully_shard is not among them: its state_dict gives parts, without communication
FSDP = frozenset(n for n in known.DDP if n.endswith(".FullyShardedDataParallel"))
REPLICATED = frozenset(n for n in known.DDP if n.endswith(".DistributedDataParallel"))
_MPI = frozenset(
    "bcast Bcast gather Gather Gatherv scatter Scatter Scatterv allgather Allgather allreduce Allreduce reduce Reduce "
    "barrier Barrier alltoall Alltoall".split()
)
_ACCELERATOR = frozenset(
    "wait_for_everyone gather gather_for_metrics reduce pad_across_processes barrier all_gather all_reduce "
    "broadcast".split()
)


_LAST_NAMES = (
    {n.rpartition(".")[2] for n in COLLECTIVES | _SHARDED} | _MPI | _ACCELERATOR | {"state_dict", "clip_grad_norm_"}
)


class Communication:
    """Which calls need all ranks, themselves or in what they enter."""

    def __init__(self, inference: Inference) -> None:
        self.inference = inference

    def is_collective(self, call: Call) -> bool:
        """A call in which every rank of the program must take part. Not those of a group of some ranks."""
        attr = call.attr
        if attr is None or (attr not in _LAST_NAMES and attr not in self._aliases(call.context.module)):
            return False
        for value in each(self.inference.value(call.callee)):
            if isinstance(value, External):
                if value.name in COLLECTIVES or value.name in _SHARDED:
                    return not _has_group(call)
                if value.name.startswith("mpi4py.MPI.COMM_WORLD."):
                    return attr in _MPI
        receiver = call.receiver
        return receiver is not None and self._is_method(attr, receiver)

    def _aliases(self, module: Module) -> frozenset[str]:
        """Other names under which a file imports a collective."""
        found: frozenset[str] | None = module.memo.get("imported collectives")
        if found is None:
            names = {bound for s in module.imports for bound, full in s.names if full.rpartition(".")[2] in _LAST_NAMES}
            found = module.memo["imported collectives"] = frozenset(names)
        return found

    def _is_method(self, attr: str, receiver: Expr) -> bool:
        if attr not in ("state_dict", "clip_grad_norm_") and attr not in _ACCELERATOR and attr not in _MPI:
            return False
        for value in each(self.inference.value(receiver)):
            if attr in ("state_dict", "clip_grad_norm_") and self.wraps(value, FSDP):
                return True
            if isinstance(value, Object) and value.role in ("accelerator", "fabric") and attr in _ACCELERATOR:
                return True
            if isinstance(value, External) and value.name == "mpi4py.MPI.COMM_WORLD" and attr in _MPI:
                return True
            if (
                isinstance(value, Object)
                and attr == "all_gather"
                and frameworks.in_lightning(self.inference, value.cls)
            ):
                return True
        return False

    def wraps(self, value: Value, names: frozenset[str]) -> bool:
        """Whether a module is wrapped by one of these."""
        if not isinstance(value, Object):
            return False
        return value.name in names or any(self.wraps(v, names) for inner in value.inner for v in each(inner))

    def within(self, call: Call) -> bool:
        """Whether a call, or anything it enters, needs all ranks."""
        if self.is_collective(call):
            return True
        return any(self.of_function(callee.function) for callee in self.inference.callgraph.callees(call))

    def of_function(self, function: Function) -> bool:
        memo, key = function.module.memo, ("communicates", id(function))
        if key not in memo:
            memo[key] = False
            memo[key] = any(self.within(c) for c in function.calls)
        return memo[key]  # type: ignore[no-any-return]

    def may_be(self, call: Call) -> bool:
        """A call that cannot be followed and is named like one that all ranks take part in."""
        return isinstance(self.inference.value(call.callee), Unknown) and bool(_NAMED.search(call.attr or ""))


_NAMED = Pattern(r"barrier|sync|broadcast|gather|reduce|wait|recv|receive|scatter|collective", re.I)


def _has_group(call: Call) -> bool:
    group = call.keyword("group") or call.keyword("process_group")
    return group is not None and getattr(group, "value", ...) is not None


def is_read(target: Name) -> bool:
    """Whether a name is read anywhere in the scope in which it is assigned, or by a function inside of it."""
    module = target.context.module
    function = target.context.function
    for name in names_read(module):
        if name.id == target.id:
            if function is None or name.context.within(function.inner):
                return True
    return False

"""What an evaluation's graph holds: the tensors that autograd saved for a backward that never comes."""

from __future__ import annotations

from typing import Any

import _trainlint_probe as probe
from _trainlint_probe.clock import CLOCK
from _trainlint_probe.memory import BATCH, LIVE, PARAMETERS, tensors_in
from _trainlint_probe.sites import user_site
from _trainlint_probe.syncs import INSIDE

BATCHES = 16  # of the evaluation, that are looked at
SEEN: list[dict[str, Any]] = []


def install(torch: Any) -> None:
    """After an evaluation's forward: the bytes that autograd keeps for a backward that never comes."""
    from torch.nn.modules import module as modules

    depth = [0]

    def before(module: Any, args: Any) -> None:
        depth[0] += 1

    def after(module: Any, args: Any, output: Any) -> None:
        depth[0] = max(0, depth[0] - 1)
        if depth[0] or CLOCK.phase != "eval" or not probe.STATE.active or len(SEEN) >= BATCHES:
            return
        INSIDE.depth += 1
        try:
            held = graph_bytes(torch, tensors_in(torch, output, 0))
        finally:
            INSIDE.depth -= 1
        SEEN.append({"bytes": held, "grad": torch.is_grad_enabled(), "site": list(user_site(2))})

    modules.register_module_forward_pre_hook(before)
    modules.register_module_forward_hook(after, always_call=True)


def graph_bytes(torch: Any, outputs: Any) -> int:
    """Bytes of the tensors that the graph behind `outputs` saved, parameters left out."""
    nodes = [tensor.grad_fn for tensor in outputs if tensor.grad_fn is not None]
    seen: set[Any] = set()
    storages: dict[int, int] = {}
    parameters: set[int] = set()
    while nodes:
        node = nodes.pop()
        if node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)
        if leaf is not None:
            parameters.add(leaf.untyped_storage()._cdata)
        for saved in _saved(torch, node):
            record = LIVE.record_of(saved)
            if record is None or record.category not in (PARAMETERS, BATCH):
                storage = saved.untyped_storage()
                storages[storage._cdata] = storage.nbytes()
        nodes.extend(parent for parent, _ in node.next_functions if parent is not None)
    return sum(size for key, size in storages.items() if key not in parameters)


def _saved(torch: Any, node: Any) -> Any:
    for name in dir(node):
        if not (name.startswith("_saved_") or name == "saved_tensors"):
            continue
        try:
            value = getattr(node, name)
        except RuntimeError:  # freed, or changed in place
            continue
        for item in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(item, torch.Tensor):
                yield item

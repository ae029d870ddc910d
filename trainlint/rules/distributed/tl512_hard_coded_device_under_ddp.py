from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Level
from trainlint.patterns_on_use import Pattern
from trainlint.rules import describe
from trainlint.rules.rule import Hit, Rule
from trainlint.semantic import walk
from trainlint.semantic.contexts import dotted_name
from trainlint.semantic.facts import Assign, Attribute, Call, Conditional, Constant, Expr, Name
from trainlint.semantic.values import External, each

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

# a launcher or the script shows each process only its own card: then that card is number 0
_OWN_CARD = Pattern(rb"CUDA_VISIBLE_DEVICES")

_RANK = Pattern(r"rank|gpu|local", re.I)


class HardCodedDeviceUnderDdp(Rule):
    """`cuda:0` in code that every rank of a distributed training runs.

    ## Why is this bad?

    All processes of a machine put it on the first card: that one holds the tensors and the CUDA context of every rank
    and runs out of memory first, and what is computed there meets tensors on the other cards ("Expected all tensors to
    be on the same device").

    ## Example

    ```python
    dist.init_process_group("nccl")
    device = torch.device("cuda:0")
    model = DistributedDataParallel(model.to(device))
    ```

    ## Use instead

    ```python
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    device = torch.device("cuda", local_rank)
    ```

    Inside a module take the device of a parameter or an input: `torch.zeros(n, device=x.device)`.

    ## When it is silent

    Code that no distributed training reaches, or that only one rank runs; a default that the command line can change; a
    `map_location` dict; programs that set `CUDA_VISIBLE_DEVICES` per process.

    ## Fix safety

    No fix: where the local rank comes from is the script's own.

    ## Measured by `trainlint verify`

    Memory in use per card, where there are two.

    ## References

    - PyTorch tutorials, "Getting Started with Distributed Data Parallel": one process per device
    """

    code = "TL512"
    name = "hard-coded-device-under-ddp"
    level = Level.WARNING
    message = "every rank puts this on the first card: {device}"
    why = "card 0 holds the memory of all ranks, and its tensors cannot meet those on the other cards"
    help = "use the card of this rank: torch.device('cuda', local_rank), or the device of an input"
    triggers = ((b"cuda",), (b"device",))

    def check(self, script: Script) -> Iterator[Hit]:
        ranks = script.semantics.ranks
        for call in script.module.calls:
            given = self._device(script, call)
            if given is None or not self._is_first_card(given, call) or ranks.guarded(given.context):
                continue
            if self._is_replaced(call):
                continue
            if ranks.on_every_rank(call.context) is None or script.semantics.program.says(script.module, _OWN_CARD):
                continue
            yield Hit(call, {"device": describe.text(call)})

    def _is_replaced(self, call: Call) -> bool:
        """`device = torch.device("cuda:0")`, and behind it `if local_rank != -1: device = torch.device("cuda", local_rank)`."""
        statement = call.statement
        if not isinstance(statement, Assign) or len(statement.targets) != 1:
            return False
        target, module, function = statement.targets[0], call.context.module, call.context.function
        if isinstance(target, Name):
            bindings = (function.locals if function is not None else module.names).get(target.id, [])
        elif isinstance(target, Attribute):
            bindings = module.stores.get(dotted_name(target) or "", [])
        else:
            return False
        return any(
            b.how == "assign"
            and b.order > call.order
            and b.context.function is function
            and b.value is not None
            and any(isinstance(part, (Name, Attribute)) and _RANK.search(_word(part)) for part in walk.inside(b.value))
            for b in bindings
        )

    def _device(self, script: Script, call: Call) -> Expr | None:
        """The argument of a call that is a device."""
        keyword = call.keyword("device") or call.keyword("map_location")
        if keyword is not None:
            return keyword
        attr = call.attr
        if attr == "cuda" and call.receiver is not None:
            held = script.value(call.receiver)
            return call.argument(0, "device") if not isinstance(held, External) else None
        if attr == "to" and call.args:
            return call.args[0]
        if attr == "device" and any(
            isinstance(v, External) and v.name == "torch.device" for v in each(script.value(call.callee))
        ):
            return call.argument(0)
        return None

    def _is_first_card(self, given: Expr, call: Call) -> bool:
        if isinstance(given, Conditional):
            # `"cuda:0" if torch.cuda.is_available() else "cpu"`
            parts = [p for p in (given.body, given.orelse) if not (isinstance(p, Constant) and p.value == "cpu")]
            return len(parts) == 1 and self._is_first_card(parts[0], call)
        if not isinstance(given, Constant):
            return False
        if given.value == "cuda:0":
            return True
        if given.value == "cuda" and call.attr == "device" and len(call.args) == 2:
            return isinstance(call.args[1], Constant) and call.args[1].value == 0
        if isinstance(given.value, bool) or given.value != 0:
            return False
        return call.attr == "cuda" or call.keyword("device") is given


def _word(expr: Name | Attribute) -> str:
    return expr.id if isinstance(expr, Name) else expr.attr

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules import describe
from trainlint.rules.rule import Hit, Rule
from trainlint.semantic import reporting
from trainlint.semantic.facts import Call
from trainlint.semantic.values import External, Object, each

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_BARRIERS = frozenset({"barrier", "wait_for_everyone"})
_FILLING = frozenset({"all_reduce", "reduce", "broadcast"})  # torch.distributed writes into its argument
_GIVING = frozenset(
    {"gather", "gather_for_metrics", "reduce", "all_gather", "all_reduce"}
)  # of an accelerator or fabric


class LoggingCollectiveEveryStep(Rule):
    """All ranks meet on every step for a number that is only logged.

    ## Why is this bad?

    A collective makes each rank wait for the slowest one, and a barrier does nothing else. Where the result only goes
    to a log that is written every hundred steps, the other ninety-nine meetings are for nothing.

    ## Example

    ```python
    for step, batch in enumerate(loader):
        loss = train_step(batch)
        shown = loss.detach().clone()
        dist.all_reduce(shown)
        if step % 100 == 0:
            print(shown.item() / world_size)
    ```

    ## Use instead

    ```python
        if step % 100 == 0:
            shown = loss.detach().clone()
            dist.all_reduce(shown)
            print(shown.item() / world_size)
    ```

    ## When it is silent

    Where the result takes part in the loss, in gradients or in the state of the model, once per epoch, and under a
    condition that makes it rare. It is advice.

    ## Fix safety

    No fix.

    ## Measured by `trainlint verify`

    Step time without the call.

    ## References

    - PyTorch, `torch.distributed`: "Synchronous and asynchronous collective operations"
    """

    code = "TL111"
    name = "logging-collective-every-step"
    level = Level.ADVICE
    claim = Claim.SYNC
    message = "{call} makes all ranks meet on every step of {loop}, for a value that is only logged"
    why = "each rank waits for the slowest one, on steps that log nothing too"
    help = "do it on the steps that log, or once per epoch"
    triggers = tuple((name.encode(),) for name in sorted(_BARRIERS | _FILLING | _GIVING))

    def check(self, script: Script) -> Iterator[Hit]:
        for call in script.module.calls:
            attr = call.attr
            if attr not in _BARRIERS and attr not in _FILLING and attr not in _GIVING:
                continue
            hot = script.hot(call)
            if hot is None or hot.phase != "train" or not self._is_for_logs(script, call):
                continue
            values = {"call": describe.text(call), "loop": describe.loop_name(hot.loop, hot)}
            if attr in _BARRIERS:
                yield Hit(
                    call, values, None, describe.notes(hot), why="a barrier makes each rank wait for the slowest one"
                )
            else:
                yield Hit(call, values, None, describe.notes(hot))

    def _is_for_logs(self, script: Script, call: Call) -> bool:
        outside = any(
            isinstance(v, External) and v.name.startswith("torch.distributed.") and v.name.count(".") == 2
            for v in each(script.value(call.callee))
        )
        receiver = call.receiver
        framework = receiver is not None and any(
            isinstance(v, Object) and v.role in ("accelerator", "fabric") for v in each(script.value(receiver))
        )
        if call.attr in _BARRIERS:
            return (outside or framework) and reporting.stands_alone(call)
        if outside and call.attr in _FILLING and call.args:
            return not reporting.is_state(script, call.args[0]) and reporting.only_logged(script, call, call.args[0])
        return framework and call.attr in _GIVING and bool(call.args) and reporting.only_logged(script, call, call)

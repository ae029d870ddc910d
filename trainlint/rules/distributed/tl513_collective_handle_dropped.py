from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Level
from trainlint.rules import describe
from trainlint.rules.rule import Hit, Rule
from trainlint.semantic import communication
from trainlint.semantic.facts import Assign, Attribute, Call, Evaluate, Name

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class CollectiveHandleDropped(Rule):
    """`isend`, `irecv`, or a collective with `async_op=True`, whose handle nobody waits for.

    ## Why is this bad?

    The call returns at once, and the transfer runs while the script goes on. Without `wait()` the tensor is read or
    changed before the transfer is done: sums that are not sums yet, weights from half of the ranks, in some runs only.

    ## Example

    ```python
    for p in model.parameters():
        dist.all_reduce(p.grad, async_op=True)
    optimizer.step()
    ```

    ## Use instead

    ```python
    handles = [dist.all_reduce(p.grad, async_op=True) for p in model.parameters()]
    for handle in handles:
        handle.wait()
    optimizer.step()
    ```

    ## When it is silent

    The handle is kept, returned or handed on; `async_op` is off or not known; `batch_isend_irecv` of `P2POp`s.

    ## Fix safety

    No fix: where to wait is a question of what should overlap.

    ## Measured by `trainlint verify`

    Nothing; it is a race.

    ## References

    - torch.distributed, "Synchronous and asynchronous collective operations"
    """

    code = "TL513"
    name = "collective-handle-dropped"
    level = Level.ERROR
    message = "nobody waits for {call}"
    why = "it returns before the transfer is done, so its tensor is used half-finished"
    help = "keep the handle and call its wait() before the tensor is used"
    triggers = ((b"async_op",), (b"isend",), (b"irecv",))

    def check(self, script: Script) -> Iterator[Hit]:
        names = [*communication.TRANSFERS, *communication.COLLECTIVES]
        for call in script.calls(*names):
            if self._is_async(script, call) and self._is_dropped(script, call):
                yield Hit(call, {"call": describe.text(call)})

    def _is_async(self, script: Script, call: Call) -> bool:
        if script.name_of(call.callee) in communication.TRANSFERS:
            return True
        return script.constant(call.keyword("async_op")) is True

    def _is_dropped(self, script: Script, call: Call) -> bool:
        statement = call.statement
        if isinstance(statement, Evaluate):
            return statement.value is call
        if not isinstance(statement, Assign) or statement.value is not call or statement.op is not None:
            return False
        targets = statement.targets
        return all(isinstance(t, Name) and not communication.is_read(t) for t in targets) and not any(
            isinstance(t, Attribute) for t in targets
        )

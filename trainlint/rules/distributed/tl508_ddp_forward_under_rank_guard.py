from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Level
from trainlint.rules import describe
from trainlint.rules.rule import Hit, Note, Rule
from trainlint.semantic import known
from trainlint.semantic.contexts import dotted_name
from trainlint.semantic.facts import Call
from trainlint.semantic.ranks import Restriction
from trainlint.semantic.values import each
from trainlint.semantic.work import FORWARD

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class DdpForwardUnderRankGuard(Rule):
    """A forward of the wrapped model in training mode that only one rank runs.

    ## Why is this bad?

    The forward of DistributedDataParallel sends the buffers (running means of BatchNorm) from rank 0 to all ranks, and
    after the first backward agrees with them on how gradients are grouped; that of FSDP collects the weights. One rank
    alone waits for the others, which are at another place: the run hangs or ends with a timeout.

    ## Example

    ```python
    if step % 100 == 0 and rank == 0:
        writer.add_images("samples", model(fixed_noise), step)
    ```

    ## Use instead

    ```python
    if step % 100 == 0 and rank == 0:
        model.eval()
        with torch.no_grad():
            writer.add_images("samples", model.module(fixed_noise), step)
        model.train()
    ```

    With FSDP all ranks must run the forward.

    ## When it is silent

    `.module` is called; the other ranks run a forward on their branch; the model was put in eval mode (its weights are
    the same everywhere, and most code does it so; with BatchNorm use `.module` all the same).

    ## Fix safety

    No fix: `.module(...)` is right for DistributedDataParallel and wrong for FSDP.

    ## Measured by `trainlint verify`

    Nothing; it hangs.

    ## References

    - torch.nn.parallel.DistributedDataParallel, "forward pass": buffers are broadcast from rank 0 in every iteration
    """

    code = "TL508"
    name = "ddp-forward-under-rank-guard"
    level = Level.ERROR
    message = "only {who} run{s} {call}, and its forward waits for all of them"
    why = "the wrapper's forward communicates with the other ranks, which never come: the run hangs"
    help = "call {inner}.module(...) on that rank, or run the forward on every rank"
    triggers = ((b"rank",), (b"main",), (b"master",), (b"leader",), (b"torch",))
    near = (b"DistributedDataParallel", b"FullyShardedDataParallel", b"fully_shard")

    def check(self, script: Script) -> Iterator[Hit]:
        semantics = script.semantics
        if not semantics.ranks.wraps_models(script.module):
            return
        for call in script.module.calls:
            if not self._is_wrapped_forward(script, call):
                continue
            found = semantics.ranks.restricted(call.context)
            if found is None or self._evaluates(script, call, found):
                continue
            if semantics.ranks.is_paired(found, lambda c: self._runs_forward(script, c), lambda c: False):
                continue
            one = found.side == "one"
            values = {
                "who": "one rank" if one else "the other ranks",
                "s": "s" if one else "",
                "call": describe.text(call),
                "inner": describe.text(call.callee),
            }
            notes = [Note(c, "called from here") for c in found.calls[:3]]
            if found.frame.test is not None:
                notes.append(Note(found.frame.test, "this condition picks the rank"))
            yield Hit(call, values, None, tuple(notes))

    def _is_wrapped_forward(self, script: Script, call: Call) -> bool:
        communication = script.semantics.communication
        return any(communication.wraps(v, known.DDP) for v in each(script.value(call.callee)))

    def _runs_forward(self, script: Script, call: Call) -> bool:
        done = script.semantics.work.of_call(call)
        return FORWARD in done.once | done.looped

    def _evaluates(self, script: Script, call: Call, found: Restriction) -> bool:
        """The model was put in eval mode, here or in a caller on the way to the condition."""
        names = {dotted_name(call.callee)}
        for place in (call, *found.calls):
            modes = [
                c
                for c in script.semantics.loops.calls_of(place.context)
                if c.attr in ("eval", "train") and c.order < place.order and c.receiver is not None
            ]
            own = [c for c in modes if _without_module(c) in names or place is not call]
            if own:
                return own[-1].attr == "eval" or script.constant(own[-1].argument(0, "mode")) is False
        return False


def _without_module(call: Call) -> str | None:
    name = dotted_name(call.receiver) if call.receiver is not None else None
    return name[: -len(".module")] if name is not None and name.endswith(".module") else name

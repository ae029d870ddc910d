from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Level
from trainlint.rules import describe
from trainlint.rules.rule import Hit, Note, Rule
from trainlint.semantic.ranks import Restriction

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class CollectiveUnderRankGuard(Rule):
    """A collective that only one rank, or all but one, can reach.

    ## Why is this bad?

    A collective waits until every rank has called it. The rank that does waits for ever, or until the timeout (ten
    minutes with NCCL) ends the run; or it meets the next collective of the others, and the sums are those of different
    tensors.

    ## Example

    ```python
    if rank == 0:
        dist.all_reduce(total)
        print(total.item())
    ```

    ## Use instead

    ```python
    dist.all_reduce(total)
    if rank == 0:
        print(total.item())
    ```

    ## When it is silent

    Conditions that are no literal choice of a rank (`if distributed`); a collective on the other branch, or on both
    sides of "leader goes first"; collectives of a process group that is given; code that only a single process runs.

    ## Fix safety

    No fix: what belongs before and after the collective is not known.

    ## Measured by `trainlint verify`

    Nothing; it hangs.

    ## References

    - torch.distributed, "Collective functions": must be called by all processes of the group
    - torch.distributed.fsdp, FullyShardedDataParallel.state_dict_type and clip_grad_norm_: must be called on all ranks
    """

    code = "TL511"
    name = "collective-under-rank-guard"
    level = Level.ERROR
    message = "only {who} reach{es} {call}, which waits for all of them"
    why = "a collective needs every rank: this one waits for ever, or meets another collective of the others"
    help = "move it out of the rank condition, so that every rank calls it"
    triggers = ((b"rank",), (b"main",), (b"master",), (b"leader",), (b"barrier",), (b"distributed",))

    def check(self, script: Script) -> Iterator[Hit]:
        ranks, communication = script.semantics.ranks, script.semantics.communication
        for call in script.module.calls:
            if not communication.is_collective(call):
                continue
            found = ranks.restricted(call.context)
            if found is None or ranks.is_paired(found, communication.within, communication.may_be):
                continue
            yield Hit(call, _values(found, describe.text(call)), None, _notes(found))


def _values(found: Restriction, call: str) -> dict[str, str]:
    one = found.side == "one"
    return {"who": "one rank" if one else "the other ranks", "es": "es" if one else "", "call": call}


def _notes(found: Restriction) -> tuple[Note, ...]:
    notes = [Note(c, "called from here") for c in found.calls[:3]]
    if found.frame.test is not None:
        notes.append(Note(found.frame.test, "this condition picks the rank"))
    return tuple(notes)

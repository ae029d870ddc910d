from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Level
from trainlint.rules import describe
from trainlint.rules.rule import Hit, Note, Rule
from trainlint.semantic import frameworks
from trainlint.semantic.claimed_files import is_left_to_one

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class CheckpointSavedByEveryRank(Rule):
    """`torch.save` to one path by every process of a distributed training.

    ## Why is this bad?

    All ranks open, truncate and write the same file at the same time. What is left can be cut short or mixed: it fails
    to load when it is needed, or holds the state of a rank that was slower. On a network file system every rank also
    waits for the others.

    ## Example

    ```python
    for epoch in range(epochs):
        train_one_epoch(model, loader, optimizer)
        torch.save(model.module.state_dict(), "checkpoint.pt")
    ```

    ## Use instead

    ```python
        if dist.get_rank() == 0:
            torch.save(model.module.state_dict(), "checkpoint.pt")
        dist.barrier()   # where the others read the file next
    ```

    With FSDP every rank takes part in collecting the state, and one writes it; `torch.distributed.checkpoint.save`
    writes one part per rank.

    ## When it is silent

    A rank guard in any form: in a caller, in a helper (`save_on_master`), a flag that was derived from the rank, an
    early return, one condition of several; the rank, a process id or a temporary name in the path; saving into a
    buffer; files of which each rank takes those that are not there yet; code that only runs without `distributed`;
    scripts that start no process group and wrap no model; Lightning and the Hugging Face Trainer.

    ## Fix safety

    No fix: what else has to happen on the other ranks is not known.

    ## Measured by `trainlint verify`

    Nothing; it is a race.

    ## References

    - PyTorch tutorials, "Getting Started with Distributed Data Parallel", Save and Load Checkpoints
    """

    code = "TL504"
    name = "checkpoint-saved-by-every-rank"
    level = Level.ERROR
    message = "every rank writes {path} at the same time"
    why = "the processes overwrite each other's file, which can be left cut short or mixed"
    help = "save on one rank: if dist.get_rank() == 0: torch.save(...)"
    triggers = ((b"torch", b"save"),)

    def check(self, script: Script) -> Iterator[Hit]:
        ranks = script.semantics.ranks
        for call in script.calls("torch.save", "torch.serialization.save"):
            path = call.argument(1, "f")
            if path is None or ranks.names_rank(path) or is_left_to_one(call, path):
                continue
            if (
                call.context.cls is not None
                and frameworks.class_framework(script.inference, call.context.cls) is not None
            ):
                continue
            way = ranks.on_every_rank(call.context)
            if way is not None:
                notes = tuple(Note(c, "every rank comes through here") for c in way[:3])
                yield Hit(call, {"path": describe.text(path)}, None, notes)

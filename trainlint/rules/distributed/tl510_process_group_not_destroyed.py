from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Level
from trainlint.patterns_on_use import Pattern
from trainlint.rules.rule import Hit, Rule
from trainlint.semantic.mentions import mentions

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_DESTROYS = Pattern(rb"destroy_process_group|abort_process_group")


class ProcessGroupNotDestroyed(Rule):
    """`init_process_group` in a program that never calls `destroy_process_group`.

    ## Why is this bad?

    NCCL's communicators and their threads are torn down in whatever order the interpreter ends. torch warns about it,
    the exit can hang or crash after a run that went well, and a rank that ends early can take down those that still
    work.

    ## Example

    ```python
    def main():
        dist.init_process_group("nccl")
        train()
    ```

    ## Use instead

    ```python
    def main():
        dist.init_process_group("nccl")
        try:
            train()
        finally:
            dist.destroy_process_group()
    ```

    ## When it is silent

    Library code, whose callers are elsewhere; programs that destroy the group anywhere; frameworks that open it
    themselves.

    ## Fix safety

    No fix: where the last collective is, is not known.

    ## Measured by `trainlint verify`

    Nothing.

    ## References

    - torch.distributed, "Shutdown": destroy_process_group should be called at exit
    """

    code = "TL510"
    name = "process-group-not-destroyed"
    level = Level.ADVICE
    message = "the program starts a process group and never destroys it"
    why = "torch warns at exit, and with NCCL the exit can hang or crash"
    help = "call dist.destroy_process_group() at the end, in a finally"
    triggers = ((b"init_process_group",),)

    def check(self, script: Script) -> Iterator[Hit]:
        started = script.semantics.program.is_started
        for call in script.calls(
            "torch.distributed.init_process_group", "torch.distributed.distributed_c10d.init_process_group"
        ):
            if started(call.context) and not any(mentions(script, _DESTROYS)):
                yield Hit(call, {})

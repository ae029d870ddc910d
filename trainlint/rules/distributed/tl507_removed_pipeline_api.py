from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Level
from trainlint.rules.rule import Hit, Rule
from trainlint.semantic.fallbacks import depends_on_version
from trainlint.torch_api.changes import changes_of, verdict

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class RemovedPipelineApi(Rule):
    """An import from `torch.distributed.pipeline.sync`.

    ## Why is this bad?

    The package was removed in torch 2.4: the import raises ModuleNotFoundError.

    ## Example

    ```python
    from torch.distributed.pipeline.sync import Pipe
    model = Pipe(nn.Sequential(first, second), chunks=8)
    ```

    ## Use instead

    ```python
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
    stage = PipelineStage(my_part, rank, world_size, device)
    schedule = ScheduleGPipe(stage, n_microbatches=8, loss_fn=loss_fn)
    ```

    It is another interface: one process per stage, and a schedule that runs forward and backward.

    ## When it is silent

    A target below 2.4 (where 2.3 already warns: a warning); under try/except or a version branch; packages of the
    project's own.

    ## Fix safety

    No fix: the new interface is another one.

    ## Measured by `trainlint verify`

    Nothing; it does not start.

    ## References

    - torch.distributed.pipelining, "Pipeline Parallelism"
    """

    code = "TL507"
    name = "removed-pipeline-api"
    level = Level.ERROR
    message = "torch.distributed.pipeline was removed in torch 2.4"
    why = "the import raises ModuleNotFoundError"
    help = "use torch.distributed.pipelining (another interface: one process per stage and a schedule)"
    triggers = ((b"pipeline",),)

    def check(self, script: Script) -> Iterator[Hit]:
        for statement in script.module.imports:
            if depends_on_version(statement.context):
                continue
            rows = [c for name in statement.modules for c in changes_of(name) if c.code == self.code]
            rows += [c for _, full in statement.names for c in changes_of(full) if c.code == self.code]
            if not rows:
                continue
            level = verdict(rows[0], script.settings.torch_range) if script.settings is not None else Level.ERROR
            if level is not None:
                yield Hit(statement, {}, level)

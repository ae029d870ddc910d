from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules import describe
from trainlint.rules.rule import Hit, Rule
from trainlint.semantic import known

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class DataParallel(Rule):
    """`nn.DataParallel(model)`, or the function `nn.parallel.data_parallel`.

    ## Why is this bad?

    One process drives all devices: on every step it copies the model to each of them, splits the batch, runs the replicas
    in Python threads that share one interpreter lock, and gathers outputs and gradients on device 0, which needs more
    memory than the others. Its own documentation recommends DistributedDataParallel instead, also on a single machine. It
    is not deprecated and gives no warning.

    ## Example

    ```python
    model = nn.DataParallel(model).cuda()
    ```

    ## Use instead

    ```python
    # torchrun --nproc_per_node=4 train.py
    dist.init_process_group("nccl")
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    model = DistributedDataParallel(model.cuda(), device_ids=[local_rank])
    ```

    with a `DistributedSampler` for the training loader.

    ## When it is silent

    On `isinstance(model, nn.DataParallel)` and on unwrapping `.module`.

    ## Fix safety

    No fix: moving to one process per device changes how the script is started.

    ## Measured by `trainlint verify`

    Step time of DataParallel against DistributedDataParallel, where there are two devices.

    ## References

    - torch.nn.DataParallel, the warning at the top of its page
    - PyTorch notes, "CUDA semantics: Use nn.parallel.DistributedDataParallel instead of multiprocessing or nn.DataParallel"
    """

    code = "TL501"
    name = "data-parallel"
    level = Level.WARNING
    claim = Claim.TIME
    message = "{call} drives all devices from one process"
    why = "the model is copied and outputs are gathered on device 0 on every step, under one interpreter lock"
    help = "use DistributedDataParallel with one process per device (torchrun)"
    triggers = ((b"DataParallel",), (b"data_parallel",))

    def check(self, script: Script) -> Iterator[Hit]:
        for call in script.calls(*known.DATA_PARALLEL):
            yield Hit(call, {"call": f"{describe.text(call.callee)}(...)"})

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules.rule import Hit, Rule
from trainlint.semantic import debugging

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class DebugModeLeftOn(Rule):
    """A debugging mode is on in every run: anomaly detection, blocking launches, a profiler around the whole training.

    ## Why is this bad?

    Anomaly detection records a stack trace for each forward operation and checks each gradient for NaN, which waits
    for the device. `CUDA_LAUNCH_BLOCKING=1` waits after each kernel, so nothing overlaps. A profiler without a
    schedule keeps every event of the run in memory.

    ## Example

    ```python
    torch.autograd.set_detect_anomaly(True)
    ```

    ## Use instead

    Put it behind an option that is off, set `CUDA_LAUNCH_BLOCKING` in the shell when it is needed, and give the
    profiler `schedule=torch.profiler.schedule(wait=10, warmup=2, active=3)`.

    ## When it is silent

    Behind a condition, in tests, where the mode is switched off, and for a profile of a few steps.

    ## Fix safety

    No fix.

    ## Measured by `trainlint verify`

    The step time without it.

    ## References

    - PyTorch, `torch.autograd.detect_anomaly`: "should be enabled only for debugging"; Performance Tuning Guide,
      "Disable debugging APIs"
    """

    code = "TL208"
    name = "debug-mode-left-on"
    level = Level.WARNING
    claim = Claim.TIME
    message = "{what} is on in every run"
    why = "{cost}"
    help = "{remedy}"
    triggers = ((b"detect_anomaly",), (b"CUDA_LAUNCH_BLOCKING",), (b"profile",), (b"set_debug",))

    def check(self, script: Script) -> Iterator[Hit]:
        for mode in debugging.modes(script):
            yield Hit(mode.record, {"what": mode.what}, why=mode.cost, help=mode.remedy)

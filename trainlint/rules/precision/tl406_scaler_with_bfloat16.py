from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Level
from trainlint.patterns_on_use import Pattern
from trainlint.rules import describe
from trainlint.rules.rule import Hit, Note, Rule
from trainlint.semantic import known
from trainlint.semantic.facts import Call
from trainlint.semantic.precision import autocast_dtype, is_enabled, scaler_calls
from trainlint.semantic.values import Const, each

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_AUTOCAST = Pattern(rb"autocast")


class ScalerWithBfloat16(Rule):
    """A GradScaler, and every autocast of the program uses bfloat16.

    ## Why is this bad?

    bfloat16 has the exponent of float32: gradients do not underflow, and there is nothing to scale. The scaler still
    checks all gradients for infinities on every step and reads the answer back, which waits for the device.

    ## Example

    ```python
    scaler = torch.amp.GradScaler("cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = criterion(model(images), target)
    scaler.scale(loss).backward()
    ```

    ## Use instead

    ```python
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = criterion(model(images), target)
    loss.backward()
    optimizer.step()
    ```

    or `GradScaler("cuda", enabled=dtype == torch.float16)` where the type can be chosen.

    ## When it is silent

    `enabled=` is given and not plainly True; a type that is not known; any autocast with float16.

    ## Fix safety

    No fix: backward, step and update change together.

    ## Measured by `trainlint verify`

    Nothing.

    ## References

    - PyTorch, Automatic Mixed Precision package, "Gradient Scaling"
    """

    code = "TL406"
    name = "scaler-with-bfloat16"
    level = Level.ADVICE
    message = "{call} scales gradients that bfloat16 does not lose"
    why = "bfloat16 has the range of float32; the scaler's check of all gradients waits for the device on every step"
    help = "leave the scaler out, or create it with enabled=(dtype == torch.float16)"
    triggers = ((b"Scaler",),)

    def check(self, script: Script) -> Iterator[Hit]:
        scalers = [c for c in scaler_calls(script) if self._is_on(script, c)]
        if not scalers:
            return
        regions = self._autocasts(script)
        if regions and all(autocast_dtype(script, c) == "bfloat16" for c in regions):
            for call in scalers:
                yield Hit(call, {"call": describe.text(call)}, None, (Note(regions[0], "autocast in bfloat16"),))

    def _is_on(self, script: Script, call: Call) -> bool:
        given = call.keyword("enabled")
        if given is None:
            return not call.unpacks
        return all(isinstance(v, Const) and v.value is True and not v.settable for v in each(script.value(given)))

    def _autocasts(self, script: Script) -> list[Call]:
        found = []
        for module in script.semantics.program.modules(script.module, _AUTOCAST):
            for call in script.beside(module).calls(*known.AUTOCASTS):
                if is_enabled(script, call) is not False:
                    found.append(call)
        return found

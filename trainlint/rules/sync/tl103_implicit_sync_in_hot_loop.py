from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules import describe
from trainlint.rules.rule import Hit, Rule
from trainlint.rules.sync import implicit_syncs
from trainlint.rules.sync.hot_values import decodes, in_parameter_loop
from trainlint.semantic.facts import Call
from trainlint.semantic.heat import Hot

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class ImplicitSyncInHotLoop(Rule):
    """A tensor's value is needed on the host on every step: `float(t)`, `if t:`, `print(t)`, `f"{t}"`, `add_scalar(.., t)`.

    ## Why is this bad?

    It is `.item()` in disguise. Python cannot turn a tensor into a number, a truth value or text without waiting for
    everything that was queued on the device before it. `logging.debug(f"{loss}")` formats, and so waits, at every level.

    ## Example

    ```python
    for batch in loader:
        loss = step(batch)
        if torch.isnan(loss):
            raise ValueError("loss is nan")
        progress.set_postfix(loss=float(loss))
    ```

    ## Use instead

    ```python
    for i, batch in enumerate(loader):
        loss = step(batch)
        if i % 100 == 0:
            value = loss.item()
            if math.isnan(value):
                raise ValueError("loss is nan")
            progress.set_postfix(loss=value)
    ```

    ## When it is silent

    On anything not known to be a tensor on the device; `t is None`; `t.float()`; the builtin `sum` (it only adds); `len`
    and shapes; `logger.debug("%s", t)` where the program is not seen to turn that level on; under a condition that makes
    it rare.

    ## Fix safety

    No fix: where the value is needed decides what to write.

    ## Measured by `trainlint verify`

    Synchronisations per step at this line, and the step time without them.

    ## References

    - PyTorch, Performance Tuning Guide, "Avoid unnecessary CPU-GPU synchronization"
    """

    code = "TL103"
    name = "implicit-sync-in-hot-loop"
    level = Level.WARNING
    claim = Claim.SYNC
    message = "{what} waits for the device on every step of {loop}"
    why = "Python needs the value, so it waits for all queued work and the device runs dry"
    help = "do it every N steps, or keep the value on the device and read it once after the loop"
    triggers = ((b"torch",), (b"backward",))

    def check(self, script: Script) -> Iterator[Hit]:
        if not script.uses_accelerator():
            return
        heat = script.semantics.heat
        for expr, what in implicit_syncs.find(script, lambda context: isinstance(heat.of(context), Hot)):
            hot = script.hot(expr)
            if hot is None or hot.flagged or (what.startswith("`") and in_parameter_loop(script, expr)):
                continue  # a truth test per parameter is TL109's to say
            asked = what.startswith("`") or isinstance(expr, Call)
            yield Hit(
                expr,
                {"what": what, "loop": describe.loop_name(hot.loop, hot)},
                Level.ADVICE if asked and decodes(script, expr, hot) else None,
                describe.notes(hot),
            )

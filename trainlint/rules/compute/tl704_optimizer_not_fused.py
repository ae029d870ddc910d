from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.patterns_on_use import Pattern
from trainlint.rules import describe, rewrites
from trainlint.rules.rule import Hit, Rewrite, Rule
from trainlint.semantic import arguments
from trainlint.semantic.facts import Call
from trainlint.semantic.values import Const, each
from trainlint.torch_api import exists

if TYPE_CHECKING:
    from trainlint.rewriting import Change, Site
    from trainlint.semantic.script import Script

_FUSED = ("Adam", "AdamW", "SGD")
_ON_CPU_TOO = (2, 4)  # fused kernels for the CPU (release notes of torch 2.4)
_SPARSE = Pattern(rb"sparse\s*=\s*True")
# With float16, Lightning and Fabric refuse to clip for an optimizer that unscales by itself, as the fused ones do:
# "does not allow for gradient clipping because it performs unscaling of gradients internally"
_LIGHTNING = Pattern(rb"[Ll]ightning")
_CLIPS = Pattern(rb"gradient_clip|clip_gradients")


class OptimizerNotFused(Rule):
    """`Adam`, `AdamW` or `SGD` on CUDA without `fused=True`.

    ## Why is this bad?

    By default the update of all parameters is a few dozen kernels (`foreach`), and with `foreach=False` a few for every single
    parameter. `fused=True` does it in one kernel per group of tensors. For models of many small tensors the launches are a
    visible part of the step.

    ## Example

    ```python
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    ```

    ## Use instead

    ```python
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    ```

    ## When it is silent

    Programs that never use an accelerator; `fused=` given, or options that are not known; `differentiable=True`; optimizers
    without a fused form; versions in which there is none (`SGD` before torch 2.3); gradients clipped by Lightning or Fabric,
    which with float16 refuse to for a fused optimizer.

    ## Fix safety

    Unsafe: the order of the operations, and so the last digits, differ. `fused=True` takes the place of `foreach=`, with which
    it cannot go together. No fix where the target allows a torch before 2.4, whose fused kernels refuse what lies on the CPU; for
    `SGD` where something in the program has `sparse=True`, whose gradients they refuse; where options come from `**options`.

    ## Measured by `trainlint verify`

    Time of the optimizer step with and without.

    ## References

    - torch.optim.AdamW, "fused" and "foreach"
    """

    code = "TL704"
    name = "optimizer-not-fused"
    level = Level.ADVICE
    claim = Claim.TIME
    message = "{call}(...) {how}"
    why = "many small kernels per step where one would do"
    help = "pass fused=True"
    triggers = ((b"Adam",), (b"SGD",))

    def check(self, script: Script) -> Iterator[Hit]:
        assert script.settings is not None
        low = script.settings.torch_range.low
        if not script.uses_accelerator() or self._is_clipped_by_lightning(script):
            return
        for call, optimizer in script.objects("optimizer"):
            name = optimizer.name.rpartition(".")[2]
            if optimizer.cls is None and optimizer.name.startswith("torch.optim.") and name in _FUSED:
                if exists(f"torch.optim.{name}(fused=)", low) and not self._decided(script, call):
                    values = {"call": describe.text(call.callee), "how": self._how(script, call)}
                    yield Hit(call, values, rewrite=self._rewrite(script, call, name))

    def _rewrite(self, script: Script, call: Call, name: str) -> Rewrite | None:
        assert script.settings is not None
        if call.unpacks or script.settings.torch_range.low < _ON_CPU_TOO:
            return None
        if name == "SGD" and script.semantics.program.says(script.module, _SPARSE):
            return None
        if call.keyword("foreach") is None:
            return rewrites.pass_keyword("fused", "True", safe=False)
        return Rewrite(False, "Pass `fused=True`", _instead_of_foreach)

    def _is_clipped_by_lightning(self, script: Script) -> bool:
        program = script.semantics.program
        return program.says(script.module, _LIGHTNING) and program.says(script.module, _CLIPS)

    def _decided(self, script: Script, call: Call) -> bool:
        return any(
            arguments.given(script.inference, call, option) is not None for option in ("fused", "differentiable")
        )

    def _how(self, script: Script, call: Call) -> str:
        held = arguments.given(script.inference, call, "foreach")
        off = held is not None and all(isinstance(v, Const) and v.value is False for v in each(held))
        return (
            "updates one parameter at a time (foreach=False)"
            if off
            else "updates the parameters without a fused kernel"
        )


def _instead_of_foreach(site: Site) -> Iterable[Change]:
    from trainlint import rewriting

    at = rewriting.keyword(site.call, "foreach")
    name = site.call.args[at].keyword if at is not None else None
    if at is None or name is None:
        raise rewriting.NoFix
    return [site.replace(name, "fused"), site.replace(site.call.args[at].value, "True")]

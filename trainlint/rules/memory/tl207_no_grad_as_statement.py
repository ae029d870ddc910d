from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules import describe
from trainlint.rules.rule import Hit, Rewrite, Rule
from trainlint.semantic import known, walk
from trainlint.semantic.facts import Call, Define, Evaluate, Import, Statement

if TYPE_CHECKING:
    from trainlint.rewriting import Change, Site
    from trainlint.semantic.script import Script


class NoGradAsStatement(Rule):
    """`torch.no_grad()` on a line of its own: it does nothing.

    ## Why is this bad?

    `no_grad`, `inference_mode`, `enable_grad` and `autocast` make context managers. Called bare, the object is thrown
    away at once: autograd goes on recording (and keeps the activations), or the forward runs in full precision.

    ## Example

    ```python
    model.eval()
    torch.no_grad()
    output = model(images)
    ```

    ## Use instead

    ```python
    model.eval()
    with torch.no_grad():
        output = model(images)
    ```

    ## When it is silent

    `torch.set_grad_enabled(False)`, which does work as a statement; decorators, with or without parentheses; an
    object that is bound and entered later.

    ## Fix safety

    Unsafe: which statements were meant to stand in the block is a guess.

    ## Measured by `trainlint verify`

    Whether autograd is on in the lines that follow.

    ## References

    - PyTorch, `torch.no_grad`, `torch.autocast`
    """

    code = "TL207"
    name = "no-grad-as-statement"
    level = Level.ERROR
    claim = Claim.BEHAVIOUR
    message = "{call} on a line of its own does nothing"
    why = "it makes a context manager and drops it: {effect}"
    help = "write `with {call}:` around the code it is meant for, or decorate the function with it"
    triggers = ((b"no_grad",), (b"inference_mode",), (b"enable_grad",), (b"autocast",))

    def check(self, script: Script) -> Iterator[Hit]:
        names = known.NO_GRAD | known.ENABLE_GRAD | known.AUTOCASTS
        for call in script.calls(*sorted(names)):
            statement = call.statement
            if not isinstance(statement, Evaluate) or statement.value is not call:
                continue
            name = script.name_of(call.callee) or ""
            if name in known.AUTOCASTS:
                effect = "what follows runs in full precision"
            elif name in known.ENABLE_GRAD:
                effect = "autograd stays as it was"
            else:
                effect = "autograd goes on recording and keeps the activations"
            why = f"it makes a context manager and drops it: {effect}"
            yield Hit(call, {"call": describe.text(call)}, why=why, rewrite=self._rewrite(call))

    def _rewrite(self, call: Call) -> Rewrite | None:
        """The rest of the block goes under it, up to what must stay outside: a backward, an import, a definition."""
        block, index = call.statement.block, call.statement.index
        meant = []
        for statement in block[index + 1 :]:
            if isinstance(statement, (Define, Import)) or any(
                isinstance(e, Call) and e.attr in ("backward", "step") for e in walk.inside(statement)
            ):
                break
            meant.append(statement)
        if not meant:
            return None
        return Rewrite(False, "Put what follows under `with`", lambda site: _with(site, meant))


def _with(site: Site, meant: list[Statement]) -> Iterable[Change]:
    from trainlint import blocks

    return blocks.put_under_with(site, meant)

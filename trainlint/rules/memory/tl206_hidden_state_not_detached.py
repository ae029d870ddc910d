from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules import describe
from trainlint.rules.rule import Hit, Rewrite, Rule
from trainlint.semantic import recurrence, walk
from trainlint.semantic.recurrence import Carried
from trainlint.semantic.values import Const, Items, Tensor, each

if TYPE_CHECKING:
    from trainlint.rewriting import Change, Site
    from trainlint.semantic.script import Script


class HiddenStateNotDetached(Rule):
    """A hidden state is carried into the next step together with its graph, and each step runs backward.

    ## Why is this bad?

    The second backward reaches through the state into the graph of the step before, which is freed: "Trying to
    backward through the graph a second time". With `retain_graph=True` it gets slower and larger with every step
    instead, and fails on weights that the optimizer has changed meanwhile.

    ## Example

    ```python
    hidden = None
    for x, y in chunks:
        output, hidden = rnn(x, hidden)
        criterion(output, y).backward()
        optimizer.step()
    ```

    ## Use instead

    ```python
    for x, y in chunks:
        if hidden is not None:
            hidden = hidden.detach()
        output, hidden = rnn(x, hidden)
    ```

    ## When it is silent

    Where the state is reset or detached on the way, also by a helper (`repackage_hidden`), and under `no_grad`.

    ## Fix safety

    Unsafe: `.detach()` is written where the state enters the model; backpropagation then ends at the chunk.

    ## Measured by `trainlint verify`

    The exception of the second step, or the depth of the graph over steps.

    ## References

    - PyTorch example `word_language_model`: `repackage_hidden`
    """

    code = "TL206"
    name = "hidden-state-not-detached"
    level = Level.ERROR
    claim = Claim.BEHAVIOUR
    message = "{state} carries its graph from step to step, and every step runs backward"
    why = "the second backward reaches into the graph of the step before, which is freed, and raises"
    help = "detach it before the next step: `{state} = {state}.detach()` (each tensor of a tuple)"
    triggers = ((b"=",),)

    def check(self, script: Script) -> Iterator[Hit]:
        for carried in recurrence.undetached(script):
            state = describe.text(carried.state)
            rewrite = self._rewrite(script, carried, state)
            yield Hit(carried.call, {"state": state}, None, describe.notes(carried.hot), rewrite=rewrite)

    def _rewrite(self, script: Script, carried: Carried, state: str) -> Rewrite | None:
        """A statement before the call, as the state's kind asks for."""
        given = next((e for e in walk.inside(carried.call) if describe.text(e) == state), None)
        held = list(each(script.value(given))) if given is not None else []
        empty = [v for v in held if isinstance(v, Const) and v.value is None]
        known = [v for v in held if v not in empty]
        if known and all(isinstance(v, Items) and v.kind == "tuple" for v in known):
            line = f"{state} = tuple(part.detach() for part in {state})"
        elif known and all(isinstance(v, Tensor) for v in known):
            line = f"{state} = {state}.detach()"
        else:
            return None
        return Rewrite(False, f"Detach `{state}` before", lambda site: _before(site, state, line, bool(empty)))


def _before(site: Site, state: str, line: str, may_be_none: bool) -> Iterable[Change]:
    from trainlint import row_edits

    return row_edits.before(site, line, f"if {state} is not None:" if may_be_none else None)

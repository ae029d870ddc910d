from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Level
from trainlint.rules.rule import Hit, Rule

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class UnusedSuppression(Rule):
    """A suppression comment that silences nothing.

    ## Why is this bad?

    The line it stands on has no finding of that code (any more). Left behind, it hides the next mistake that somebody
    makes there, and tells readers of a problem that is not there.

    ## Example

    ```python
    loss_value = loss.detach()  # trainlint: ignore[TL101]
    ```

    ## Use instead

    ```python
    loss_value = loss.detach()
    ```

    ## What counts as a suppression

    On the first or the last line of the statement where the finding starts (for a loop or a function: of its header):

    ```python
    total += loss.item()  # trainlint: ignore[TL101]
    total += loss.item()  # trainlint: ignore[TL101, TL303] why this is fine here
    total += loss.item()  # trainlint: ignore
    total += loss.item()  # noqa: TL101
    ```

    and anywhere in a file, for all of it, `# trainlint: skip-file`. A bare `# noqa` belongs to other linters and is
    left alone, and so are text in strings and codes of rules that this run does not look for.

    ## Fix safety

    Safe: the codes that silence nothing go, and the comment where none is left.

    ## Measured by `trainlint verify`

    Nothing: there is no claim about a run.
    """

    code = "TL001"
    name = "unused-suppression"
    level = Level.WARNING
    message = "{suppression} silences nothing"
    why = "it would hide the next real finding on this line"
    help = "remove {what}"

    def check(self, script: Script) -> Iterator[Hit]:
        """Never yields: the engine makes these findings, once it knows what the others found."""
        yield from ()

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Level
from trainlint.rules.rule import Hit, Rule

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class NotChecked(Rule):
    """A file that could not be read, decoded or parsed.

    ## Why is this bad?

    Nothing in this file was checked: it may hold any of the mistakes that the other rules look for. Most files that end
    here could not be run by Python either: a syntax error, Python 2, a wrong encoding, a NUL byte, a notebook that is
    not valid JSON. The message gives the reason, and the place where there is one. Other files are checked anyway.

    ## Example

    ```python
    print "epoch", epoch
    ```

    ## Use instead

    ```python
    print("epoch", epoch)
    ```

    Files that are meant to be like this (templates, test data) can be kept out of the check with `exclude` in
    `[tool.trainlint]`, or with a comment of their own:

    ```python
    # trainlint: skip-file
    ```

    ## Measured by `trainlint verify`

    Nothing: there is no claim about a run.

    ## References

    - Python documentation: "Lexical analysis", encoding declarations
    """

    code = "TL000"
    name = "not-checked"
    level = Level.ERROR
    message = "{reason}"
    why = "nothing in this file was checked"
    help = "repair the file, or keep it out of the check with `exclude`"

    def check(self, script: Script) -> Iterator[Hit]:
        """Never yields: the engine makes these findings, of files that have no facts."""
        yield from ()

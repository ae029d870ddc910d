"""The beginnings of a rule: its file, a bad and a good fixture, and its row in the index.

    python -m trainlint.rules.new TL709 name-of-the-rule
    python -m trainlint.rules.new TL7xx name-of-the-rule    # the next free code of the group

What is written runs: it finds `torch.cuda.ipc_collect()` on every step of a batch loop. Make it your own from there.
"""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from string import Template

from trainlint.rules import registry

PACKAGE = Path(__file__).parent
FIXTURES = PACKAGE.parents[1] / "fixtures"

_RULE = Template('''\
from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules import describe
from trainlint.rules.rule import Hit, Rule

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class $class_name(Rule):
    """`torch.cuda.ipc_collect()` on every step of a batch loop.

    ## Why is this bad?

    What happens, to whom, and what it costs. One paragraph, with numbers where there are any.

    ## Example

    ```python
    for images, labels in loader:
        ...
        torch.cuda.ipc_collect()
    ```

    ## Use instead

    ```python
    for images, labels in loader:
        ...
    torch.cuda.ipc_collect()
    ```

    ## When it is silent

    The cases that look alike and are right, and those in which it cannot be known.

    ## Fix safety

    No fix: say why, or begin with Safe or Unsafe and say what changes.

    ## Measured by `trainlint verify`

    What a run of the script can show, or: Nothing, and why.

    ## References

    - The documentation or the issue that says so, and the torch version it was tried on
    """

    code = "$code"
    name = "$name"
    level = Level.WARNING
    claim = Claim.NONE
    message = "{call} runs on every step of {loop}"
    why = "what it costs, in one line"
    help = "what to write instead of `{call}`, in one line"
    triggers = ((b"ipc_collect",),)
    preview = True

    def check(self, script: Script) -> Iterator[Hit]:
        for call in script.calls("torch.cuda.ipc_collect"):
            hot = script.hot(call)
            if hot is None:
                continue
            values = {"call": describe.text(call), "loop": describe.loop_name(hot.loop, hot)}
            yield Hit(call, values, notes=describe.notes(hot))
''')

_FIXTURE = Template("""\
import torch
import torch.nn.functional as F


def train(model, loader, optimizer):
    model.cuda().train()
    for images, labels in loader:
        optimizer.zero_grad(set_to_none=True)
        logits = model(images.cuda(non_blocking=True))
        F.cross_entropy(logits, labels.cuda(non_blocking=True)).backward()
        optimizer.step()
$indent    torch.cuda.ipc_collect()$expect
""")


class Refused(Exception):
    """The rule cannot be made as asked; the message says why."""


def create(code: str, name: str) -> list[Path]:
    """Writes the files of a new rule and renews the index; returns what was written. Raises Refused."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)+", name):
        raise Refused(f"{name!r}: a name is lower-case words with hyphens between them, such as item-in-hot-loop")
    group, code = _group_and_code(code.upper())
    known = registry.index()
    if any(entry.name == name for entry in known.values()):
        raise Refused(f"there is a rule {name!r} already")
    words = {
        "code": code,
        "name": name,
        "class_name": "".join(part.capitalize() for part in name.split("-")),
    }
    files = {
        PACKAGE / group / f"{code.lower()}_{name.replace('-', '_')}.py": _RULE.substitute(words),
        FIXTURES / code / "bad_example.py": _FIXTURE.substitute(indent="    ", expect=f"  # expect: {code}"),
        FIXTURES / code / "good_example.py": _FIXTURE.substitute(indent="", expect=""),
    }
    for path in files:
        if path.exists():
            raise Refused(f"{path} is there already")
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "w", encoding="utf-8", newline="\n") as out:
            out.write(text)
    importlib.invalidate_caches()
    index = registry.render_index()
    with open(registry.INDEX, "w", encoding="utf-8", newline="\n") as out:
        out.write(index)
    return [*files, Path(registry.INDEX)]


def _group_and_code(code: str) -> tuple[str, str]:
    """The folder of the group, and the code, where `TL7xx` stands for the one after the group's last."""
    if not re.fullmatch(r"TL\d(\d\d|XX)", code):
        raise Refused(f"{code!r}: a code is TL with three digits, or TL7xx for the next free one of its group")
    known = registry.index()
    siblings = [entry for other, entry in known.items() if other[:3] == code[:3]]
    if not siblings:
        raise Refused(f"no group holds {code[:3]}xx yet: make its folder and its first rule by hand")
    if code in known:
        raise Refused(f"{code} is {known[code].name}; a code is never given twice")
    if code.endswith("XX"):
        number = max(int(entry.code[2:]) for entry in siblings) + 1
        if number % 100 == 0:
            raise Refused(f"no code is free after {siblings[-1].code}")
        code = f"TL{number:03}"
    return siblings[0].module.split(".")[-2], code


def main(arguments: list[str]) -> int:
    if len(arguments) != 2:
        print("usage: python -m trainlint.rules.new TL7xx name-of-the-rule", file=sys.stderr)
        return 2
    try:
        written = create(*arguments)
    except Refused as refused:
        print(refused, file=sys.stderr)
        return 2
    for path in written:
        print(path)
    print("next: CONTRIBUTING.md, from step 2 on")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

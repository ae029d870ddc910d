from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.patterns_on_use import Pattern
from trainlint.rules import describe
from trainlint.rules.rule import Hit, Rule
from trainlint.semantic import torch_names, version_guards
from trainlint.semantic.facts import Import, Name
from trainlint.semantic.torch_names import Reference
from trainlint.torch_api import changes_of, exists, inventions, is_known, lookup, offered
from trainlint.torch_api import versions as releases
from trainlint.torch_api.versions import Target, Version, shown

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

# put there by packages of device makers, or looked up when they are asked for
_PLUG_INS = frozenset("npu mlu musa hpu sdaa gcu ipu xla maia txda supa tpu dml privateuseone ops classes".split())


class UnknownTorchApi(Rule):
    """A name under `torch` that the version in use does not have.

    ## Why is this bad?

    The line raises AttributeError, ImportError or TypeError when it is reached, often hours into a run: names that went with
    an old version (`torch.rfft`, `torch._six`), names that a newer version brought, names that advice invents
    (`torch.fx.optimize`), and modules that are called as if they were the function in them (`torch.utils.checkpoint(f, x)`).

    ## Example

    ```python
    from torch._six import inf
    y = torch.utils.checkpoint(block, x)
    ```

    ## Use instead

    ```python
    from torch import inf
    y = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
    ```

    ## When it is silent

    Under `try/except ImportError`, `hasattr` or a test of the version; for plug-ins (`torch.npu`), `torch.ops` and
    `torch.classes`; for names that begin with an underscore and were never seen; for names the program itself puts there.
    Where the target is newer than every version that was looked at, a name that none of them has is a warning.

    ## Fix safety

    No fix.

    ## Measured by `trainlint verify`

    The line is run.

    ## References

    - The tables in `trainlint/torch_api`, made from the released wheels
    """

    code = "TL901"
    name = "unknown-torch-api"
    level = Level.ERROR
    claim = Claim.BEHAVIOUR
    message = "{what}"
    why = "the line raises as soon as it is reached"
    help = "{instead}"
    triggers = ()

    def check(self, script: Script) -> Iterator[Hit]:
        assert script.settings is not None
        target = script.settings.torch_range
        imported: list[str] = []
        for reference in [*torch_names.imports(script), *torch_names.references(script)]:
            if any(reference.name == name or reference.name.startswith(f"{name}.") for name in imported):
                continue  # the import of it is reported
            hit = self._judge(script, reference, target)
            if hit is None or version_guards.is_guarded(script.inference, hit.record.context):
                continue
            if isinstance(reference.record, Import):
                imported.append(reference.name)
            yield hit

    def _judge(self, script: Script, reference: Reference, target: Target) -> Hit | None:
        parts = reference.name.split(".")
        if len(parts) < 2 or parts[1] in _PLUG_INS:
            return None
        if any(
            row.code not in ("TL901", "TL902") and row.form in ("use", "module") for row in changes_of(reference.name)
        ):
            return None  # another rule's
        if reference.call is not None and isinstance(reference.call.callee, Name):
            return self._module_called(reference, target)  # a missing name is reported where it is imported
        for length in range(2, len(parts) + 1):
            hit = self._missing(reference, ".".join(parts[:length]), target)
            if hit is not None:
                return None if _is_patched(script, parts[:length]) else hit
        return self._module_called(reference, target)

    def _missing(self, reference: Reference, name: str, target: Target) -> Hit | None:
        high = target.high
        found = lookup(name)
        rows = [row for row in changes_of(name) if row.code == "TL901" and row.level_at(high) is Level.ERROR]
        if not rows and found.at(high) is not False:
            return None
        if found.open and found.at(high) is None and not rows:
            return None
        row, invented = rows[0] if rows else None, inventions().get(name)
        where = f"torch {shown(high)}"
        level = Level.ERROR
        if found.first is not None and found.first > high:
            what = f"{name} came with torch {shown(found.first)}: {where} does not have it"
        elif row is not None and row.removed is not None:
            what = f"{name} is gone since torch {shown(row.removed)}"
        elif found.last is not None:
            what = f"{name} does not exist in {where} (torch {shown(found.last)} was the last that was seen with it)"
        elif is_known(high) or invented is not None or row is not None:
            what = f"{name} does not exist in {where}, nor in any other version"
        else:
            oldest, newest = releases()[0], releases()[-1]
            what, level = f"no version from torch {shown(oldest)} to {shown(newest)} has {name}", Level.WARNING
        instead = "look the name up in the documentation of the version in use"
        if row is not None and offered(row, target):
            instead = f"write {row.help}"
        elif invented is not None:
            usable = [i for i in invented.instead if exists(i, target.low)]
            if usable or invented.note:
                instead = " ".join([*(["write " + " or ".join(usable) + ";"] if usable else []), invented.note]).rstrip(
                    "; "
                )
        return Hit(reference.record, {"what": what, "instead": instead}, level)

    def _module_called(self, reference: Reference, target: Target) -> Hit | None:
        call = reference.call
        if call is None or not _is_module(reference.name, target.high):
            return None
        leaf = reference.name.rpartition(".")[2]
        inner = f"{reference.name}.{leaf}"
        instead = f"write {inner}(...)" if lookup(inner).at(target.low) else "call the function in it that is meant"
        what = f"{describe.text(call.callee)} is the module {reference.name}: calling it raises TypeError"
        return Hit(call, {"what": what, "instead": instead}, Level.ERROR)


def _is_patched(script: Script, parts: list[str]) -> bool:
    """Whether the program stores something of its own under a name of torch, or under what that name is part of."""
    names = {".".join(parts[:length]) for length in range(2, len(parts) + 1)}
    stored = Pattern(rb"\." + re.escape(parts[-1].encode()) + rb"\b")
    modules = [script.module, *script.semantics.program.modules(script.module, stored)]
    return any(name in module.stores for module in modules for name in names)


def _is_module(name: str, high: Version) -> bool:
    found = lookup(name)
    return found.kind == "module" and not found.open and found.at(high) is True

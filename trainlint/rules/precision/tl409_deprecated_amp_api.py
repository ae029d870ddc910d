from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Level
from trainlint.rules.replacements import rewrite_of
from trainlint.rules.rule import Hit, Rule
from trainlint.semantic.bindings import lookup
from trainlint.semantic.facts import Call, Expr, Name, Record
from trainlint.semantic.fallbacks import depends_on_version, is_second_choice
from trainlint.semantic.values import External, each
from trainlint.torch_api.changes import Change, changes_of, offered, verdict

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class DeprecatedAmpApi(Rule):
    """`autocast`, `GradScaler`, `custom_fwd` or `custom_bwd` of `torch.cuda.amp` and `torch.cpu.amp`.

    Points at the use; where the import gives the name another one (`autocast as amp_ctx`), once at the import.

    ## Why is this bad?

    They were deprecated in torch 2.4 and warn at every use. `torch.amp` has the same things for all devices; its
    autocast and scaler take the device first.

    ## Example

    ```python
    scaler = torch.cuda.amp.GradScaler()
    with torch.cuda.amp.autocast():
        loss = criterion(model(images), target)
    ```

    ## Use instead

    ```python
    scaler = torch.amp.GradScaler("cuda")
    with torch.amp.autocast("cuda"):
        loss = criterion(model(images), target)
    ```

    Write a positional `enabled` as a keyword: the second position of `torch.amp.autocast` is the dtype.

    ## When it is silent

    A target below 2.4; an import fallback in an except branch, a branch for older versions; where `torch.amp` does not
    have the name yet in the oldest version of the target (`GradScaler` before 2.3), the finding names no replacement.

    ## Fix safety

    Safe: the same class with the device as its first argument.

    ## Measured by `trainlint verify`

    Nothing; it is a warning.

    ## References

    - torch.amp, "Automatic Mixed Precision package", the deprecation notes of torch.cuda.amp
    """

    code = "TL409"
    name = "deprecated-amp-api"
    level = Level.WARNING
    message = "{name} is deprecated since torch {since}"
    why = "it warns at every use and will go"
    help = "use {remedy}; write a positional `enabled` as a keyword"
    triggers = ((b"amp",),)

    def check(self, script: Script) -> Iterator[Hit]:
        for expr in self._uses(script):
            change = self._change(script, expr)
            if change is None or self._has_way_out(expr):
                continue
            level = verdict(change, script.settings.torch_range) if script.settings is not None else change.level
            if level is None:
                continue
            since = ".".join(map(str, change.since))
            values = {"name": change.names[0], "since": since, "remedy": change.help}
            known = script.settings is None or offered(change, script.settings.torch_range)
            rewrite = rewrite_of(script, expr, change)
            yield Hit(
                self._written_at(expr, change) or expr,
                values,
                None if level is Level.WARNING else level,
                help=None if known else _NOT_YET,
                rewrite=rewrite._replace(at=expr) if rewrite is not None else None,
            )

    def _written_at(self, expr: Expr, change: Change) -> Record | None:
        """The import that gives the name another one: only there it can be read, and the uses are one finding."""
        callee = expr.callee if isinstance(expr, Call) else expr
        if not isinstance(callee, Name) or callee.id == change.names[0].rpartition(".")[2]:
            return None
        bindings = lookup(callee, callee.id)[0]
        if len(bindings) != 1 or bindings[0].how != "import" or bindings[0].source.startswith("."):
            return None
        full = bindings[0].source
        known = any(c.code == self.code for c in changes_of(full))
        return bindings[0].statement if known else None

    def _uses(self, script: Script) -> Iterator[Expr]:
        """Calls of the names, and decorators without parentheses."""
        module = script.module
        names = ("autocast", "GradScaler", "custom_fwd", "custom_bwd")
        full = tuple(f"torch.{device}.amp.{name}" for device in ("cuda", "cpu") for name in names)
        inner = tuple(f"torch.cuda.amp.{file}.{name}" for file, name in _FILES)
        yield from script.calls(*full, *inner)
        for function in module.functions:
            yield from (d for d in function.decorators if not isinstance(d, Call))

    def _change(self, script: Script, expr: Expr) -> Change | None:
        found: Change | None = None
        for value in each(script.value(expr.callee if isinstance(expr, Call) else expr)):
            if not isinstance(value, External):
                return None
            rows = [c for c in changes_of(value.name) if c.code == self.code]
            if not rows:
                return None  # the new name on another path
            found = rows[0]
        return found

    def _has_way_out(self, expr: Expr) -> bool:
        """The name was imported, or is used, where a newer one is missing."""
        if is_second_choice(expr.context):
            return True
        callee = expr.callee if isinstance(expr, Call) else expr
        if isinstance(callee, Name):
            return any(is_second_choice(b.context) for b in lookup(callee, callee.id)[0])
        return depends_on_version(expr.context)


_FILES = (
    ("autocast_mode", "autocast"),
    ("grad_scaler", "GradScaler"),
    ("autocast_mode", "custom_fwd"),
    ("autocast_mode", "custom_bwd"),
)
_NOT_YET = "torch.amp does not have it in the oldest version that this project is for: keep it, or ask for torch 2.4"

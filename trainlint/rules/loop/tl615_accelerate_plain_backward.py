from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Level
from trainlint.patterns_on_use import Pattern
from trainlint.rules import describe
from trainlint.rules.rule import Hit, Note, Rewrite, Rule
from trainlint.semantic import frameworks, walk
from trainlint.semantic.contexts import dotted_name
from trainlint.semantic.facts import Attribute, Call, Context, Name
from trainlint.semantic.values import Object, each
from trainlint.semantic.work import BACKWARD

if TYPE_CHECKING:
    from trainlint.rewriting import Change, Site
    from trainlint.semantic.script import Script

_NAMES = Pattern(r"accelerat|fabric|distributed|hub", re.I)


class AcceleratePlainBackward(Rule):
    """`loss.backward()` on the output of a model that Accelerate or Fabric has prepared.

    ## Why is this bad?

    `accelerator.backward(loss)` scales the loss under float16, divides it by the number of accumulation steps, and hands
    it to DeepSpeed where that runs. A plain `loss.backward()` skips all three: under fp16 the step then divides gradients
    that were never scaled, under DeepSpeed nothing is synchronised.

    ## Example

    ```python
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        loss = model(**batch).loss
        loss.backward()
    ```

    ## Use instead

    ```python
        accelerator.backward(loss)
    ```

    ## When it is silent

    Models that were not prepared; a branch that asks whether there is an accelerator.

    ## Fix safety

    Unsafe (`accelerator.backward(loss)`): the size of the gradients changes under accumulation.

    ## Measured by `trainlint verify`

    Not measured.

    ## References

    - Accelerate, "Quicktour": "replace loss.backward() with accelerator.backward(loss)"; Lightning Fabric, "Convert PyTorch code to Fabric"
    """

    code = "TL615"
    name = "accelerate-plain-backward"
    level = Level.ERROR
    message = "{call} goes past {framework}, which prepared the model"
    why = "the loss is neither scaled for fp16 nor divided for accumulation, and DeepSpeed is left out"
    help = "call {framework_object}.backward(loss)"
    triggers = ((b"backward(",),)

    def check(self, script: Script) -> Iterator[Hit]:
        for call in script.methods("backward"):
            receiver = call.receiver
            if receiver is None or script.semantics.work.kind(call) != BACKWARD or self._asks(call.context):
                continue
            if any(isinstance(v, Object) for v in each(script.value(receiver))):
                continue  # accelerator.backward(loss) itself
            for part in script.semantics.lineage.forwards(receiver, ()):
                assert isinstance(part.expr, Call)
                held = [v for v in each(script.value(part.expr.callee)) if isinstance(v, Object)]
                if held and all(frameworks.is_prepared(v) for v in held):
                    which = "Fabric" if held[0].name.startswith("fabric:") else "Accelerate"
                    values = {
                        "call": describe.text(call),
                        "framework": which,
                        "framework_object": "fabric" if which == "Fabric" else "accelerator",
                    }
                    notes = (Note(part.expr, "the prepared model runs here"),)
                    yield Hit(call, values, None, notes, rewrite=self._rewrite(script, call))
                    break

    def _rewrite(self, script: Script, call: Call) -> Rewrite | None:
        """Where the object that prepared the model can be named."""
        name = None if call.args or call.keywords else self._preparer(script, call)
        return Rewrite(False, f"Call `{name}.backward`", lambda site: _through(site, name)) if name else None

    def _preparer(self, script: Script, call: Call) -> str | None:
        for other in script.methods("prepare", "setup"):
            receiver = other.receiver
            name = dotted_name(receiver) if isinstance(receiver, (Name, Attribute)) else None
            if name is None or not (script.is_method_of(other, "accelerator") or script.is_method_of(other, "fabric")):
                continue
            same = other.context.function is call.context.function
            own = name.startswith("self.") and other.context.cls is call.context.cls
            everywhere = name in script.module.names and not name.startswith("self.")
            if same or own or everywhere:
                return name
        return None

    def _asks(self, context: Context) -> bool:
        """`if self.accelerator is None: loss.backward()`"""
        for frame in context.local_frames():
            if frame.kind == "branch" and frame.test is not None:
                for expr in walk.inside(frame.test):
                    named = expr.attr if isinstance(expr, Attribute) else expr.id if isinstance(expr, Name) else ""
                    if _NAMES.search(named):
                        return True
        return False


def _through(site: Site, name: str) -> Iterable[Change]:
    """`loss.backward()` -> `accelerator.backward(loss)`"""
    from trainlint import rewriting

    receiver = rewriting.attribute(site.call.func).value
    start, end = site.span(site.node)
    if "#" in site.text[start:end]:
        raise rewriting.NoFix
    return [rewriting.Change(start, end, f"{name}.backward({site.written(receiver)})")]

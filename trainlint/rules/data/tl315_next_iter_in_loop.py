from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules import describe
from trainlint.rules.rule import Hit, Note, Rule
from trainlint.semantic.facts import Call, Expr, For, Name, While
from trainlint.semantic.values import Object, each

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class NextIterInLoop(Rule):
    """`next(iter(loader))` on every step, or `len(list(loader))` to count batches.

    ## Why is this bad?

    `iter(loader)` starts a new pass: it shuffles again, starts all workers, lets them prefetch, and takes one batch.
    The rest is thrown away, and the next step does it all again. `len(list(loader))` reads, decodes and collates the
    whole dataset to learn a number that `len(loader)` knows.

    ## Example

    ```python
    for step in range(steps):
        batch = next(iter(loader))
    ```

    ## Use instead

    ```python
    def forever(loader):
        while True:
            yield from loader


    batches = forever(loader)
    for step in range(steps):
        batch = next(batches)
    ```

    ## When it is silent

    Once, before training or in each epoch; on steps that a condition makes rare; on anything that is no loader. For
    `len(list(loader))`: outside of any loop.

    ## Fix safety

    No fix: the iterator must outlive the loop.

    ## Measured by `trainlint verify`

    The time a step waits for data.

    ## References

    - torch.utils.data, "Multi-process data loading": workers are created each time an iterator is
    """

    code = "TL315"
    name = "next-iter-in-loop"
    level = Level.WARNING
    claim = Claim.LOADER
    message = "{what}"
    why = "a pass over the loader is started for one batch or one number"
    help = "keep one iterator and draw from it: batches = iter(loader) before the loop, next(batches) in it"
    triggers = ((b"next", b"iter"), (b"len", b"list"))

    def check(self, script: Script) -> Iterator[Hit]:
        yield from self._restarted(script)
        yield from self._counted(script)

    def _restarted(self, script: Script) -> Iterator[Hit]:
        for call in script.module.calls_by_attr.get("next", ()):
            inner = _only_argument(call, "iter")
            if inner is None or not _is_loader(script, inner):
                continue
            hot = script.hot(call)
            if hot is not None:
                loop = describe.loop_name(hot.loop, hot)
                what = f"{describe.text(call)} starts a new pass over the loader on every step of {loop}"
                level = Level.ADVICE if hot.flagged else None
                why = "workers start, prefetch and stop again for one batch, on every step"
                yield Hit(call, {"what": what}, level, describe.notes(hot), why=why)

    def _counted(self, script: Script) -> Iterator[Hit]:
        for call in script.module.calls_by_attr.get("len", ()):
            inner = _only_argument(call, "list")
            if inner is None or not _is_loader(script, inner):
                continue
            around = script.feeding.around(call.context)
            if around:
                frame, _ = around[0]
                record = frame.record
                notes = (Note(record, "on every turn of this loop"),) if isinstance(record, (For, While)) else ()
                what = f"{describe.text(call)} reads the whole dataset to count its batches"
                why = "every item is read, decoded and collated, and all batches are in memory at once"
                yield Hit(call, {"what": what}, None, notes, why=why, help="len(loader) knows the number of batches")


def _only_argument(call: Call, wrapper: str) -> Expr | None:
    """`x` of `call(wrapper(x))`, for plain builtins."""
    if not isinstance(call.callee, Name) or len(call.args) != 1:
        return None
    inner = call.args[0]
    if (
        isinstance(inner, Call)
        and isinstance(inner.callee, Name)
        and inner.callee.id == wrapper
        and len(inner.args) == 1
    ):
        return inner.args[0]
    return None


def _is_loader(script: Script, expr: Expr) -> bool:
    found = list(each(script.value(expr)))
    return bool(found) and all(isinstance(v, Object) and v.role == "loader" for v in found)

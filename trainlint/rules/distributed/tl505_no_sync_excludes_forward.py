from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules import describe
from trainlint.rules.rule import Hit, Note, Rule
from trainlint.semantic import known
from trainlint.semantic.contexts import dotted_name
from trainlint.semantic.facts import Call, Context, Expr, With
from trainlint.semantic.values import Method, Unknown, each
from trainlint.semantic.walk import expressions
from trainlint.semantic.work import BACKWARD, FORWARD

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class NoSyncExcludesForward(Rule):
    """`no_sync()` around the backward only.

    ## Why is this bad?

    Whether a backward reduces gradients is decided in the forward, which prepares for it. With the forward outside of
    the block every micro-batch is reduced all the same: the block does nothing, without a warning.

    ## Example

    ```python
    loss = criterion(model(x), y)
    with model.no_sync():
        loss.backward()
    ```

    ## Use instead

    ```python
    with model.no_sync():
        loss = criterion(model(x), y)
        loss.backward()
    ```

    ## When it is silent

    A forward inside of the block, also in something that it calls; calls in it that cannot be followed; Accelerate's
    `no_sync`; models that are not known to be wrapped.

    ## Fix safety

    No fix: what stands between forward and backward is not known to be movable.

    ## Measured by `trainlint verify`

    Time of a micro-batch inside and outside of the block, under `torchrun`.

    ## References

    - torch.nn.parallel.DistributedDataParallel.no_sync: "the forward pass should be included inside the context
    manager"
    """

    code = "TL505"
    name = "no-sync-excludes-forward"
    level = Level.WARNING
    claim = Claim.TIME
    message = "{call} holds the backward but not the forward"
    why = (
        "the forward decides whether gradients are reduced: outside of the block every micro-batch reduces all the same"
    )
    help = "move the forward into the no_sync() block"
    triggers = ((b"no_sync",),)

    def check(self, script: Script) -> Iterator[Hit]:
        for call, frame, after in self._blocks(script):
            calls = [c for c in script.semantics.loops.calls_of(frame) if c.context.within(frame) and c.order > after]
            done = script.semantics.work.within(calls, frame)
            everything = done.once | done.looped
            if BACKWARD not in everything or FORWARD in everything:
                continue
            if any(self._may_run_model(script, c) for c in calls if c is not call):
                continue
            backward = next(
                c
                for c in calls
                if BACKWARD in script.semantics.work.of_call(c).once | script.semantics.work.of_call(c).looped
            )
            yield Hit(
                call,
                {"call": describe.text(call)},
                None,
                (Note(backward, "the backward is here, the forward is outside"),),
            )

    def _blocks(self, script: Script) -> Iterator[tuple[Call, Context, int]]:
        """Each no_sync(), the block that runs under it, and from where on."""
        for statement in script.module.withs:
            for item in statement.items:
                call = self._no_sync(script, item.value)
                if call is not None and statement.body:
                    yield call, statement.body[0].context, item.order
        for entered in script.module.calls_by_attr.get("enter_context", ()):
            call = self._no_sync(script, entered.args[0]) if entered.args else None
            stack = dotted_name(entered.receiver) if entered.receiver is not None else None
            if call is None or stack is None:
                continue
            for frame in entered.context.local_frames():
                if isinstance(frame.record, With) and any(
                    i.target is not None and dotted_name(i.target) == stack for i in frame.record.items
                ):
                    yield call, frame, entered.order

    def _no_sync(self, script: Script, expr: Expr) -> Call | None:
        """The call of a wrapped model's no_sync that a context manager is, or may be."""
        for one in expressions(expr):
            if not isinstance(one, Call):
                continue
            for value in each(script.value(one.callee)):
                if (
                    isinstance(value, Method)
                    and value.name == "no_sync"
                    and script.semantics.communication.wraps(value.owner, known.DDP)
                ):
                    return one
            if one.attr == "no_sync" and one.receiver is not None:
                held = script.value(one.receiver)
                if any(script.semantics.communication.wraps(v, known.DDP) for v in each(held)):
                    return one
        return None

    def _may_run_model(self, script: Script, call: Call) -> bool:
        """A call that cannot be followed: the model may run in it."""
        if BACKWARD in script.semantics.work.of_call(call).once or call.attr in ("print", "len", "range", "enumerate"):
            return False
        return isinstance(script.value(call.callee), Unknown) and not script.callees(call)

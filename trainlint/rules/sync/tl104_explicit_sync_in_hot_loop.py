from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.patterns_on_use import Pattern
from trainlint.rules import describe
from trainlint.rules.rule import Hit, Rule
from trainlint.semantic import walk
from trainlint.semantic.facts import Assign, Call, Evaluate, Name
from trainlint.semantic.heat import Hot
from trainlint.semantic.work import FORWARD

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_BENCHMARK = Pattern(r"bench|profil|latency|throughput|timeit|speed|time_sync|measure|timing", re.I)


class ExplicitSyncInHotLoop(Rule):
    """`torch.cuda.synchronize()` on every step of a batch loop.

    ## Why is this bad?

    It blocks Python until the device has finished all that was queued, and then the device waits for Python. Nothing in
    training needs it: results are ordered by their stream already, and reading a value waits for it by itself.

    ## Example

    ```python
    for batch in loader:
        train_step(batch)
        torch.cuda.synchronize()
    ```

    ## Use instead

    Drop the call. To time steps, average over many of them, or record `torch.cuda.Event(enable_timing=True)` pairs and read
    them every N steps.

    ## When it is silent

    Where a condition makes it rare, and behind a flag that is off by default. In the timing section of a benchmark it is
    advice.

    ## Fix safety

    No fix.

    ## Measured by `trainlint verify`

    The step time without the call.

    ## References

    - PyTorch, CUDA semantics, "Asynchronous execution"
    """

    code = "TL104"
    name = "explicit-sync-in-hot-loop"
    level = Level.WARNING
    claim = Claim.SYNC
    message = "{call} makes Python wait for the device on every step of {loop}"
    why = "no work is queued while it waits, so the device idles at the start of each step"
    help = "drop it; to time steps, average over many, or read torch.cuda.Event pairs every N steps"
    triggers = ((b"synchronize",),)

    def check(self, script: Script) -> Iterator[Hit]:
        names = (
            "torch.cuda.synchronize",
            "torch.mps.synchronize",
            "torch.xpu.synchronize",
            "torch.accelerator.synchronize",
        )
        for call in script.calls(*names):
            hot = script.hot(call)
            if hot is None:
                if self._times_a_model(script, call):
                    yield Hit(call, {"call": describe.text(call), "loop": "the timing loop"}, Level.ADVICE)
                continue
            if hot.flagged:
                continue
            benchmark = self._is_benchmark(call, hot) or self._only_times(script, call, hot)
            level = Level.ADVICE if benchmark else None
            yield Hit(
                call,
                {"call": describe.text(call), "loop": describe.loop_name(hot.loop, hot)},
                level,
                describe.notes(hot),
            )

    def _times_a_model(self, script: Script, call: Call) -> bool:
        """A loop that runs a model on the same input again and again, to time it."""
        for frame in call.context.local_frames():
            if script.semantics.guards.guard(frame) is not None:
                return False
            if frame.kind == "loop":
                inside = [c for c in script.semantics.loops.calls_of(frame) if c.context.within(frame)]
                return FORWARD in script.semantics.work.within(inside, frame).once
        return False

    def _only_times(self, script: Script, call: Call, hot: Hot) -> bool:
        """The loop runs a model for nothing but the time that it takes: nobody looks at the results."""
        if hot.loop is None or hot.calls or hot.phase != "eval":
            return False
        work, frame = script.semantics.work, hot.loop.frame
        forwards = [
            c for c in script.semantics.loops.calls_of(frame) if c.context.within(frame) and work.kind(c) == FORWARD
        ]
        return bool(forwards) and all(self._is_dropped(c) for c in forwards)

    def _is_dropped(self, call: Call) -> bool:
        statement = call.statement
        if isinstance(statement, Assign) and statement.value is call:
            targets = [t for t in statement.targets if isinstance(t, Name)]
            return len(targets) == len(statement.targets) and not any(
                e.id == t.id and e.context.function is call.context.function
                for t in targets
                for e in walk.names_read(call.context.module)
            )
        return isinstance(statement, Evaluate) and statement.value is call

    def _is_benchmark(self, call: Call, hot: Hot) -> bool:
        function = call.context.function
        names = [function.qualname] if function is not None else []
        names.append(call.context.module.name)
        names.extend(site.context.function.qualname for site in hot.calls if site.context.function is not None)
        return any(_BENCHMARK.search(name) for name in names)

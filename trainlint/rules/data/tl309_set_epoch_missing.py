from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules.rule import Hit, Note, Rewrite, Rule
from trainlint.semantic import epochs, frameworks, loading, sharding
from trainlint.semantic.facts import Call, Context, Expr, For, Name, While
from trainlint.semantic.feeding import Feed

if TYPE_CHECKING:
    from trainlint.rewriting import Change, Site
    from trainlint.semantic.script import Script


class SetEpochMissing(Rule):
    """An epoch loop over a loader with a DistributedSampler that shuffles, and `set_epoch` is never called.

    ## Why is this bad?

    DistributedSampler seeds its shuffle with `seed + epoch`, so that all ranks agree on the order. Without
    `set_epoch(epoch)` the epoch stays 0: every epoch visits the data in the same order, and every rank sees the same
    part of it again and again.

    ## Example

    ```python
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=64, sampler=sampler)
    for epoch in range(epochs):
        for batch in loader:
            train_step(batch)
    ```

    ## Use instead

    ```python
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for batch in loader:
            train_step(batch)
    ```

    ## When it is silent

    `shuffle=False`, or a value that is not known; one pass; evaluation; `set_epoch` called anywhere in the program,
    also in another file or under a condition; loaders that Lightning, Accelerate or Fabric drive, which call it.

    ## Fix safety

    Unsafe: it changes the order of the data, though that is what is meant. The call is written at the head of the epoch
    loop, for `for epoch in range(...)` and where a name there surely holds the sampler, or the loader that has it.

    ## Measured by `trainlint verify`

    The order of the first batches of two epochs.

    ## References

    - torch.utils.data.distributed.DistributedSampler, the warning on `set_epoch`
    """

    code = "TL309"
    name = "set-epoch-missing"
    level = Level.ERROR
    claim = Claim.BEHAVIOUR
    message = "set_epoch() is never called for the DistributedSampler that this epoch loop draws from"
    why = "every epoch repeats the order of the first, and every rank sees only its own part of the data"
    help = "call sampler.set_epoch(epoch) at the start of each epoch"
    triggers = ((b"for",), (b"while",))
    near = (b"DistributedSampler",)

    def check(self, script: Script) -> Iterator[Hit]:
        seen: set[int] = set()
        modules = script.feeding.modules(script.module)
        for feed in (f for m in modules for f in script.feeding.of_module(m)):
            if feed.phase != "train" or self._prepared(script, feed):
                continue
            for loader in feed.loaders:
                found = self._epoch_loop(script, feed, loader)
                if found is None or found.module is not script.module or id(found) in seen:
                    continue
                program = [*modules, *script.feeding.modules(loader.context.module)]
                if sharding.may_call_set_epoch(script, program, sharding.distributed_samplers(script, loader)):
                    continue
                seen.add(id(found))
                rewrite = self._rewrite(script, feed, loader, found)
                yield Hit(found.record, {}, None, self._notes(script, loader), rewrite=rewrite)

    def _rewrite(self, script: Script, feed: Feed, loader: Call, loop: Context) -> Rewrite | None:
        """None where the loop does not count its turns, or where no name at its head surely holds the sampler."""
        record = loop.record
        if not isinstance(record, For) or not isinstance(record.target, Name) or not _counts(script, record.iter):
            return None
        found = epochs.sampler_at(script, feed, loader, loop)
        if found is None:
            return None
        sampler, may_be_none = found
        epoch = record.target.id
        renamed = epoch == "_"
        if renamed:
            epoch = "epoch"
            if epochs.is_read("_", loop) or not epochs.is_unused(epoch, loop):
                return None
        condition = f"if {sampler} is not None:" if may_be_none else None
        line = f"{sampler}.set_epoch({epoch})"

        def edit(site: Site) -> Iterable[Change]:
            from trainlint import rewriting, row_edits

            yield from row_edits.first_in(site, line, condition)
            if renamed:
                yield site.replace(rewriting.loop(site.node).target, epoch)

        return Rewrite(False, f"Call `{line}`", edit)

    def _epoch_loop(self, script: Script, feed: Feed, loader: Call) -> Context | None:
        samplers = sharding.distributed_samplers(script, loader)
        if not samplers or not all(sharding.shuffles(script, s) for s in samplers):
            return None
        frame = script.feeding.epoch_loop(feed, loader)
        return frame if frame is not None and isinstance(frame.record, (For, While)) else None

    def _prepared(self, script: Script, feed: Feed) -> bool:
        return any(frameworks.is_prepared(loader) for loader in loading.loaders_behind(script, feed.expr))

    def _notes(self, script: Script, loader: Call) -> tuple[Note, ...]:
        calls = [s.call for s in sharding.distributed_samplers(script, loader) if s.call is not None]
        return tuple(Note(call, "the sampler is built here") for call in calls[:1])


def _counts(script: Script, iterated: Expr) -> bool:
    """`range(...)`, also in a progress bar: the turns have numbers."""
    if not isinstance(iterated, Call):
        return False
    if iterated.attr in ("range", "trange") and iterated.args:
        return True
    return iterated.attr == "tqdm" and bool(iterated.args) and _counts(script, iterated.args[0])

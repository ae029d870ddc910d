from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules.rule import Hit, Note, Rule
from trainlint.semantic import frameworks, loading, reading, sharding
from trainlint.semantic.feeding import Feed

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class DistributedWithoutSampler(Rule):
    """The model is wrapped in DDP or FSDP, and its training loader has no distributed sampler.

    ## Why is this bad?

    Every rank reads the whole dataset. An epoch then costs as much as on one device, and where all ranks are seeded
    alike they even compute the same gradients: the run scales in cost only.

    ## Example

    ```python
    loader = DataLoader(dataset, batch_size=64, shuffle=True)
    model = DistributedDataParallel(model)
    ```

    ## Use instead

    ```python
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=64, sampler=sampler)
    model = DistributedDataParallel(model)
    ```

    and `sampler.set_epoch(epoch)` at the start of each epoch.

    ## When it is silent

    An IterableDataset; a dataset made with a look at the rank; a sampler of unknown kind, any batch sampler; evaluation
    loaders; loaders that Accelerate, Fabric or Lightning prepare.

    ## Fix safety

    No fix: the sampler, the epoch loop and the learning rate belong together.

    ## Measured by `trainlint verify`

    The items that two ranks draw.

    ## References

    - torch.utils.data.distributed.DistributedSampler
    - PyTorch tutorial, "Multi GPU training with DDP"
    """

    code = "TL310"
    name = "distributed-without-sampler"
    level = Level.ERROR
    claim = Claim.BEHAVIOUR
    message = "every rank reads all of this training data: the model is distributed, its loader is not"
    why = "an epoch costs as much as on one device, and ranks with the same seed compute the same gradients"
    help = "pass sampler=DistributedSampler(dataset) instead of shuffle, and call set_epoch in each epoch"
    near = (b"Loader",)

    def check(self, script: Script) -> Iterator[Hit]:
        for call, _ in loading.loaders(script):
            if not sharding.reads_everything(script, call) or reading.in_hf_trainer(script, call):
                continue
            if sharding.is_for_one_process(call):
                continue
            for feed in script.feeding.training(call):
                if any(other is not call and not sharding.reads_everything(script, other) for other in feed.loaders):
                    continue  # built another way where the run is distributed
                wrap = sharding.wraps_model(script, feed)
                if wrap is not None and not self._prepared(script, feed):
                    yield Hit(call, {}, None, (Note(wrap, "the model is wrapped here"),))
                    break

    def _prepared(self, script: Script, feed: Feed) -> bool:
        return any(frameworks.is_prepared(loader) for loader in loading.loaders_behind(script, feed.expr))

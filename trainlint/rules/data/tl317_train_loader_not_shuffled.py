from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.patterns_on_use import Pattern
from trainlint.rules import rewrites
from trainlint.rules.data.supposing import new_codes
from trainlint.rules.rule import Hit, Note, Rewrite, Rule
from trainlint.semantic import loading, reading
from trainlint.semantic.facts import Call, Constant, For
from trainlint.semantic.feeding import Feed, is_alternative
from trainlint.semantic.values import Const, Object

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_SORTED = ("ImageFolder", "DatasetFolder")
_ORDERED = Pattern(
    r"series|window|sequen|forecast|temporal|stream|stateful|bptt|video|frames?(?:set|data)|stock|weather|replay", re.I
)
_STATE = Pattern(r"hidden|hid\b|memory|memories|states?$|carry|mems?$|^h$|^h0$|^hc$|_state$", re.I)


class TrainLoaderNotShuffled(Rule):
    """A training loader over a map-style dataset that is not shuffled and has no sampler.

    ## Why is this bad?

    Every epoch sees the same batches in the same order. Where the dataset is sorted by class, as `ImageFolder` is, each
    batch holds one class: gradients swing from class to class, and BatchNorm learns statistics of single classes.

    ## Example

    ```python
    loader = DataLoader(ImageFolder("train", transform), batch_size=64)
    ```

    ## Use instead

    ```python
    loader = DataLoader(ImageFolder("train", transform), batch_size=64, shuffle=True)
    ```

    ## When it is silent

    Time series, streams (IterableDataset, webdataset, `batch_size=None`), state carried over from batch to batch; a sampler; a `shuffle`
    that is not known or that a caller turns on. Advice, unless the dataset is sorted by class or `shuffle=False`
    stands literally on the loader that backward is fed from.

    ## Fix safety

    Unsafe: `shuffle=True` changes the order of the data, though that is what is meant. No fix where `shuffle` comes from
    a variable or from options, where the dataset is not known to be read by index, where the same loader is evaluated too,
    and where TL320 would report.

    ## Measured by `trainlint verify`

    The order of the first batches of two epochs.

    ## References

    - torch.utils.data.DataLoader: `shuffle` (default False)
    - torchvision.datasets.ImageFolder: samples are listed class by class
    """

    code = "TL317"
    name = "train-loader-not-shuffled"
    level = Level.ADVICE
    claim = Claim.BEHAVIOUR
    message = "this training loader is not shuffled{sorted}"
    why = "every epoch repeats the same batches in the same order"
    help = "pass shuffle=True (or a sampler)"
    near = (b"Loader",)

    def check(self, script: Script) -> Iterator[Hit]:
        for call, _ in loading.loaders(script):
            if (
                not self._unshuffled(script, call)
                or loading.hands_through(script, call)
                or reading.in_hf_trainer(script, call)
            ):
                continue
            feeds = script.feeding.training(call)
            if not feeds and not reading.trains_in_lightning(script, call):
                continue
            if any(self._is_shuffled_otherwise(script, call, feed) for feed in feeds):
                continue
            found = loading.datasets(script, call)
            if self._streams(script, call, found) or self._in_order(script, call, found, feeds):
                continue
            by_class = bool(found) and all(_is_sorted(script, d) for d in found)
            if not by_class and not self._is_map_style(script, call, found):
                continue
            literal = _says_false(call)
            sorted_ = ": its dataset is sorted by class" if by_class else ""
            notes = tuple(Note(f.expr, "its batches are trained on here") for f in feeds[:1])
            level = Level.WARNING if by_class or literal else None
            yield Hit(call, {"sorted": sorted_}, level, notes, rewrite=self._rewrite(script, call, found))

    def _rewrite(self, script: Script, call: Call, found: list[Object]) -> Rewrite | None:
        """None where the option is somebody else's choice, where the dataset may be a stream, or where the same batches
        are evaluated too, in their order."""
        if not _has_items(script, found) or any(feed.phase != "train" for feed in script.feeding.feeds(call)):
            return None
        place = loading.position("shuffle")
        if new_codes(script, call, "shuffle", Const(True), ("TL320",)):
            return None
        absent = loading.option(script, call, "shuffle") is None
        return rewrites.pass_option(call, "shuffle", "True", position=place, over=(False,), absent=absent, safe=False)

    def _is_shuffled_otherwise(self, script: Script, call: Call, feed: Feed) -> bool:
        """`if deterministic: loader = DataLoader(...)`, `else: loader = DataLoader(..., shuffle=True)`"""
        others = [other for other in feed.loaders if other is not call]
        return is_alternative(call, feed) and not all(self._unshuffled(script, other) for other in others)

    def _unshuffled(self, script: Script, call: Call) -> bool:
        return all(
            loading.falsy(loading.option(script, call, name)) for name in ("shuffle", "sampler", "batch_sampler")
        )

    def _is_map_style(self, script: Script, call: Call, found: list[Object]) -> bool:
        """Known to have an order that shuffling would change, or said to be shuffled not."""
        return _says_false(call) or _has_items(script, found)

    def _streams(self, script: Script, call: Call, found: list[Object]) -> bool:
        """`batch_size=None`: the dataset makes the batches, and shuffles them if anybody does."""
        given = call.argument(1, "batch_size")
        if isinstance(given, Constant) and given.value is None:
            return True
        return any(loading.is_iterable_style(script, dataset) for dataset in found)

    def _in_order(self, script: Script, call: Call, found: list[Object], feeds: list[Feed]) -> bool:
        """Batches whose order means something."""
        names = [d.cls.name if d.cls is not None else d.name.rpartition(".")[2] for d in found]
        dataset = call.argument(0, "dataset")
        names += [getattr(dataset, "id", ""), getattr(dataset, "attr", "") or ""]
        function = call.context.function
        if function is not None:
            names.append(function.name)
        if any(_ORDERED.search(name) for name in names):
            return True
        return any(self._carries_state(script, feed) for feed in feeds)

    def _carries_state(self, script: Script, feed: Feed) -> bool:
        """A name that a turn of the loop hands to the model and gets back: `out, hidden = model(x, hidden)`."""
        if feed.frame is None or not isinstance(feed.record, For):
            return False
        scope = feed.frame.function.locals if feed.frame.function is not None else feed.module.names
        for name, bindings in scope.items():
            if not _STATE.search(name):
                continue
            inside = [b for b in bindings if b.context.within(feed.frame) and b.how == "assign"]
            if inside and any(not b.context.within(feed.frame) for b in bindings):
                return True
        return False


def _has_items(script: Script, found: list[Object]) -> bool:
    """Whether a dataset is known to be read by index."""
    for dataset in found:
        if dataset.cls is not None and script.inference.method(dataset.cls, "__getitem__") is not None:
            return True
        if dataset.cls is None and dataset.name.startswith(("torchvision.datasets.", "torch.utils.data.")):
            return True
    return False


def _says_false(call: Call) -> bool:
    given = call.argument(loading.position("shuffle"), "shuffle")
    return isinstance(given, Constant) and given.value is False


def _is_sorted(script: Script, dataset: Object) -> bool:
    if dataset.cls is not None:
        bases = script.inference.bases(dataset.cls)
        return any(isinstance(b, str) and b.endswith(_SORTED) for b in bases) and "__init__" not in dataset.cls.methods
    return dataset.name.endswith(_SORTED)

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Level
from trainlint.rules import describe
from trainlint.rules.rule import Hit, Rule
from trainlint.semantic import checkpoints
from trainlint.semantic.checkpoints import Part

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class CheckpointNotWeightsOnlyLoadable(Rule):
    """A checkpoint holds objects that `torch.load` of torch 2.6 and later refuses.

    ## Why is this bad?

    From torch 2.6 on `torch.load` reads tensors, numbers, strings and containers only, unless told otherwise. A file with an
    `argparse.Namespace`, a numpy number or a whole module in it fails with "Weights only load failed", for everybody who
    gets it, and can then be read only by trusting it with running code. Files outlive versions: it is reported for any
    target. Whole modules break as well as soon as their source file is renamed.

    ## Example

    ```python
    torch.save({"model": model.state_dict(), "args": args, "best": np.mean(scores)}, "last.pt")
    ```

    ## Use instead

    ```python
    torch.save({"model": model.state_dict(), "args": vars(args), "best": float(np.mean(scores))}, "last.pt")
    ```

    ## When it is silent

    State dicts, tensors, numbers, strings, lists, tuples, sets and dicts of them; what is not known; programs whose own
    loads pass `weights_only=False` or name the classes with `safe_globals`. Each saved object is reported once.

    ## Fix safety

    No fix: whoever reads the file must change with it.

    ## Measured by `trainlint verify`

    Nothing.

    ## References

    - PyTorch, Serialization semantics, "torch.load with weights_only=True"
    - PyTorch 2.6 release notes, "Flip default of torch.load to weights_only=True"
    """

    code = "TL905"
    name = "checkpoint-not-weights-only-loadable"
    level = Level.WARNING
    message = "this checkpoint holds {what}: torch.load of torch 2.6 and later refuses it"
    why = "`Weights only load failed` for everybody who reads the file, also long after this run"
    help = "save state_dict(), vars(args), float(value), array.tolist() or torch.from_numpy(array) instead"
    # whoever writes through a wrapper names it so; the wrapper itself says torch.save
    triggers = ((b"save",), (b"write",), (b"dump",), (b"store",), (b"checkpoint",), (b"snapshot",))

    def check(self, script: Script) -> Iterator[Hit]:
        module = script.module
        seen: set[tuple[object, ...]] = set()
        told: set[int] = set()
        quiet: bool | None = None
        for save in sorted(checkpoints.saves(script), key=lambda s: s.call.order):
            if save.call.context.module is not module or checkpoints.in_memory(script, save.path):
                continue
            key = checkpoints.identity(script, save.content)
            parts = checkpoints.refused(script, save.content)
            if not parts or key in seen or id(save.call) in told:
                continue
            if quiet is None:
                quiet = checkpoints.reads_in_full(script)
            if quiet:
                return
            seen.add(key)
            told.add(id(save.call))
            yield Hit(save.call, {"what": self._words(parts, describe.text(save.content))})

    def _words(self, parts: list[Part], whole: str) -> str:
        words = [f'{p.what} under "{p.key}"' if p.key else f"{p.what} (`{whole}`)" for p in parts[:3]]
        return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]

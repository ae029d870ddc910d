from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Level
from trainlint.rules import describe, rewrites
from trainlint.rules.rule import Hit, Rewrite, Rule
from trainlint.semantic import arguments, checkpoints, version_guards
from trainlint.semantic.facts import Call
from trainlint.semantic.values import Unknown
from trainlint.torch_api.versions import shown

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_FROM_URL = (
    "torch.hub.load_state_dict_from_url",
    "torch.utils.model_zoo.load_url",
    "torchvision.models.utils.load_state_dict_from_url",
    "torchvision._internally_replaced_utils.load_state_dict_from_url",
)
_SAFE_BY_DEFAULT = (2, 6)


class UnsafeTorchLoad(Rule):
    """`torch.load` unpickles whatever the file holds, and so runs code of whoever wrote it.

    ## Why is this bad?

    A checkpoint is a pickle, and a pickle can call any function while it is read. A file from a colleague, a hub or a shared
    folder can run commands as the user who loads it. `weights_only=True` reads tensors, numbers, strings and containers and
    refuses everything else. It is the default from torch 2.6 on; before, it must be asked for.

    ## Example

    ```python
    checkpoint = torch.load(path)                        # torch 2.5 and older
    checkpoint = torch.load(path, weights_only=False)    # any version
    ```

    ## Use instead

    ```python
    checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    ```

    Where the file holds objects of known classes too:

    ```python
    with torch.serialization.safe_globals([Config]):
        checkpoint = torch.load(path, weights_only=True)
    ```

    ## When it is silent

    Where `weights_only=True`, or its value is not known; under `safe_globals` or beside `add_safe_globals`; for a plain
    call where the target allows only torch 2.6 and later; for `weights_only=False` on a file that this program writes
    itself; for buffers in memory. `load_state_dict_from_url` without `weights_only=True` is advice.

    ## Fix safety

    Safe where the file is known to hold tensors only, else unsafe: a file with other objects in it is then refused.

    ## Measured by `trainlint verify`

    Nothing.

    ## References

    - torch.load, "Warning"
    - PyTorch, Serialization semantics, "torch.load with weights_only=True"
    """

    code = "TL903"
    name = "unsafe-torch-load"
    level = Level.WARNING
    message = "{call} {problem}"
    why = "the file is a pickle: reading it runs whatever code its author put there"
    help = "pass weights_only=True; list further classes with torch.serialization.safe_globals"
    triggers = ((b"torch", b"load"),)

    def check(self, script: Script) -> Iterator[Hit]:
        for call in script.calls(*checkpoints.LOADS):
            problem = self._problem(script, call)
            if problem is not None and not checkpoints.in_memory(script, call.argument(0, "f")):
                rewrite = self._rewrite(script, call, "torch.load")
                yield Hit(call, {"call": describe.text(call), "problem": problem}, rewrite=rewrite)
        for call in script.calls(*_FROM_URL):
            if checkpoints.weights_only(script, call) in (None, False):
                values = {"call": describe.text(call), "problem": "unpickles in full what it downloads"}
                rewrite = self._rewrite(script, call, "torch.hub.load_state_dict_from_url")
                yield Hit(call, values, Level.ADVICE, rewrite=rewrite)

    def _rewrite(self, script: Script, call: Call, function: str) -> Rewrite | None:
        """Unsafe: what the file holds is not known."""
        if (
            call.unpacks
            or call.argument(2, "pickle_module") is not None
            or (not rewrites.has_remedy(script, f"{function}(weights_only=)"))
        ):
            return None
        return rewrites.pass_keyword("weights_only", "True", safe=False)

    def _problem(self, script: Script, call: Call) -> str | None:
        if checkpoints.under_safe_globals(call.context):
            return None
        said = checkpoints.weights_only(script, call)
        pickler = arguments.given(script.inference, call, "pickle_module", 2)
        if said is False or (said is None and pickler is not None and not isinstance(pickler, Unknown)):
            # a list of classes somewhere in the program means nothing to a load that reads everything
            if checkpoints.adds_safe_globals(script.module, call.context) or checkpoints.own_saves(script, call):
                return None
            return "unpickles the file in full"
        low = script.settings.torch_range.low if script.settings is not None else _SAFE_BY_DEFAULT
        if checkpoints.allows_more(script, call.context):
            return None
        if said is None and low < _SAFE_BY_DEFAULT and not version_guards.is_guarded(script.inference, call.context):
            return f"unpickles the file in full before torch 2.6 (the target begins at {shown(low)})"
        return None

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.patterns_on_use import Pattern
from trainlint.rules.rule import Hit, Note, Rule
from trainlint.semantic import loading
from trainlint.semantic.facts import Call, Module
from trainlint.semantic.values import Const, External, Object, each

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


_SETS_DEFAULT = Pattern(rb"set_default_")


class CudaDefaultDeviceWithLoader(Rule):
    """CUDA is the default device (or tensor type), and a DataLoader shuffles or has workers.

    ## Why is this bad?

    A shuffled loader draws its order with `torch.randperm` and a CPU generator. With CUDA as the default device it
    raises "Expected a 'cuda' device type for generator but found 'cpu'". Workers that collate into new tensors build
    them on the default device, too, and forked processes cannot use CUDA.

    ## Example

    ```python
    torch.set_default_device("cuda")
    loader = DataLoader(dataset, batch_size=64, shuffle=True)
    ```

    ## Use instead

    ```python
    device = torch.device("cuda")
    model = model.to(device)
    loader = DataLoader(dataset, batch_size=64, shuffle=True)
    ```

    or, without workers, `DataLoader(..., generator=torch.Generator(device="cuda"))`.

    ## When it is silent

    `generator=` given; neither shuffled nor with workers; other defaults than CUDA.

    ## Fix safety

    No fix: where tensors belong is for the author to say.

    ## Measured by `trainlint verify`

    Not measured: it raises at the first batch.

    ## References

    - torch.set_default_device
    - pytorch/pytorch#44714
    """

    code = "TL320"
    name = "cuda-default-device-with-loader"
    level = Level.ERROR
    claim = Claim.NONE
    message = "this loader {does} while CUDA is the default device"
    why = "the order is drawn with a CPU generator, and workers cannot use CUDA: it raises at the first batch"
    help = "leave the default on the CPU and move model and batches, or pass generator=torch.Generator(device='cuda')"
    near = (b"Loader",)

    def check(self, script: Script) -> Iterator[Hit]:
        switch: Call | None = None
        looked = False
        for call, _ in loading.loaders(script):
            if not loading.falsy(loading.option(script, call, "generator")):
                continue
            does = self._does(script, call)
            if does is None:
                continue
            if not looked:
                switch, looked = self._switch(script), True
            if switch is not None:
                yield Hit(call, {"does": does}, None, (Note(switch, "made the default here"),))

    def _does(self, script: Script, call: Call) -> str | None:
        shuffle = loading.option(script, call, "shuffle")
        workers = loading.workers(script, call)
        shuffled = shuffle is not None and any(isinstance(v, Const) and v.value is True for v in each(shuffle))
        some = workers is not None and workers.some
        if shuffled and some:
            return "shuffles and has workers"
        return "shuffles" if shuffled else "has workers" if some else None

    def _switch(self, script: Script) -> Call | None:
        """The call that makes CUDA the default in the programs that use this file."""
        neighbours = script.project.neighbours
        for path in sorted(neighbours.speaking(neighbours.around(script.module.path), _SETS_DEFAULT)):
            module = script.project.module(path)
            if module is not None:
                found = self._switch_in(script, module, path in neighbours.family(script.module.path))
                if found is not None:
                    return found
        return None

    def _switch_in(self, script: Script, module: Module, own: bool) -> Call | None:
        for name in ("set_default_device", "set_default_tensor_type"):
            for call in module.calls_by_attr.get(name, ()):
                function = call.context.function
                if not own and function is not None and not script.inference.callgraph.callers(function):
                    continue
                if call.args and self._is_cuda(script, call):
                    return call
        return None

    def _is_cuda(self, script: Script, call: Call) -> bool:
        for value in each(script.value(call.args[0])):
            if isinstance(value, Const) and isinstance(value.value, str):
                if value.value.startswith(("cuda", "torch.cuda.")):
                    return True
            elif isinstance(value, External) and value.name.startswith("torch.cuda."):
                return True
            elif isinstance(value, Object) and value.role == "device":
                if value.name.startswith("cuda"):
                    return True
                given = value.call.argument(0, "type") if value.call is not None else None
                if given is not None and any(
                    isinstance(v, Const) and isinstance(v.value, str) and v.value.startswith("cuda")
                    for v in each(script.value(given))
                ):
                    return True
        return False

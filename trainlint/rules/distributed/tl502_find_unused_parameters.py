from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules import rewrites
from trainlint.rules.rule import Hit, Rule
from trainlint.semantic.facts import Call
from trainlint.semantic.options import updated
from trainlint.semantic.submodules import uses_everything
from trainlint.semantic.values import Const, Table, Value, each

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


class FindUnusedParameters(Rule):
    """DDP with `find_unused_parameters=True` around a model that uses all of its modules every time.

    ## Why is this bad?

    After each forward DDP walks the whole autograd graph to find parameters that will get no gradient. Where there are
    none, that is time for nothing; DDP itself warns about it once.

    ## Example

    ```python
    model = DDP(model, device_ids=[local_rank], find_unused_parameters=True)
    ```

    ## Use instead

    ```python
    model = DDP(model, device_ids=[local_rank])
    ```

    ## When it is silent

    A module with branches, layer drop or parts chosen at run time in its forward; a model that cannot be followed into
    all of its parts; a flag that is off.

    ## Fix safety

    Unsafe: the argument goes; with parameters that are unused after all, the next step raises. No fix where the value
    comes from a variable or from options.

    ## Measured by `trainlint verify`

    Step time with and without the flag, under `torchrun`.

    ## References

    - torch.nn.parallel.DistributedDataParallel, `find_unused_parameters`
    """

    code = "TL502"
    name = "find-unused-parameters"
    level = Level.ADVICE
    claim = Claim.TIME
    message = "find_unused_parameters=True around a model that uses all of its parameters"
    why = "DDP walks the whole autograd graph after every forward, and finds nothing"
    help = "leave find_unused_parameters out"
    triggers = ((b"DistributedDataParallel",),)

    def check(self, script: Script) -> Iterator[Hit]:
        names = ("torch.nn.parallel.DistributedDataParallel", "torch.nn.parallel.distributed.DistributedDataParallel")
        for call in script.calls(*names):
            flag = self._flag(script, call)
            if flag is None or not all(isinstance(v, Const) and v.value is True for v in each(flag)):
                continue
            module = call.argument(0, "module")
            if module is not None and all(uses_everything(script.inference, v) for v in each(script.value(module))):
                rewrite = rewrites.drop_option(call, "find_unused_parameters", None, "False", safe=False)
                yield Hit(call, {}, rewrite=rewrite)

    def _flag(self, script: Script, call: Call) -> Value | None:
        given = call.keyword("find_unused_parameters")
        if given is not None:
            return script.value(given)
        for keyword in call.keywords:
            if keyword.name is None:
                for held in each(script.value(keyword.value)):
                    if isinstance(held, Table):
                        return updated(script.inference, keyword.value, held).get("find_unused_parameters")
        return None

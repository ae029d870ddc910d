from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Level
from trainlint.patterns_on_use import Pattern
from trainlint.rules.rule import Hit, Rewrite, Rule
from trainlint.semantic.facts import Call
from trainlint.semantic.fallbacks import depends_on_version
from trainlint.semantic.texts import data_strings

if TYPE_CHECKING:
    from trainlint.rewriting import Change, Site
    from trainlint.semantic.script import Script

_LAUNCH = Pattern(r"(?<![\w.])torch\.distributed\.launch(?![\w.])|torch/distributed/launch\.py")
_READS_ENVIRONMENT = Pattern(rb"LOCAL_RANK")
_DEEPSPEED = Pattern(rb"deepspeed")


class LegacyLauncher(Rule):
    """`torch.distributed.launch`, or a parser that only knows `--local_rank`.

    ## Why is this bad?

    The launcher is deprecated, and since torch 2.0 it passes `--local-rank`, with a dash: a parser that declares
    `--local_rank` alone ends every process with "unrecognized arguments". `torchrun` passes nothing and sets
    `LOCAL_RANK`.

    ## Example

    ```python
    parser.add_argument("--local_rank", type=int, default=0)
    ```

    ## Use instead

    ```python
    local_rank = int(os.environ["LOCAL_RANK"])   # torchrun --nproc_per_node=4 train.py
    ```

    or, for both launchers,

    ```python
    parser.add_argument("--local-rank", "--local_rank", type=int, default=int(os.environ.get("LOCAL_RANK", 0)))
    ```

    ## When it is silent

    The parser knows `--local-rank` too; a branch for older versions; DeepSpeed, whose launcher passes `--local_rank`.
    Advice where the program reads `LOCAL_RANK` as well.

    ## Fix safety

    Safe for the parser: it accepts `--local-rank` too. None for the launcher.

    ## Measured by `trainlint verify`

    Nothing; the run does not start.

    ## References

    - PyTorch, "torchrun (Elastic Launch)", Transitioning from torch.distributed.launch to torchrun
    - torch.distributed.launch: "torch 2.0 passes --local-rank=<rank>"
    """

    code = "TL506"
    name = "legacy-launcher"
    level = Level.WARNING
    message = "{what}"
    why = "since torch 2.0 the launcher passes --local-rank: a parser without it ends with 'unrecognized arguments'"
    help = "start with torchrun and read os.environ['LOCAL_RANK']; or accept --local-rank too"
    triggers = ((b"local_rank",), (b"distributed", b"launch"))

    def check(self, script: Script) -> Iterator[Hit]:
        yield from self._parsers(script)
        for expr, text in data_strings(script.module):
            if _LAUNCH.search(text) and not depends_on_version(expr.context):
                yield Hit(expr, {"what": "torch.distributed.launch is deprecated"}, why=_DEPRECATED, help=_TORCHRUN)
        for call in script.calls("torch.distributed.launch.main", "torch.distributed.launch.launch"):
            yield Hit(call, {"what": "torch.distributed.launch is deprecated"}, why=_DEPRECATED, help=_TORCHRUN)

    def _parsers(self, script: Script) -> Iterator[Hit]:
        flags = [(c, _flags(script, c)) for c in script.module.calls_by_attr.get("add_argument", ())]
        if any("--local-rank" in names for _, names in flags):
            return
        for call, names in flags:
            if "--local_rank" not in names or depends_on_version(call.context):
                continue
            program = script.semantics.program
            if program.says(script.module, _DEEPSPEED):
                continue
            level = Level.ADVICE if program.says(script.module, _READS_ENVIRONMENT) else None
            what = {"what": "the parser knows --local_rank, but not --local-rank"}
            yield Hit(call, what, level, rewrite=Rewrite(True, "Accept `--local-rank` too", _accept_both))


def _flags(script: Script, call: Call) -> set[str]:
    return {flag for a in call.args if isinstance(flag := script.constant(a), str)}


def _accept_both(site: Site) -> Iterable[Change]:
    """`"--local_rank"` -> `"--local-rank", "--local_rank"`"""
    for argument in site.call.args:
        written = site.written(argument.value)
        if written.strip("\"'") == "--local_rank" and argument.keyword is None:
            yield site.insert(site.span(argument)[0], f"{written.replace('_', '-')}, ")
            return


_DEPRECATED = "it is an old front of torchrun, and passes --local-rank where scripts may expect --local_rank"
_TORCHRUN = "start with torchrun (python -m torch.distributed.run)"

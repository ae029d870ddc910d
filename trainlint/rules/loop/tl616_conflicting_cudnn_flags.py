from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Level
from trainlint.patterns_on_use import Pattern
from trainlint.rules.rule import Hit, Note, Rule
from trainlint.semantic.facts import Binding, Context, Module
from trainlint.semantic.values import External, each

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


_FLAG = Pattern(rb"deterministic")


class ConflictingCudnnFlags(Rule):
    """`cudnn.benchmark = True` together with `cudnn.deterministic = True`.

    ## Why is this bad?

    `benchmark` times the algorithms and takes the fastest, which may be another one in each run: results then differ
    between runs although `deterministic` was asked for. Whoever set both wants one of them.

    ## Example

    ```python
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = True
    ```

    ## Use instead

    ```python
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    ```

    ## When it is silent

    Values that are not known; flags in different branches; a file that also turns the benchmark off.

    ## Fix safety

    No fix: it is for the author to say which one is wanted.

    ## Measured by `trainlint verify`

    Not measured.

    ## References

    - PyTorch, "Reproducibility: CUDA convolution benchmarking"
    """

    code = "TL616"
    name = "conflicting-cudnn-flags"
    level = Level.ADVICE
    message = "cudnn.benchmark is turned on together with cudnn.deterministic"
    why = "the benchmark may pick another algorithm in each run, so runs differ after all"
    help = "set cudnn.benchmark = False for reproducible runs, or drop deterministic for fast ones"
    triggers = ((b"benchmark",),)

    def check(self, script: Script) -> Iterator[Hit]:
        own = _stores(script, script.module)
        benchmarks = [b for b in own if b.name == "benchmark" and self._is(script, b, True)]
        if not benchmarks:
            return
        flags = list(own)
        for path in sorted(script.project.imported(script.module)):
            module = script.project.module(path) if script.project.neighbours.speaks(path, _FLAG) else None
            if module is not None:
                flags.extend(_stores(script, module))
        if any(b.name == "benchmark" and self._is(script, b, False) for b in flags):
            return
        for flag in flags:
            if flag.name != "deterministic" or not self._is(script, flag, True):
                continue
            for benchmark in benchmarks:
                if not _exclude(flag.context, benchmark.context):
                    yield Hit(benchmark.source, {}, None, (Note(flag.source, "deterministic is asked for here"),))
                    return

    def _is(self, script: Script, binding: Binding, wanted: bool) -> bool:
        return binding.value is not None and script.constant(binding.value) is wanted


def _stores(script: Script, module: Module) -> list[Binding]:
    """Assignments to attributes of `torch.backends.cudnn`, under any name."""
    return [
        binding
        for dotted, bindings in module.stores.items()
        if dotted.rpartition(".")[2] in ("benchmark", "deterministic")
        for binding in bindings
        if any(
            isinstance(v, External) and v.name == "torch.backends.cudnn"
            for v in each(script.value(binding.source.value))
        )
    ]


def _exclude(a: Context, b: Context) -> bool:
    """In different arms of one `if`."""
    return any(
        x.kind == y.kind == "branch" and x.record is y.record and x.negated != y.negated
        for x in a.frames()
        for y in b.frames()
    )

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.patterns_on_use import Pattern
from trainlint.rules import rewrites
from trainlint.rules.rule import Hit, Rewrite, Rule
from trainlint.semantic import placement
from trainlint.semantic.facts import Compare, Constant, Evaluate, Function, If, Import, Name, Record, Statement

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_CUDA = Pattern(rb"cuda")
# TF32, autocast, lower precision, or a framework that decides about it
_DECIDED = Pattern(
    rb"tf32|set_float32_matmul_precision|fp32_precision|autocast|float16|\bhalf\b|fp16|bf16|mixed_precision|float64|\.double\(|"
    rb"deepspeed|lightning|[Ff]abric|Accelerator|\bapex\b|TrainingArguments|use_deterministic_algorithms|NVIDIA_TF32_OVERRIDE"
)


class Tf32NotEnabled(Rule):
    """Training in float32 on CUDA with neither TF32 nor autocast.

    ## Why is this bad?

    Since torch 1.12 matrix products run in full float32 unless asked otherwise. On cards from Ampere on, TF32 computes
    them on tensor cores, several times as fast, with the range of float32 and a mantissa of 10 bits. Convolutions use
    it already.

    ## Example

    ```python
    for images, target in loader:
        loss = criterion(model(images.cuda()), target.cuda())
    ```

    ## Use instead

    ```python
    torch.set_float32_matmul_precision("high")
    ```

    ## When it is silent

    Any precision setting, autocast or lower precision in the program; frameworks; programs that never speak of CUDA.

    ## Fix safety

    Unsafe: matrix products get a shorter mantissa. The call is written once: under the main guard, below the imports where the
    loop stands at module level, else at the start of the outermost function of the file that runs the loop. No fix where what
    starts the training stands in another file.

    ## Measured by `trainlint verify`

    Step time with `"high"` and with `"highest"`.

    ## References

    - torch.set_float32_matmul_precision
    - PyTorch notes, "CUDA semantics", TensorFloat-32 (TF32) on Ampere (and later) devices
    """

    code = "TL410"
    name = "tf32-not-enabled"
    level = Level.ADVICE
    claim = Claim.TIME
    message = "this training runs in full float32"
    why = "matrix products do not use the tensor cores that cards from Ampere on have"
    help = 'call torch.set_float32_matmul_precision("high") once at the start, or train under autocast'
    triggers = ((b"backward",), (b"step",))

    def check(self, script: Script) -> Iterator[Hit]:
        program = script.semantics.program
        if not program.says(script.module, _CUDA) or program.says(script.module, _DECIDED):
            return
        for step in script.semantics.steps.of_module(script.module):
            if step.frame.kind == "loop":
                yield Hit(step.record, {}, rewrite=self._rewrite(script, step.record))

    def _rewrite(self, script: Script, loop: Record) -> Rewrite | None:
        if not rewrites.has_remedy(script, "torch.set_float32_matmul_precision"):
            return None
        where = self._start(script, loop)
        if where is None:
            return None
        part, record = where
        function = rewrites.name_for(script, "torch.set_float32_matmul_precision", record)
        if function is None and not rewrites.is_free(script, "torch", record):
            return None
        line = f'{function or "torch.set_float32_matmul_precision"}("high")'
        module = None if function else "torch"
        return rewrites.together(
            'Call `torch.set_float32_matmul_precision("high")`', [part(record, line)], module=module
        )

    def _start(self, script: Script, loop: Record) -> tuple[Callable[[Record, str], rewrites.Part], Record] | None:
        """Where the program starts, as far as this file has it."""
        guard = next((s for s in script.module.statements if _is_main_guard(s)), None)
        function = _outermost(script, loop)
        if function is None:
            around = placement.chain(loop)
            if guard is not None and any(s is guard for s in around):
                return rewrites.first_row_in, guard
        else:
            sites = script.inference.callgraph.callers(function)
            if not sites:
                return rewrites.first_row_in, function
            if any(site.arguments is not None for site in sites):
                return rewrites.first_row_in, function  # another process, which does not go through the guard
            if not any(site.call.context.module is script.module for site in sites):
                return None
            if guard is not None:
                return rewrites.first_row_in, guard
            if not any(site.call.context.function is None for site in sites):
                return None
        head = _last_import(script.module.body)
        return (rewrites.block_behind, head) if head is not None else None


def _outermost(script: Script, loop: Record) -> Function | None:
    """The function that holds a loop, or the one that is the only caller of it in the same file, and so on."""
    function = loop.context.function
    seen: set[int] = set()
    while function is not None and id(function) not in seen:
        seen.add(id(function))
        sites = script.inference.callgraph.callers(function)
        callers = {id(s.call.context.function): s.call.context for s in sites}
        if len(callers) != 1 or any(s.arguments is not None for s in sites):
            return function
        (context,) = callers.values()
        if context.function is None or context.module is not loop.context.module:
            return function
        function = context.function
    return function


def _is_main_guard(statement: Statement) -> bool:
    """`if __name__ == "__main__":`"""
    test = statement.test if isinstance(statement, If) and statement.context.function is None else None
    return isinstance(test, Compare) and any(isinstance(o, Name) and o.id == "__name__" for o in test.operands)


def _last_import(body: tuple[Statement, ...]) -> Statement | None:
    """The last of the imports that a file begins with."""
    found: Statement | None = None
    for statement in body:
        if isinstance(statement, Import):
            found = statement
        elif not (isinstance(statement, Evaluate) and isinstance(statement.value, Constant)):
            break
    return found

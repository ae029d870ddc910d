from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.patterns_on_use import Pattern
from trainlint.rules import describe
from trainlint.rules.rule import Hit, Note, Rule
from trainlint.semantic import compiled, masks, walk
from trainlint.semantic.facts import Assign, Attribute, Call, Compare, Expr, If, Name, Operator, Subscript, While
from trainlint.semantic.values import External, each

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_NUMPY_TRACED = (2, 1)  # from this version on numpy calls are traced as torch operations


class GraphBreakInCompiled(Rule):
    """Code that `torch.compile` cannot trace through: `.item()`, `print`, a test on a tensor's value, `x[mask]`.

    ## Why is this bad?

    The compiler ends its graph there, runs the line in Python and starts a new graph. Nothing is fused across the break, the
    value is waited for, and with `fullgraph=True` it is an error. A break in the middle of `forward` can cost most of what
    compiling gains.

    ## Example

    ```python
    @torch.compile
    def loss_of(prediction, target):
        error = (prediction - target).abs()
        if error.max() > 10:
            error = error.clamp(max=10)
        return error.mean()
    ```

    ## Use instead

    ```python
    @torch.compile
    def loss_of(prediction, target):
        error = (prediction - target).abs()
        return torch.where(error.max() > 10, error.clamp(max=10), error).mean()
    ```

    ## When it is silent

    Code that is not compiled, or under `torch.compiler.disable`; conditions that are usually false, and `if not
    torch.compiler.is_compiling()`; shapes, flags and `None`; `assert`, which is traced; `x[mask] = number`; numpy from torch
    2.1 on; what the options `capture_scalar_outputs` and `capture_dynamic_output_shape_ops` take in. The first place in a
    function is reported.

    ## Fix safety

    No fix.

    ## Measured by `trainlint verify`

    Graph breaks counted by `torch._dynamo`, and step time.

    ## References

    - PyTorch, "Working with Graph Breaks"
    """

    code = "TL702"
    name = "graph-break-in-compiled"
    level = Level.WARNING
    claim = Claim.TIME
    message = "{what} breaks the graph of compiled code"
    why = "the compiler stops here, the line runs in Python, and nothing is fused across it"
    help = "{instead}"
    triggers = ((b".item",), (b"print",), (b"if ",), (b"while ",), (b"[",), (b"numpy",))

    def check(self, script: Script) -> Iterator[Hit]:
        functions = compiled.compiled_functions(script)
        if not functions:
            return
        breaks = sorted(self._breaks(script), key=lambda found: found[0].order)
        seen: set[int] = set()
        for record, what, instead in breaks:
            function = record.context.function
            if function is None or id(function) in seen or id(function) not in functions:
                continue
            if not compiled.is_traced(script, record.context):
                continue
            seen.add(id(function))
            notes = (Note(functions[id(function)][1], "compiled from here"),)
            yield Hit(record, {"what": what, "instead": instead}, None, notes)

    def _breaks(self, script: Script) -> Iterator[tuple[Expr, str, str]]:
        for call in script.methods("item") if not self._captures(script, b"capture_scalar_outputs") else ():
            if call.receiver is not None and not call.args and script.tensor(call.receiver) is not None:
                yield call, describe.text(call), "keep the value a tensor"
        for call in script.module.calls_by_attr.get("print", ()):
            if isinstance(call.callee, Name) and script.name_of(call.callee) == "print":
                yield call, "print()", "print outside of the compiled code"
        yield from self._tests(script)
        yield from self._mask_reads(script)
        yield from self._numpy(script)

    def _captures(self, script: Script, option: bytes) -> bool:
        """`torch._dynamo.config.capture_scalar_outputs = True`"""
        return script.semantics.program.says(script.module, Pattern(option))

    def _tests(self, script: Script) -> Iterator[tuple[Expr, str, str]]:
        for statement in script.module.statements:
            if isinstance(statement, (If, While)):
                for part in _operands(statement.test):
                    tensor = script.tensor(part)
                    if tensor is not None and tensor.sure and _is_computed(script, part):
                        yield part, f"the test of `{describe.text(part)}`", "use torch.where, or torch.cond"

    def _mask_reads(self, script: Script) -> Iterator[tuple[Expr, str, str]]:
        if self._captures(script, b"capture_dynamic_output_shape_ops"):
            return
        stored = {id(t) for s in script.module.statements if isinstance(s, Assign) for t in s.targets}
        for expr in walk.of_module(script.module):
            if isinstance(expr, Subscript) and id(expr) not in stored:
                if script.tensor(expr.value) is not None and masks.is_mask(script, expr.index):
                    yield (
                        expr,
                        f"{describe.text(expr)} has a shape that depends on the data: it",
                        "use torch.where or a weighted sum",
                    )

    def _numpy(self, script: Script) -> Iterator[tuple[Expr, str, str]]:
        assert script.settings is not None
        if script.settings.torch_range.low >= _NUMPY_TRACED:
            return
        for call in script.module.calls:
            if isinstance(call.callee, Attribute) and (script.name_of(call.callee) or "").startswith("numpy."):
                yield call, f"{describe.text(call)} (numpy is traced from torch 2.1 on)", "use the torch function"


def _operands(test: Expr) -> Iterator[Expr]:
    """The parts whose truth is asked: those of `not`, `and`, `or`."""
    if isinstance(test, Operator) and test.op in ("not", "and", "or"):
        for operand in test.operands:
            yield from _operands(operand)
    else:
        yield test


def _is_computed(script: Script, part: Expr) -> bool:
    """A value that lies in a tensor; not `a is None`, nor a name that only convention takes for one."""
    if isinstance(part, Compare):
        return not any(op in ("is", "is not", "in", "not in") for op in part.ops)
    return isinstance(part, (Name, Attribute, Subscript)) or (
        isinstance(part, Call)
        and not any(isinstance(v, External) and v.name in ("torch.is_tensor",) for v in each(script.value(part.callee)))
    )

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Claim, Level
from trainlint.rules import describe
from trainlint.rules.rule import Hit, Rewrite, Rule
from trainlint.rules.sync.hot_values import between_forward_and_backward, decodes, in_parameter_loop
from trainlint.semantic import logged_value, running_sum
from trainlint.semantic.facts import Call, Statement
from trainlint.semantic.heat import Hot
from trainlint.semantic.running_sum import RunningSum

if TYPE_CHECKING:
    from trainlint.rewriting import Change, Site
    from trainlint.semantic.script import Script


class ItemInHotLoop(Rule):
    """`.item()` on a tensor in code that runs on every step of a batch loop.

    ## Why is this bad?

    CUDA work is queued: Python normally runs ahead of the device and keeps it busy. `.item()` must return a Python number,
    so it waits until everything queued so far has finished, and the device then idles until new work arrives. On every step
    this costs the whole overlap of Python and device; between forward and backward it hurts most.

    ## Example

    ```python
    for images, labels in loader:
        loss = criterion(model(images.cuda()), labels.cuda())
        loss.backward()
        optimizer.step()
        running_loss += loss.item()
    ```

    ## Use instead

    ```python
    running_loss = torch.zeros((), device="cuda")
    for images, labels in loader:
        loss = criterion(model(images.cuda()), labels.cuda())
        loss.backward()
        optimizer.step()
        running_loss += loss.detach()
    print(running_loss.item() / len(loader))
    ```

    or read it only on the steps on which it is logged: `if step % 100 == 0: print(loss.item())`.

    ## When it is silent

    Where a condition makes it rare (`step % N == 0`, `i == 0`, a debug flag that is off), once per epoch, on numpy values and
    tensors known to lie on the CPU, in programs that never use an accelerator, and where the value is not known to be a
    tensor. For the end-of-sequence test of a decoding loop, and the action of an environment, it is advice.

    ## Fix safety

    Unsafe. A number that is only added up becomes a detached sum on the device, read once after the loop: a float32 sum
    can differ from one of Python floats in the last digits (in scripts that lower the precision, `.float()` is added),
    and a loop that never runs leaves the number it started with, which has no `.item()`. A number that only a log call
    needs is read under the condition that is there for it. None where the loop uses the value for anything else.

    ## Measured by `trainlint verify`

    Synchronisations per step at this line, and the step time without them.

    ## References

    - PyTorch, Performance Tuning Guide, "Avoid unnecessary CPU-GPU synchronization"
    - pytorch/torchtune#522
    """

    code = "TL101"
    name = "item-in-hot-loop"
    level = Level.WARNING
    claim = Claim.SYNC
    message = "{call} waits for the device on every step of {loop}{where}"
    why = "the device runs dry while Python waits, and Python queues nothing meanwhile"
    help = (
        "keep `{value}` on the device (`.detach()`) and read it once after the loop, or only on the steps that log it"
    )
    triggers = ((b".item",),)

    def check(self, script: Script) -> Iterator[Hit]:
        if not script.uses_accelerator():
            return
        for call in script.methods("item"):
            receiver = call.receiver
            if receiver is None or call.args:
                continue
            hot = script.hot(call)
            if hot is None or hot.flagged or in_parameter_loop(script, call) or script.device_tensor(receiver) is None:
                continue
            level = Level.ADVICE if decodes(script, call, hot) else None
            where = ", between forward and backward" if between_forward_and_backward(script, call, hot) else ""
            yield Hit(
                call,
                {
                    "call": describe.text(call),
                    "loop": describe.loop_name(hot.loop, hot),
                    "where": where,
                    "value": describe.text(receiver),
                },
                level,
                describe.notes(hot),
                rewrite=None if level is Level.ADVICE else self._rewrite(script, call, hot),
            )

    def _rewrite(self, script: Script, call: Call, hot: Hot) -> Rewrite | None:
        total = running_sum.of(script, call, hot)
        if total is not None:
            read_outs = running_sum.read_outs_below(total.loop)
            also = (*total.rare, *((total.after,) if total.after is not None else ()), *read_outs[-1:])
            summand = running_sum.summand(script, call)
            text = "Sum on the device, and read it once after the loop"
            return Rewrite(False, text, lambda site: _sum_on_device(site, total, summand), others=also)
        guard = logged_value.guard_of(script, call)
        if guard is not None:
            first = guard.body[0]
            return Rewrite(
                False, "Read it only on the steps that log it", lambda site: _move(site, first), others=(first,)
            )
        return None


def _sum_on_device(site: Site, total: RunningSum, summand: str) -> Iterable[Change]:
    import libcst as cst

    from trainlint import rewriting, rewriting_blocks

    receiver = rewriting.attribute(site.call.func).value
    start, end = site.outer_span(receiver)[1], site.span(site.node)[1]
    if "#" in site.text[start:end]:
        raise rewriting.NoFix
    yield rewriting.Change(start, end, summand)
    for read in (*total.rare, *((total.after,) if total.after is not None else ())):
        yield site.insert(site.place(read)[1], ".item()")
    if total.is_read and total.after is None:
        loop = next((n for n in reversed(site.around_all) if isinstance(n, (cst.For, cst.While))), None)
        if loop is None:
            raise rewriting.NoFix
        read_outs = running_sum.read_outs_below(total.loop)
        above = site.place(read_outs[-1])[1] if read_outs else None
        yield from rewriting_blocks.statement_after(site, loop, f"{total.name} = {total.name}.item()", above)


def _move(site: Site, first: Statement) -> Iterable[Change]:
    from trainlint import rewriting, rewriting_blocks

    return [*rewriting_blocks.moved_before(site, site.place(first)[0]), *rewriting.remove_statement(site)]

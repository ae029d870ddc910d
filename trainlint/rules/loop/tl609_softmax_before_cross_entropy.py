from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from trainlint.findings import Level
from trainlint.rules import describe
from trainlint.rules.rule import Hit, Rewrite, Rule
from trainlint.semantic import walk
from trainlint.semantic.bindings import lookup
from trainlint.semantic.facts import Call, Expr, Name
from trainlint.semantic.logits import function_of
from trainlint.semantic.output_activation import LINEAR, LOG_SOFTMAX, SIGMOID, SOFTMAX
from trainlint.semantic.values import External, Object, each

if TYPE_CHECKING:
    from trainlint.rewriting import Change, Site
    from trainlint.semantic.script import Script

_KINDS = {
    "torch.nn.CrossEntropyLoss": "cross_entropy",
    "torch.nn.functional.cross_entropy": "cross_entropy",
    "torch.nn.NLLLoss": "nll",
    "torch.nn.NLLLoss2d": "nll",
    "torch.nn.functional.nll_loss": "nll",
    "torch.nn.BCELoss": "bce",
    "torch.nn.functional.binary_cross_entropy": "bce",
    "torch.nn.BCEWithLogitsLoss": "bce_logits",
    "torch.nn.functional.binary_cross_entropy_with_logits": "bce_logits",
    "torch.nn.KLDivLoss": "kl",
    "torch.nn.functional.kl_div": "kl",
}
# (loss, what its input went through last): what happens, what to write
_WRONG = {
    ("cross_entropy", SOFTMAX): (
        "applies softmax a second time: its input already went through softmax",
        "the scores are squashed into [0, 1], gradients shrink, and training is slow and stops early",
        "give it the logits: drop the softmax (apply it only where probabilities are shown)",
    ),
    ("cross_entropy", LOG_SOFTMAX): (
        "repeats the log_softmax that its input already went through",
        "the result is the same, the work is done twice",
        "use NLLLoss on log-probabilities, or CrossEntropyLoss on logits",
    ),
    ("nll", SOFTMAX): (
        "gets probabilities, and expects their logarithm",
        "the loss is negative and unbounded in the wrong way: it is no likelihood",
        "use log_softmax before it, or CrossEntropyLoss on the logits",
    ),
    ("bce", LINEAR): (
        "gets logits, and expects probabilities",
        "outside of [0, 1] it raises (on CUDA: a device-side assert)",
        "use BCEWithLogitsLoss on the logits",
    ),
    ("bce_logits", SIGMOID): (
        "applies sigmoid a second time: its input already went through sigmoid",
        "predictions stay between 0.5 and 0.73, and the model cannot fit negatives",
        "give it the logits: drop the sigmoid (apply it only where probabilities are shown)",
    ),
    ("kl", SOFTMAX): (
        "gets probabilities as its input, and expects their logarithm",
        "what is minimised is not the divergence, and may be negative",
        "use log_softmax for the input (the target stays a probability)",
    ),
}


class SoftmaxBeforeCrossEntropy(Rule):
    """A loss that gets what another activation than the one it expects has given.

    ## Why is this bad?

    `CrossEntropyLoss` applies log-softmax itself. After another softmax its scores lie between 0 and 1, so that even a
    perfect prediction has a loss far from zero and small gradients: the model still learns a little, which hides the
    mistake. The other losses have the same trap: `NLLLoss` and the input of `KLDivLoss` want logarithms,
    `BCEWithLogitsLoss` wants logits, `BCELoss` wants probabilities.

    ## Example

    ```python
    model = nn.Sequential(nn.Linear(20, 5), nn.Softmax(dim=1))
    loss = nn.CrossEntropyLoss()(model(x), target)
    ```

    ## Use instead

    ```python
    model = nn.Sequential(nn.Linear(20, 5))
    loss = nn.CrossEntropyLoss()(model(x), target)
    ```

    ## When it is silent

    Where the last activation is not certain: different paths give different ones, or the model cannot be seen; softmax
    inside of the model, or only for metrics; the target. log_softmax before cross-entropy is advice: only wasted work.

    ## Fix safety

    Unsafe: dropping the softmax changes what the model gives, also where it is used for prediction.

    ## Measured by `trainlint verify`

    Not measured.

    ## References

    - PyTorch, `torch.nn.CrossEntropyLoss`, `torch.nn.NLLLoss`, `torch.nn.BCEWithLogitsLoss`, `torch.nn.KLDivLoss`
    """

    code = "TL609"
    name = "softmax-before-cross-entropy"
    level = Level.ERROR
    message = "{loss} {what}"
    why = "the loss is computed on the wrong kind of numbers"
    help = "give the loss what its documentation asks for"
    triggers = (
        (b"CrossEntropyLoss",),
        (b"cross_entropy",),
        (b"NLLLoss",),
        (b"nll_loss",),
        (b"BCE",),
        (b"KLDivLoss",),
        (b"kl_div",),
        (b"loss",),
        (b"criterion",),
        (b"torch",),
    )

    def check(self, script: Script) -> Iterator[Hit]:
        for call in script.module.calls:
            kind = self._kind(script, call)
            given = call.argument(0, "input") if kind is not None else None
            if kind is None or given is None:
                continue
            found = _WRONG.get((kind, script.semantics.output_activation.of(given) or ""))
            if found is None:
                continue
            what, why, help_ = found
            level = Level.ADVICE if kind == "cross_entropy" and what.startswith("repeats") else None
            values = {"loss": describe.text(call.callee), "what": what}
            yield Hit(call, values, level, why=why, help=help_, rewrite=self._rewrite(script, kind, given))

    def _rewrite(self, script: Script, kind: str | None, given: Expr) -> Rewrite | None:
        """Where the activation is seen: in the argument, in the name's one assignment, or last in a Sequential."""
        if kind not in ("cross_entropy", "bce_logits"):
            return None
        made = given
        if isinstance(given, Name):
            bindings = lookup(given, given.id)[0]
            uses = [e for e in walk.of_module(script.module) if isinstance(e, Name) and e.id == given.id]
            if len(bindings) != 1 or bindings[0].path or bindings[0].value is None or len(uses) > 2:
                return None
            made = bindings[0].value
        if not isinstance(made, Call):
            return None
        name = function_of(script, made)
        if name in ("softmax", "sigmoid"):
            return Rewrite(False, f"Drop the {name}", _drop, at=made)
        for value in each(script.value(made.callee)):
            if isinstance(value, Object) and value.name == "torch.nn.Sequential" and value.call is not None:
                return self._last_layer(script, value.call)
        return None

    def _last_layer(self, script: Script, call: Call) -> Rewrite | None:
        layer = call.args[-1] if call.args and not call.keywords else None
        if call.context.module is not script.module or not isinstance(layer, Call):
            return None
        if layer.attr not in ("Softmax", "Sigmoid"):
            return None
        return Rewrite(False, f"Drop the last layer, {layer.attr}", _drop_last, at=call)

    def _kind(self, script: Script, call: Call) -> str | None:
        if not call.args and not call.keywords:
            return None
        kinds: set[str | None] = set()
        for value in each(script.value(call.callee)):
            if isinstance(value, Object) and value.cls is None and value.role == "loss":
                kinds.add(_KINDS.get(value.name))
            elif isinstance(value, External):
                kinds.add(_KINDS.get(value.name) if "functional" in value.name else None)
            else:
                kinds.add(None)
        return kinds.pop() if len(kinds) == 1 else None


def _drop(site: Site) -> Iterable[Change]:
    """`F.softmax(x, dim=1)` -> `x`, `x.softmax(1)` -> `x`"""
    from trainlint import rewriting

    func = rewriting.attribute(site.call.func)
    first = site.call.args[0] if site.call.args else None
    function = site.written(func.value) in ("F", "torch", "nn.functional", "torch.nn.functional", "functional")
    if function and (first is None or first.keyword is not None):
        raise rewriting.NoFix
    inner = first.value if function and first is not None else func.value
    return rewriting.keep_only(site, inner)


def _drop_last(site: Site) -> Iterable[Change]:
    from trainlint import rewriting

    return rewriting.drop_arguments(site, site.call, [len(site.call.args) - 1])

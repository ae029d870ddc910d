"""What a loss is: a mean over its batch, as torch's losses give, or something that was weighted, summed or divided."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from trainlint.patterns_on_use import Pattern
from trainlint.semantic import walk
from trainlint.semantic.bindings import lookup
from trainlint.semantic.facts import Assign, Call, Expr, Name
from trainlint.semantic.facts import Operator as OperatorRecord
from trainlint.semantic.step import Event
from trainlint.semantic.values import External, Object, each

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_SCALING = frozenset("mul mul_ div div_ multiply divide true_divide sum nansum scale_loss weighted".split())
_CONTRASTIVE = Pattern(r"contrast|nce|clip_?loss|siglip|triplet|cosent|ntxent|arcface|cosine", re.I)
_MEAN_LOSSES = Pattern(
    r"^(?:cross_entropy|nll_loss|mse_loss|l1_loss|smooth_l1_loss|huber_loss|binary_cross_entropy|binary_cross_entropy_with_logits|"
    r"soft_margin_loss|multilabel_soft_margin_loss|kl_div|poisson_nll_loss|gaussian_nll_loss)$"
)


def averages(script: Script, backward: Event) -> bool:
    """Whether a backward certainly runs on the mean of one batch, with nothing that scales it on the way."""
    if backward.owner is None or _is_weighted(script, backward):
        return False
    mean = False
    for part in script.semantics.lineage.parts(backward.owner, backward.path, through_modules=False):
        expr = part.expr
        if _scales(script, expr):
            return False
        if isinstance(expr, Call):
            kind = _loss(script, expr)
            if kind is False:
                return False
            mean = mean or kind is True
    return mean and not _is_contrastive(backward)


def _is_weighted(script: Script, backward: Event) -> bool:
    """`loss.backward(gradient=weight)`"""
    call = backward.record
    if not isinstance(call, Call) or call.receiver is not backward.owner:
        return False
    given = call.argument(0, "gradient")
    return given is not None and script.constant(given) is not None


def _scales(script: Script, expr: Expr) -> bool:
    """Divided, summed, or multiplied by what may be a share; in the loss itself, since arguments of modules and losses are
    not looked into. A known factor of one or more (a squared temperature) divides nothing."""
    if isinstance(expr, Name):
        return any(  # `loss /= pieces`
            b.how == "augment" and isinstance(b.statement, Assign) and b.statement.op in ("/", "*", "@")
            for b in lookup(expr, expr.id)[0]
        )
    if isinstance(expr, OperatorRecord):
        if expr.op == "*":
            return not any(_is_factor(script.constant(o)) for o in expr.operands)
        return expr.op in ("/", "@")
    return isinstance(expr, Call) and expr.attr in _SCALING


def _is_factor(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 1


def _loss(script: Script, call: Call) -> bool | None:
    """True for a loss of torch that averages, False for one that does not, None for something else."""
    for value in each(script.value(call.callee)):
        if isinstance(value, Object) and _is_pretrained(value):
            # a transformer that is given labels (without them it has no loss) averages over their tokens
            labelled = call.keyword("labels") is not None or any(k.name is None for k in call.keywords)
            return True if labelled and not call.keyword("num_items_in_batch") else None
        if isinstance(value, Object) and value.role == "loss":
            if value.cls is not None or not value.name.startswith("torch.nn."):
                return False if value.name or value.cls is not None else None
            if _CONTRASTIVE.search(value.name):
                return False
            return _reduces(script, value.call)
        if isinstance(value, External) and value.name.startswith("torch.nn.functional."):
            last = value.name.rpartition(".")[2]
            if _MEAN_LOSSES.match(last):
                return _reduces(script, call)
    if call.attr is not None and _CONTRASTIVE.search(call.attr):
        return False
    return None


def _is_pretrained(value: Object) -> bool:
    """A model of transformers, also under DDP or `torch.compile`."""
    while value.role == "module" and len(value.inner) == 1 and isinstance(value.inner[0], Object):
        value = value.inner[0]
    return value.role in ("module", "pretrained") and value.name.startswith("transformers.")


def _reduces(script: Script, call: Call | None) -> bool:
    """`reduction="mean"`, which is the default; not where arguments come from elsewhere."""
    if call is None:
        return False
    if call.unpacks:
        return False
    given = call.keyword("reduction")
    legacy = call.keyword("size_average") or call.keyword("reduce")
    return legacy is None and (given is None or script.constant(given) in ("mean", "batchmean"))


def _is_contrastive(backward: Event) -> bool:
    name = walk.root(backward.owner) if backward.owner is not None else None
    return isinstance(name, Name) and bool(_CONTRASTIVE.search(name.id))

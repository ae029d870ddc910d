"""Which observation answers which rule, and why some rules are not answered by a run at all.

Each code whose rule makes a claim stands in exactly one of the two tables; a test holds that.
"""

from __future__ import annotations

#: Code -> the experiment in `experiments/` that answers it.
EXPERIMENTS: dict[str, str] = {
    "TL101": "syncs",
    "TL102": "syncs",
    "TL103": "syncs",
    "TL104": "syncs",
    "TL105": "housekeeping",
    "TL108": "syncs",
    "TL109": "syncs",
    "TL111": "collectives",
    "TL201": "evaluation_graph",
    "TL202": "growth",
    "TL205": "evaluation_growth",
    "TL206": "growth",
    "TL207": "evaluation_graph",
    "TL209": "evaluation_graph",
    "TL301": "spawn",
    "TL302": "spawn",
    "TL303": "loader_wait",
    "TL305": "loader_start",
    "TL306": "crash",
    "TL307": "loader_start",
    "TL308": "crash",
    "TL309": "epoch_order",
    "TL312": "loader_wait",
    "TL313": "crash",
    "TL315": "loader_start",
    "TL316": "growth",
    "TL319": "growth",
    "TL401": "half_without_scaler",
    "TL503": "reductions",
    "TL505": "reductions",
    "TL601": "gradients_cleared",
    "TL602": "gradients_missing",
    "TL604": "evaluation_mode",
    "TL605": "training_mode",
    "TL608": "optimizers_made",
    "TL611": "gradients_missing",
    "TL612": "dropout_in_evaluation",
    "TL618": "crash",
    "TL620": "idle_parameters",
    "TL702": "graph_breaks",
    "TL901": "crash",
}

_COMPARE = "needs a comparison with the line changed: there is no fix to apply here, or --budget is 0"
_STATIC = "settled by reading the code; a few steps cannot show it"
_CUDA = "needs a CUDA device and a comparison with the line changed"

#: Code -> why no run answers it.
REASONS: dict[str, str] = {
    "TL106": _CUDA,
    "TL107": _CUDA,
    "TL203": _COMPARE,
    "TL208": _COMPARE,
    "TL210": _COMPARE,
    "TL211": "shows only once memory has run out",
    "TL304": _CUDA,
    "TL310": "needs the data of all ranks side by side, which this version does not keep",
    "TL314": "grows over whole epochs, by pages that workers touch: a few steps cannot show it",
    "TL317": _STATIC,
    "TL318": _STATIC,
    "TL322": _STATIC,
    "TL402": _STATIC,
    "TL403": _STATIC,
    "TL410": _CUDA,
    "TL501": "needs two devices",
    "TL502": _COMPARE,
    "TL512": "needs two devices",
    "TL607": _STATIC,
    "TL614": _STATIC,
    "TL617": _STATIC,
    "TL701": _COMPARE,
    "TL703": _CUDA,
    "TL704": _CUDA,
    "TL705": _COMPARE,
    "TL706": _COMPARE,
    "TL708": _COMPARE,
    "TL904": "shows only when a checkpoint is loaded beside a running model on a CUDA device",
}

NO_CLAIM = "static only: this rule claims nothing that a run could measure"


def reason_not_run(code: str) -> str:
    """Why `code` is not answered by a run."""
    return REASONS.get(code, NO_CLAIM)

"""The page of results. Verdicts are taken anew from the recorded ratios, by the rule as it is now."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from runtime_check.compare.intervals import t_interval
from runtime_check.compare.memory import decide_counted
from runtime_check.compare.records import Change, Decision, Design, Proposal, Samples
from runtime_check.compare.verdicts import decide
from runtime_check.evidence import Verdict
from runtime_check.statistics import median

DELTA = 0.03

Record = dict[str, Any]

HEAD = """\
# How often a verdict is wrong

Written by `python -m benchmarks.verdicts`; not by hand. Every trial is a whole experiment (five processes or pairs, or two
counted runs of each arm) on `fixtures/verify/planted.py`, in which the truth is planted: nothing, or extra matrix products that
are 5, 10 or 20 % of the step by its on-CPU time, or a buffer that is 10 % of the peak. The least effect that counts is {delta:.0%}.

- A change of **nothing** that is *confirmed* is a false verdict; so is a planted effect well above {delta:.0%} that is *refuted*.
- Toggle trials measure nothing and the three shares together, as four findings of one run: *Holm* is the verdict that `verify`
  gives then, *alone* what it would give for the finding alone.
"""


def page(records: Sequence[Record]) -> str:
    if not records:
        return HEAD.format(delta=DELTA) + "\nNot measured yet.\n"
    rows = [_row(records, *key) for key in _keys(records)]
    loads = sorted(record["load"] for record in records)
    machine = (
        f"Machine: {records[-1]['cpus']} cores, load {loads[0]:.1f} to {loads[-1]:.1f} "
        f"(median {median(loads):.1f}) while it ran.\n"
    )
    head = (
        "| design | clock | planted | trials | confirmed | refuted | inconclusive | alone: confirmed | "
        "mean saving | sd of one replicate | seconds a trial |"
    )
    line = "|" + " --- |" * head.count(" |")
    return "\n".join([HEAD.format(delta=DELTA), machine, head, line, *rows, "", *_wrong(records)]) + "\n"


def _keys(records: Iterable[Record]) -> list[tuple[str, str, float]]:
    order = {"toggle": 0, "pairs": 1, "memory": 2}
    keys = {(record["design"], record["clock"], record["planted"]) for record in records}
    return sorted(keys, key=lambda key: (order[key[0]], key[1] == "on-CPU", key[2]))


def verdicts_of(records: Sequence[Record], design: str, clock: str, planted: float) -> list[tuple[Decision, Decision]]:
    """(among the findings of its run, alone) for each trial."""
    found = []
    of_design = [r for r in records if r["design"] == design and r["clock"] == clock]
    for record in (r for r in of_design if r["planted"] == planted):
        if design == "memory":
            counted = decide_counted(_proposal(design), record["a_bytes"], record["b_bytes"], DELTA)
            found.append((counted, counted))
            continue
        alone = decide([_samples(record)], DELTA)[0]
        if design == "toggle":
            together = [r for r in of_design if r["trial"] == record["trial"]]
            among = decide([_samples(r) for r in together], DELTA)[together.index(record)]
        else:
            among = alone
        found.append((among, alone))
    return found


def _row(records: Sequence[Record], design: str, clock: str, planted: float) -> str:
    decided = verdicts_of(records, design, clock, planted)
    among = Counter(decision.verdict for decision, _ in decided)
    alone = Counter(decision.verdict for _, decision in decided)
    here = [r for r in records if (r["design"], r["clock"], r["planted"]) == (design, clock, planted)]
    savings = [d.effect.saving for d, _ in decided if d.effect is not None]
    spreads = [_deviation(r["log_ratios"]) for r in here if len(r.get("log_ratios", ())) > 1]
    truth = median([r["truth"] for r in here])
    cells = [
        design,
        clock,
        "nothing" if not planted else f"{planted:.0%} ({truth:.1%})",
        str(len(here)),
        str(among[Verdict.CONFIRMED]),
        str(among[Verdict.REFUTED]),
        str(among[Verdict.INCONCLUSIVE] + among[Verdict.NOT_RUN]),
        str(alone[Verdict.CONFIRMED]),
        f"{sum(savings) / len(savings):+.1%}" if savings else "-",
        f"{median(spreads):.1%}" if spreads else "-",
        f"{median([r['seconds'] for r in here]):.0f}",
    ]
    return "| " + " | ".join(cells) + " |"


def _wrong(records: Sequence[Record]) -> list[str]:
    """Every false verdict, one a line."""
    lines = []
    for design, clock, planted in _keys(records):
        for number, (decision, _) in enumerate(verdicts_of(records, design, clock, planted)):
            false = (planted == 0 and decision.verdict is Verdict.CONFIRMED) or (
                planted > DELTA and decision.verdict is Verdict.REFUTED
            )
            if false:
                lines.append(f"- {design}, {clock}, planted {planted:.0%}, trial {number}: {decision.why}")
    return ["## False verdicts", "", *(lines or ["None."])]


def _deviation(values: Sequence[float]) -> float:
    interval = t_interval(values)
    return interval.error * math.sqrt(interval.n)


def _proposal(design: str) -> Proposal:
    metric = "train_peak_bytes" if design == "memory" else "step_time"
    return Proposal(Change("planted", "without it"), Design(design), metric)


def _samples(record: Record) -> Samples:
    return Samples(
        proposal=_proposal(record["design"]),
        log_ratios=tuple(record["log_ratios"]),
        a=record["a_ms"],
        b=record["b_ms"],
        unit="ms",
        rounds=record["rounds"],
        clock=record["clock"],
        seconds_each=record["seconds"] / 5,
        failure=record["failure"],
    )

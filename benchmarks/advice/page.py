"""The page with the table: the advice, what it came to, and what has not been measured yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.advice.cases import CASES, GPU_CASES
from runtime_check.measures import bytes_text, cores_text

Record = dict[str, Any]
Row = dict[str, Any]

#: Candidate -> the advice as the guides give it, in the order of the page.
ADVICE = {
    "workers": "more workers (`num_workers`)",
    "persistent-workers": "`persistent_workers=True`",
    "prefetch-factor": "a larger `prefetch_factor`",
    "amp": "mixed precision (bfloat16) halves memory and is faster",
    "accumulation": "gradient accumulation saves memory at the same effective batch",
    "checkpoint": "activation checkpointing trades time for memory",
    "no-grad": "`no_grad` in validation",
    "set-to-none": "`zero_grad(set_to_none=True)`",
    "compile": "`torch.compile`",
    "batch-size": "batch sizes in powers of two, or multiples of 8",
    "ranks": "several processes (DistributedDataParallel)",
    "no-sync": "`no_sync()` on all micro-batches but the last",
    "sequential": "`nn.Sequential` is faster than a written forward",
    "pin-memory": "`pin_memory=True`",
    "non_blocking": "`non_blocking=True`, from pinned memory",
    "item": "no `.item()` on each step",
    "float16": "mixed precision (float16 with a GradScaler)",
    "tf32": "TF32",
    "cudnn-benchmark": "`cudnn.benchmark`",
    "ddp": "DistributedDataParallel in place of DataParallel",
}

#: What only a GPU can show, and the case that measures it.
ON_A_GPU = {
    "pin-memory": "gpu-detector",
    "non_blocking": "gpu-non-blocking",
    "item": "gpu-detector",
    "float16": "gpu-detector",
    "tf32": "gpu-detector",
    "cudnn-benchmark": "gpu-detector",
    "ranks": "gpu-ranks",
    "ddp": "gpu-data-parallel",
}

HEAD = """\
# What the usual tuning advice comes to

Written by `python -m benchmarks.advice`; not by hand. Three small scripts that tune nothing (`fixtures/verify/`: `detector.py` after
RetinaNet, `resnet.py`, `gpt.py`; synthetic data) are given the advice of the tuning guides, one piece at a time, and
[`trainlint verify`](verify.md) measures each: five processes or pairs at least, 95 % intervals, the least effect that counts is 3 %;
memory is counted in live tensor bytes. **These are figures of these scripts on this machine.** What they show is that the same
advice helps one script and not the other; what it does to yours says `trainlint verify train.py --try all`.
"""

NOTES = """\
- *on-CPU*: the machine was busy, and the process's own time on the CPU was compared in place of the wall time. *at load N*: it was
  busy, and what was changed is not on that time alone, so that the wall time was compared; it wants to be run again on a quiet one.
- The *verdict* is on the claim "saves at least 3 %": of time, of memory. "refuted" with an interval below zero: it costs.
- All ran on **one core**: workers can overlap waiting there, not computing, and the two ranks share it, so that no time can be
  saved by either. Two cores or more: run it again.
"""


def page(records: Sequence[Record]) -> str:
    if not records:
        return f"{HEAD}\nNot measured yet.\n"
    notes = NOTES if _one_core(records) else NOTES_OF_MORE
    parts = [HEAD, _machine(records), _table(records), notes, _missing(records), _open(records)]
    return "\n".join(part for part in parts if part)


NOTES_OF_MORE = NOTES.partition("- All ran")[0]


def _one_core(records: Sequence[Record]) -> bool:
    return all(record["cpus"] == 1 for record in records)


def _machine(records: Sequence[Record]) -> str:
    loads = sorted(load for record in records for load in record["load"])
    dates = sorted({record["date"] for record in records})
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    machines = ", ".join(sorted({f"{record['machine']}, torch {record['torch']}" for record in records}))
    cores = " and ".join(sorted({cores_text(record["cpus"]) for record in records}))
    return (
        f"Machine: {machines}; {cores} used, one thread, load {loads[0]:.0f} to {loads[-1]:.0f} while it ran. {when}.\n"
    )


def _table(records: Sequence[Record]) -> str:
    head = ("advice", "script", "tried", "time", "peak memory", "verdict", "seconds")
    lines = [_line(head), _line(["---"] * len(head))]
    order = list(ADVICE)
    rows = [(record, row) for record in records for row in record["rows"] if row["name"] in ADVICE and measured(row)]
    for record, row in sorted(rows, key=lambda pair: (order.index(pair[1]["name"]), pair[0]["script"])):
        lines.append(_line(_cells(record, row)))
    return "\n".join([*lines, ""])


def _cells(record: Record, row: Row) -> list[str]:
    return [
        ADVICE[row["name"]],
        _script(record["script"], record["note"]),
        row["title"],
        _time(row, record),
        _memory(row),
        _verdict(row),
        str(record["seconds"]),
    ]


def _script(name: str, note: str) -> str:
    return f"`{name}`" + (f" ({note})" if note else "")


def _time(row: Row, record: Record) -> str:
    speed, decision = row["speedup"], row["time"]
    if decision is None:
        return "-"
    if speed is None:
        return f"not measured: {decision['why']}"
    effect = decision["effect"]
    per = "a sample" if effect["metric"] == "sample_time" else "a step"
    clock = ", on-CPU" if effect["clock"] == "on-CPU" else ""
    if effect["clock"] == "wall" and max(record["load"]) > record["cpus"]:
        clock = f", at load {max(record['load']):.0f}"
    value, (low, high) = speed["value"], speed["interval"]
    amounts = f"{effect['a']:.2f} to {effect['b']:.2f} ms {per}{clock}"
    return f"{value:.2f}x [{_times(low)}, {_times(high)}], {amounts}"


def _times(bound: float | None) -> str:
    return "-" if bound is None else f"{bound:.2f}"


def _memory(row: Row) -> str:
    change, decision = row["memory_change"], row["memory"]
    if decision is None:
        return "-"
    if change is None:
        return f"not measured: {decision['why']}"
    effect = decision["effect"]
    phase = " in evaluation" if effect["metric"] == "eval_peak_bytes" else ""
    return f"{100 * change['value']:+.0f} %{phase}, {bytes_text(effect['a'])} to {bytes_text(effect['b'])}"


def _verdict(row: Row) -> str:
    parts = [(what, row[what]["verdict"].replace("_", " ")) for what in ("time", "memory") if row[what] is not None]
    if row["reason"] is not None:
        return f"not run: {row['reason']}"
    return ", ".join(f"{what}: {verdict}" if len(parts) > 1 else verdict for what, verdict in parts)


def measured(row: Row) -> bool:
    """It has a number, or a bound that refuted it."""
    verdicts = [row[what]["verdict"] for what in ("time", "memory") if row[what] is not None]
    return bool(row["measured"]) or "refuted" in verdicts


def _missing(records: Sequence[Record]) -> str:
    """What has not been measured, and what measures it."""
    done = {(record["case"], row["name"]) for record in records for row in record["rows"] if measured(row)}
    lines = []
    for case in CASES:
        names = (*case.tried, *(make().name for make in case.more))
        missing = [ADVICE[name] for name in names if (case.name, name) not in done]
        if missing:
            script = _script(case.script, case.note)
            lines.append(f"- `python -m benchmarks.advice --cases {case.name}`, on {script}: {'; '.join(missing)}")
    return "\n".join(["## Not measured yet", "", *lines, ""]) if lines else ""


def _open(records: Sequence[Record]) -> str:
    done = {record["case"] for record in records}
    devices = {case.name: case.devices for case in GPU_CASES}
    lines = []
    for name, case in ON_A_GPU.items():
        if case not in done:
            need = "one device" if devices[case] == 1 else f"{devices[case]} devices"
            over = " over NCCL" if name == "ranks" else ""
            lines.append(f"- {ADVICE[name]}{over}: `python -m benchmarks.advice --gpu --cases {case}`, {need}")
    if not lines:
        return ""
    told = "The same experiments as tests: `pytest tests/runtime_check/test_advice.py -m gpu`."
    return "\n".join(["## Not measured: needs a GPU", "", *lines, "", told, ""])


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

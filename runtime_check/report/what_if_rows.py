"""Rows of the page's tables for `--try`, `--find-batch-size` and `--predict`, from the JSON report."""

from __future__ import annotations

from typing import Any

from runtime_check.measures import bytes_text
from runtime_check.what_if.rows import without_title

FASTER, SLOWER, SAME = "\N{BLACK UP-POINTING TRIANGLE}", "\N{BLACK DOWN-POINTING TRIANGLE}", "="
FITS = {"yes": "should fit", "no": "will not fit", "open": "too near to tell"}


def tried(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Candidates that were measured, in the report's order: most gain first."""
    return [
        {
            "title": made["title"],
            "speed": _speed(made),
            "memory": _memory(made),
            "edits": made["edits"],
            "remarks": [text for text in (made["remark"], *_doubts(made)) if text],
        }
        for made in _candidates(report)
        if made["measured"]
    ]


def not_tried(report: dict[str, Any]) -> list[str]:
    """What the others lack: a device, time, or anything to gain."""
    return [made["text"] for made in _candidates(report) if not made["measured"]]


def _candidates(report: dict[str, Any]) -> list[dict[str, Any]]:
    return list((report.get("what_if") or {}).get("candidates", ()))


def _speed(made: dict[str, Any]) -> tuple[str, str, str] | None:
    """(what it is, number, interval); slower is said as slower, not as a fraction of faster."""
    speed = made["speedup"]
    if speed is None or speed["value"] is None:
        return None
    value, (low, high) = speed["value"], speed["interval"]
    clock = ", on-CPU time" if ((made["time"] or {}).get("effect") or {}).get("clock") == "on-CPU" else ""
    if low is not None and low > 1.0:
        return f"{FASTER} faster", f"{value:.2f}\N{MULTIPLICATION SIGN}", f"[{low:.2f}, {_number(high)}]{clock}"
    if high is not None and high < 1.0:
        most = _number(1 / low if low else None)
        return f"{SLOWER} slower", f"{1 / value:.2f}\N{MULTIPLICATION SIGN}", f"[{1 / high:.2f}, {most}]{clock}"
    span = f"[{_number(low)}, {_number(high)}]{clock}"
    return f"{SAME} no difference seen", f"{value:.2f}\N{MULTIPLICATION SIGN}", span


def _number(value: float | None) -> str:
    return "\N{INFINITY}" if value is None else f"{value:.2f}"


def _memory(made: dict[str, Any]) -> tuple[str, str] | None:
    """(phase, change); the range where the runs differ."""
    change, effect = made["memory_change"], (made["memory"] or {}).get("effect") or {}
    if change is None or change["value"] is None:
        return None
    phase = "in evaluation" if effect.get("metric") == "eval_peak_bytes" else "in training"
    span = f"{bytes_text(effect['a'])} \N{RIGHTWARDS ARROW} {bytes_text(effect['b'])}" if "a" in effect else ""
    percent = f"{100 * change['value']:+.1f} %"
    return "0 %" if percent in ("+0.0 %", "-0.0 %") else percent, f"{phase}, {span}"


def _doubts(made: dict[str, Any]) -> list[str]:
    """What the sentence has, and the numbers have not."""
    why = (made["time"] or {}).get("why", "")
    found = []
    if "does not stand" in why:
        found.append("does not stand among all that were tried together")
    if "a change of nothing" in why:
        found.append("a change of nothing seemed to matter too: not to be trusted")
    if "one after the other" in why:
        found.append("the runs went one after the other: two do not fit side by side")
    if made["speedup"] is None and made["time"] is not None:
        found.append(f"time not measured: {without_title(why, made['title'])}")
    return found


def search(report: dict[str, Any]) -> dict[str, Any] | None:
    """`--find-batch-size`: the answer, and each size that was tried."""
    made = report.get("batch_size")
    if made is None:
        return None
    kind = "allocated by CUDA" if made["kind"] == "cuda_allocated" else "of live tensors"
    limit = f" of {bytes_text(made['limit_bytes'])}" if made["limit_bytes"] else ""
    answer = f"No batch size fits{limit}"
    if made["reason"] is not None:
        answer = f"Not searched: {made['reason']}"
    elif made["largest"] is not None:
        next_one = [trial for trial in made["trials"] if trial["size"] == made["smallest_that_does_not_fit"]]
        what = "fits" if all(trial.get("memory", True) for trial in next_one) else "ran"
        answer = f"The largest batch that {what}: {made['largest']} (it is {made['now']} now)"
    kept = f"{made['headroom']:.0%} of the limit{limit} kept free; peaks {kind}"
    trials = sorted(made["trials"], key=lambda trial: trial["size"])
    return {"answer": answer, "kept": kept, "ended": made["ended"], "trials": trials, "edits": made["edits"]}


def prediction(report: dict[str, Any]) -> dict[str, Any] | None:
    """`--predict`: ratios, estimates and the card."""
    made = report.get("prediction")
    if made is None:
        return None
    if made["as_it_is"] is None:
        return {"failure": made["failure"], "rows": [], "card": "", "left_out": []}
    rows = [
        {
            "title": one["title"],
            "ratio": one["ratio"],
            "estimate": f"{bytes_text(one['peak_bytes'])} [{bytes_text(one['low_bytes'])}, "
            f"{bytes_text(one['high_bytes'])}]",
            "exact": bytes_text(one["exact_bytes"]),
            "fits": FITS.get(one["fits"] or "", ""),
        }
        for one in (made["as_it_is"], *made["variants"])
    ]
    card = f"{made['gpu']} ({bytes_text(made['gpu_bytes'])})" if made["gpu_bytes"] else ""
    return {
        "failure": None,
        "rows": rows,
        "card": card,
        "error": f"{made['error_of_activations']:.0%}",
        "excluded": made["excluded"],
        "left_out": made["left_out"],
    }

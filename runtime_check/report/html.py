"""The report as one HTML page: style and plots are in it, there is no script and nothing is fetched. Made from the JSON
report, so a page can be made later of one that was kept.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from runtime_check.against import said
from runtime_check.compare.verdicts import METRICS
from runtime_check.diagnosis import phase_name
from runtime_check.measures import bytes_text, cores_text
from runtime_check.report import what_if_rows
from runtime_check.report.plots import effects, memory, steps
from runtime_check.statistics import share

PAGE = Path(__file__).with_name("page")
#: What a report may lack: one of a run that failed, or of an earlier version.
_EMPTY: dict[str, Any] = {
    "script": "", "made_at": "", "command": [], "host": {"cpu": "", "cpus": None, "gpu": None, "shim": False},
    "failure": None, "out_of_memory": None, "diagnosis": None, "baseline": {}, "clock": None, "noise": {"warnings": []},
    "comparisons": None, "against": None, "findings": [], "not_run": [], "runs": [], "loaders": [],
    "ranks": [], "collectives": [],
    "what_if": None, "batch_size": None, "prediction": None,
}  # fmt: skip
ORDER = {"confirmed": 0, "inconclusive": 1, "refuted": 2}


def require_jinja() -> None:
    """Raises ValueError where jinja2 is missing: better before a run of minutes than after it."""
    try:
        import jinja2  # noqa: F401
    except ImportError:
        raise ValueError("an HTML report needs jinja2: install trainlint[report]") from None


def to_html(report: dict[str, Any]) -> str:
    """`report`: the object of the JSON report."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    report = {**_EMPTY, **report}
    environment = Environment(
        loader=FileSystemLoader(PAGE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["bytes"] = bytes_text
    environment.filters["cores"] = cores_text
    environment.filters["short"] = lambda said: str(said).replace(_base(report), "")
    environment.filters["place"] = lambda entry: place(entry, report)
    style = Markup((PAGE / "page.css").read_text(encoding="utf-8"))
    drawn = {name: Markup(svg) for name, svg in plots(report).items()}
    return environment.get_template("page.html.j2").render(
        report=report,
        style=style,
        plots=drawn,
        tiles=tiles(report),
        findings=ordered(report.get("findings") or []),
        tried=what_if_rows.tried(report),
        not_tried=what_if_rows.not_tried(report),
        search=what_if_rows.search(report),
        prediction=what_if_rows.prediction(report),
        loaders=loaders(report),
        collectives=[call for call in report["collectives"] if call.get("per_step") is not None],
        side_effects=_side_effects(report),
        device=device(report),
        said=said(report["against"]) if report["against"] else "",
        phase_name=phase_name,
    )


def plots(report: dict[str, Any]) -> dict[str, str]:
    """Empty where there is nothing to draw."""
    series = report.get("over_time") or {}
    shares = (report.get("diagnosis") or {}).get("breakdown") or {}
    rows = compared(report)
    return {
        "shares": steps.shares(shares) if shares else "",
        "timeline": steps.timeline(series["phases"]) if series.get("phases") else "",
        "waits": steps.waits(series["timed"]) if series.get("timed") else "",
        "memory": memory.memory(series["memory"]) if series.get("memory") else "",
        "allocator": memory.allocator(series["allocator"]) if series.get("allocator") else "",
        "effects": effects.effects(rows, float(report.get("min_effect") or 0.03)) if rows else "",
    }


def compared(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Comparisons that gave numbers, the largest saving first; those without a finding are questions of their own."""
    by_id = {finding["id"]: finding for finding in report.get("findings") or [] if finding.get("id")}
    rows = []
    for made in (report.get("comparisons") or {}).get("made", ()):
        effect = made.get("effect") or {}
        if effect.get("saving") is None or effect.get("interval") is None or effect.get("a") is None:
            continue
        finding = by_id.get(made.get("finding"))
        where = f"{finding['code']} {place(finding, report)}: " if finding is not None else ""
        title = f"{where}{effect['change']['title']}"
        what = f"{METRICS.get(effect['metric'], effect['metric'])}, {_made_by(effect)}"
        rows.append({"title": title, "what": what, "verdict": made["verdict"], "effect": effect})
    return sorted(rows, key=lambda row: -row["effect"]["saving"])


def _made_by(effect: dict[str, Any]) -> str:
    unit = {"toggle": "processes", "pairs": "pairs", "memory": "runs of each"}.get(effect["design"], "replicates")
    return f"{effect['replicates']} {unit}" + (", on-CPU time" if effect.get("clock") == "on-CPU" else "")


def ordered(findings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Confirmed ones first, and of them those that cost most."""

    def key(finding: dict[str, Any]) -> tuple[int, float]:
        saving = (finding.get("effect") or {}).get("saving")
        return ORDER.get(finding["verdict"], 3), -(saving if saving is not None else -1.0)

    return sorted(findings, key=key)


def tiles(report: dict[str, Any]) -> list[tuple[str, str, str]]:
    """What it comes to: name, number, and what stands beside it."""
    baseline = report.get("baseline") or {}
    step, peak = baseline.get("step_ms"), baseline.get("peak_bytes") or {}
    found: list[tuple[str, str, str]] = []
    if step:
        found.append(
            ("step", f"{step['median']:.2f} ms", f"p10 {step['p10']:.2f}, p90 {step['p90']:.2f}, n={step['n']}")
        )
    if baseline.get("samples_per_s"):
        tokens, batch = baseline.get("tokens_per_s"), baseline.get("batch_size")
        beside = f"samples; {tokens:,.0f} tokens/s" if tokens else "samples"
        if batch and not tokens:
            beside += f"; batch size {batch:.0f}"
        if len(report.get("ranks") or ()) > 1:
            beside += "; rank 0"
        found.append(("throughput", f"{baseline['samples_per_s']:,.0f}/s", beside))
    if baseline.get("loader_wait_share") is not None:
        found.append(("waiting for data", f"{baseline['loader_wait_share']:.0%}", "of the step"))
    for phase, name in (("train", "peak in training"), ("eval", "peak in evaluation")):
        if peak.get(phase):
            found.append((name, bytes_text(peak[phase]), "live tensors"))
    if baseline.get("syncs_per_step") is not None:
        cuda = (report.get("host") or {}).get("gpu")
        found.append(
            ("synchronisations", f"{baseline['syncs_per_step']:.2f}", "per step" if cuda else "per step, on a GPU")
        )
    return found


def loaders(report: dict[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for loader in report.get("loaders") or []:
        later = loader["batches"] - len(loader["start_ns"])
        starts = sorted(loader["start_ns"])
        rows.append(
            {
                "role": {"train": "training", "eval": "evaluation"}.get(loader["role"], "unused"),
                "file": loader["site"][0],
                "line": loader["site"][1],
                "workers": loader["workers"],
                "batch_size": loader["batch_size"],
                "batches": loader["batches"],
                "wait_ms": share(loader["wait_ns"], later) / 1e6 if later > 0 else None,
                "start_ms": starts[len(starts) // 2] / 1e6 if starts else None,
            }
        )
    return rows


def device(report: dict[str, Any]) -> str:
    host = report.get("host") or {}
    threads = host.get("threads")
    counted = f", {threads} {'thread' if threads == 1 else 'threads'}" if threads else ""
    where = host.get("gpu") or f"CPU{counted}"
    return f"torch {host.get('torch')} on {where}" if host.get("torch") else ""


def place(entry: dict[str, Any], report: dict[str, Any]) -> str:
    """`train.py:12`, below the folder where the script was run."""
    return f"{str(entry['file']).removeprefix(_base(report))}:{entry['line']}"


def _base(report: dict[str, Any]) -> str:
    cwd = str(report.get("cwd") or "").rstrip("/")
    return f"{cwd}/" if cwd else "\0"


def _side_effects(report: dict[str, Any]) -> list[str]:
    effects_ = report.get("side_effects") or {}
    named = (
        (
            "made in the project and taken away again",
            [f"{w['path']} ({bytes_text(w['bytes'])})" for w in effects_.get("writes", ())],
        ),
        ("written to a copy, originals untouched", effects_.get("redirected", [])),
        ("deleted or renamed by the script, still there", [k["path"] for k in effects_.get("kept", ())]),
        ("refused", [f"{r['operation']} {r['path']}" for r in effects_.get("refused", ())]),
        ("made outside the project and left there", effects_.get("elsewhere", [])),
        ("other programs that the script ran, not guarded", effects_.get("commands", [])),
    )
    return [f"{name}: {', '.join(map(str, what))}" for name, what in named if what]

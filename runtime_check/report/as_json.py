"""The report for programs. `schema` changes its number when a reader would have to change."""

from __future__ import annotations

import json
from typing import Any

from runtime_check.against import SCHEMA
from runtime_check.compare.answers import effect_record
from runtime_check.diagnosis import Hotspot
from runtime_check.evidence import Answer, Verdict
from runtime_check.findings import Finding
from runtime_check.measures import Timing, steps_done, steps_seen, timing
from runtime_check.report.series import over_time
from runtime_check.report.side_effects import gather
from runtime_check.verify import Report
from runtime_check.what_if import batch_size, predict
from runtime_check.what_if.rows import to_object as what_if_object


def to_json(report: Report) -> str:
    return json.dumps(to_object(report), indent=2) + "\n"


def to_object(report: Report) -> dict[str, Any]:
    evidence = report.evidence
    effects = gather(report.outcomes)
    return {
        "schema": SCHEMA,
        "version": _version(),
        "made_at": report.made_at,
        "exit_code": report.exit_code,
        "script": report.options.name(),
        "command": report.options.command_line(),
        "cwd": str(report.options.cwd.absolute()),
        "min_effect": evidence.min_effect,
        "files": report.files,
        "failure": report.failure,
        "out_of_memory": list(report.out_of_memory) or None,
        "host": {**report.host, **_torch(report), "shim": report.shim},
        "clock": _clock(report),
        "baseline": _baseline(report),
        "ranks": _ranks(report),
        "loaders": _loaders(report),
        "diagnosis": _diagnosis(report),
        "over_time": over_time(evidence),
        "utilisation": vars(report.utilisation) if report.utilisation is not None else None,
        "behaviours": (evidence.first(evidence.observed) or {}).get("behaviours"),
        "collectives": _collectives(report),
        "noise": {"warnings": list(report.warnings), **_noise(report)},
        "comparisons": _comparisons(report),
        "against": report.against.as_object() if report.against is not None else None,
        "batch_size": batch_size.to_object(report.batch_search) if report.batch_search is not None else None,
        "prediction": predict.to_object(report.prediction) if report.prediction is not None else None,
        "what_if": what_if_object(report.what_if) if report.what_if is not None else None,
        "findings": [_finding(f, answer) for f, answer in report.answers if answer.verdict is not Verdict.NOT_RUN],
        "not_run": [
            {
                "id": f.fingerprint or None,
                "code": f.code,
                "file": f.path,
                "line": f.row,
                "message": f.message,
                "reason": answer.why,
            }
            for f, answer in report.answers
            if answer.verdict is Verdict.NOT_RUN
        ],
        "side_effects": {
            "writes": [{"path": path, "bytes": size} for path, size in effects.moved],
            "redirected": list(effects.redirected),
            "redirected_saves": [{"path": save["path"], "bytes": save["bytes"]} for save in effects.saves],
            "refused": [
                {"path": path, "operation": operation, "script_saw": saw}
                for entries, saw in ((effects.kept, "done"), (effects.refused, "error"))
                for path, operation in entries
            ],
            "elsewhere": list(effects.elsewhere),
            "commands": list(effects.commands),
        },
        "runs": [
            {
                "kind": outcome.run.name,
                "wall_s": round(outcome.wall_s, 3),
                "exit": (outcome.results[0]["why"] if outcome.results else outcome.why),
                "exit_code": outcome.exit_code,
                "ranks": [result["rank"] for result in outcome.results],
                "dir": outcome.folder,
            }
            for outcome in report.outcomes
        ],
    }


def _torch(report: Report) -> dict[str, Any]:
    first = next((result for outcome in report.outcomes for result in outcome.results), None)
    seen = next((torch for outcome in report.outcomes for torch in outcome.torches), None)
    return {
        "gpu": first["device"] if first else None,
        "torch": first["torch"] if first else (seen["version"] if seen else None),
        "cuda": seen["cuda"] if seen else None,
        "threads": first["threads"] if first else None,
    }


def _clock(report: Report) -> dict[str, Any] | None:
    evidence = report.evidence
    result = evidence.first(evidence.timed) or evidence.first(evidence.observed)
    if result is None:
        return None
    measured = timing(result)
    anchor = result["anchor"]
    return {
        "unit": result["unit"],
        "anchor": result["optimizers"][anchor]["type"] if anchor is not None else None,
        "steps": steps_seen(result),
        "steps_made": steps_done(result),
        "warmup": result["warmup"],
        "optimizers": result["optimizers"],
        "skipped_by_scaler": result["skipped_by_scaler"],
        "excluded": measured.excluded if measured is not None else {},
        "ended": result["why"],
    }


def _baseline(report: Report) -> dict[str, Any]:
    measured, diagnosis = report.evidence.timing, report.diagnosis
    baseline: dict[str, Any] = {"step_ms": None, "samples_per_s": None, "tokens_per_s": None, "batch_size": None}
    if measured is not None:
        baseline.update(_times(measured))
        baseline["processes"] = _processes(report)
        baseline["loader_wait_share"] = round(measured.wait_share, 4)
    if diagnosis is not None:
        steps = report.evidence.observed_steps
        baseline["peak_bytes"] = {**diagnosis.peak, "kind": "live_tensor_bytes"}
        baseline["peak_by_category"] = diagnosis.peak_by_category
        baseline["growth_bytes_per_step"] = diagnosis.growth_per_step
        baseline["syncs_per_step"] = round(sum(line.amount for line in diagnosis.sync_lines), 3) if steps else None
        result = report.evidence.first(report.evidence.memory)
        if result and result.get("cuda_memory"):
            baseline["cuda_memory"] = {key: value for key, value in result["cuda_memory"].items() if key != "by_line"}
    return baseline


def _times(measured: Timing) -> dict[str, Any]:
    return {
        "step_ms": {
            "median": round(measured.median_ms, 4),
            "p10": round(measured.p10_ms, 4),
            "p90": round(measured.p90_ms, 4),
            "n": len(measured.steps_ms),
        },
        "jitter": round(measured.jitter, 4),
        "cpu_cores": round(measured.cpu_share, 3),
        "samples_per_s": _rounded(measured.samples_per_s),
        "tokens_per_s": _rounded(measured.tokens_per_s),
        "batch_size": _rounded(measured.batch_size),
    }


def _processes(report: Report) -> list[dict[str, Any]]:
    """One entry a process of the timing pass: the replicates that `--baseline` compares."""
    timed = (report.evidence.timed, *report.evidence.timed_again)
    measured = [timing(result) for outcome in timed if outcome is not None for result in outcome.results[:1]]
    batch = _rounded(report.evidence.timing.batch_size) if report.evidence.timing is not None else None
    return [
        {"step_ms": round(one.median_ms, 4), "steps": len(one.steps_ms), "batch_size": batch}
        for one in measured
        if one is not None
    ]


def _version() -> str | None:
    """Of trainlint, where it is installed as a package."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("trainlint")
    except PackageNotFoundError:
        return None


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


def _ranks(report: Report) -> list[dict[str, Any]]:
    rows = []
    for result in report.evidence.ranks(report.evidence.timed):
        measured = timing(result)
        if measured is not None:
            rows.append(
                {"rank": result["rank"], **_times(measured), "to_backward_ms": _rounded(measured.to_backward_ms)}
            )
    return rows


def _collectives(report: Report) -> list[dict[str, Any]]:
    """Of rank 0, by line."""
    evidence = report.evidence
    calls = (evidence.first(evidence.observed) or {}).get("collectives", ())
    steps = evidence.collective_steps
    return [{**call, "per_step": round(call["calls"] / steps, 3) if steps else None} for call in calls]


def _loaders(report: Report) -> list[dict[str, Any]]:
    """As the timing pass saw them; of the breakdown pass those of an evaluation, which timing does not reach."""
    evidence = report.evidence
    timed = list((evidence.first(evidence.timed) or {}).get("loaders", ()))
    seen = {(*loader["site"][:2], loader["role"]) for loader in timed}
    others = (evidence.first(evidence.broken_down) or {}).get("loaders", ())
    return [*timed, *(other for other in others if (*other["site"][:2], other["role"]) not in seen)]


def _diagnosis(report: Report) -> dict[str, Any] | None:
    diagnosis = report.diagnosis
    if diagnosis is None:
        return None
    return {
        "bound": diagnosis.bound,
        "because": diagnosis.because,
        "next": diagnosis.next_step,
        "breakdown": {name: round(value, 4) for name, value in diagnosis.breakdown.items()},
        "memory_lines": [_hotspot(line, "bytes") for line in diagnosis.memory_lines],
        "sync_lines": [_hotspot(line, "per_step") for line in diagnosis.sync_lines],
        "notes": list(diagnosis.notes),
    }


def _hotspot(line: Hotspot, unit: str) -> dict[str, Any]:
    return {"file": line.file, "line": line.line, unit: line.amount, "what": line.what}


def _finding(finding: Finding, answer: Answer) -> dict[str, Any]:
    return {
        "id": finding.fingerprint or None,
        "code": finding.code,
        "file": finding.path,
        "line": finding.row,
        "message": finding.message,
        "claim": {"kind": finding.claim, "metric": answer.metric},
        "verdict": answer.verdict.value,
        "why": answer.why,
        "evidence": answer.evidence,
        "effect": answer.effect,
    }


def _noise(report: Report) -> dict[str, Any]:
    made = report.comparisons
    noise = made.noise if made is not None else None
    if noise is None:
        return {}
    return {
        "load": noise.load,
        "cpus": noise.cpus,
        "null_half_width": noise.null_half_width,
        "null_saving": noise.null_saving,
        "clock": noise.clock,
        "threads": noise.threads,
        "biased": noise.biased,
    }


def _comparisons(report: Report) -> dict[str, Any] | None:
    """Every comparison that was made or left out, with or without a finding."""
    made = report.comparisons
    if made is None:
        return None
    return {
        "seconds": round(made.seconds, 1),
        "budget_s": made.budget_s,
        "made": [
            {
                "finding": d.proposal.finding.fingerprint or None if d.proposal.finding is not None else None,
                "verdict": d.verdict.value,
                "why": d.why,
                "effect": effect_record(d),
            }
            for d in made.decisions
        ],
    }

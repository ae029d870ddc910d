"""One case: `verify` runs it, and its rows are kept as lines of JSON."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from benchmarks.advice.cases import FIXTURES, Case
from benchmarks.machine import machine
from runtime_check.machine import usable_cpus
from runtime_check.options import Options
from runtime_check.report.as_json import to_object
from runtime_check.verify import verify

Record = dict[str, Any]


def read(results: Path) -> list[Record]:
    if not results.exists():
        return []
    return [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines() if line]


def run(case: Case, python: str) -> Record:
    """Everything that the page says of the case, as one JSON object."""
    with tempfile.TemporaryDirectory(prefix="advice-") as folder:
        options = Options(
            script=str(FIXTURES / case.script),
            arguments=case.arguments,
            python=python,
            launcher=case.launcher,
            threads=1,
            limit_eval_batches=case.limit_eval_batches,
            steps=12,
            warmup=4,
            deadline_s=900.0,
            timeout_s=2.0 * case.budget_s + 1200.0,
            budget_s=case.budget_s,
            candidates=case.tried,
            cwd=Path(folder),
        )
        begun, load = time.monotonic(), os.getloadavg()[0]
        report = verify(options, show=_show, more=[make() for make in case.more])
        seconds = time.monotonic() - begun
    made = to_object(report)
    noise = made.get("noise") or {}
    return {
        "case": case.name,
        "script": case.script,
        "arguments": list(case.arguments),
        "launcher": case.launcher,
        "note": case.note,
        "date": datetime.now(timezone.utc).date().isoformat(),
        "machine": machine(),
        "cpus": usable_cpus(),
        "torch": (made.get("host") or {}).get("torch"),
        "load": [round(load, 1), round(os.getloadavg()[0], 1)],
        "seconds": round(seconds),
        "failure": report.failure,
        "step_ms": (made.get("baseline") or {}).get("step_ms"),
        "loader_wait_share": (made.get("baseline") or {}).get("loader_wait_share"),
        "peak_bytes": (made.get("baseline") or {}).get("peak_bytes"),
        "noise": noise,
        "min_effect": made.get("min_effect"),
        "rows": (made.get("what_if") or {}).get("candidates", []),
    }


def keep(record: Record, results: Path) -> None:
    """A case that is run again takes the place of what was there."""
    others = [other for other in read(results) if other["case"] != record["case"]]
    results.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(one, sort_keys=True) + "\n" for one in (*others, record))
    results.write_text(text.replace(str(FIXTURES) + os.sep, ""), encoding="utf-8")


def _show(what: str, total: int, number: int, done: int, of: int) -> None:
    sys.stderr.write(f"\r{what} {done}/{of}\033[K")

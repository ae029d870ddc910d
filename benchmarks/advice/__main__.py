"""`python -m benchmarks.advice`: measure the usual tuning advice on the fixtures, and write docs/verify-advice.md.

Each case is one run of `verify` and one line of the results file; what is there already is not run again, so that a run
may be stopped and taken up. `--page` writes the page from what is there.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.advice.cases import CASES, GPU_CASES
from benchmarks.advice.page import measured, page
from benchmarks.advice.running import keep, read, run

ROOT = Path(__file__).resolve().parents[2]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.advice", description=__doc__)
    parser.add_argument("--cases", help=f"run these anew: {', '.join(case.name for case in CASES)}")
    parser.add_argument("--python", default=sys.executable, help="interpreter that has torch")
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "advice" / "results.jsonl")
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "verify-advice.md")
    parser.add_argument("--gpu", action="store_true", help="the cases that need CUDA, in place of the others")
    parser.add_argument("--page", action="store_true", help="run nothing, write the page")
    given = parser.parse_args(arguments)
    if not given.page:
        done = {record["case"] for record in read(given.results) if any(map(measured, record["rows"]))}
        cases = GPU_CASES if given.gpu else CASES
        wanted = given.cases.split(",") if given.cases else [case.name for case in cases if case.name not in done]
        for case in (case for case in cases if case.name in wanted):
            sys.stderr.write(f"{case.name}\n")
            keep(run(case, given.python), given.results)
            sys.stderr.write("\n")
    given.output.write_text(page(read(given.results)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

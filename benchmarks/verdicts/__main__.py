"""`python -m benchmarks.verdicts --trials 40`: run experiments with a known truth, and write docs/verify-verdicts.md.

Every trial is a whole experiment of five processes or pairs. Results are appended to a file of JSON lines, one a trial,
so that a run may be stopped and taken up again; `--page` writes the page from what is there.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.verdicts.page import page
from benchmarks.verdicts.trials import DESIGNS, Bench, read

ROOT = Path(__file__).resolve().parents[2]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verdicts", description=__doc__)
    parser.add_argument("--designs", default=",".join(DESIGNS), help="of toggle, pairs, memory")
    parser.add_argument("--trials", type=int, default=40, help="null experiments of each design (default: 40)")
    parser.add_argument("--planted", type=int, default=10, help="experiments of each planted effect, pairs and memory")
    parser.add_argument("--python", default=sys.executable, help="interpreter that has torch")
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "verdicts" / "results.jsonl")
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "verify-verdicts.md")
    parser.add_argument("--rounds", type=int, default=100, help="ABBA rounds of each slot and process (toggle)")
    parser.add_argument("--page", action="store_true", help="run nothing, write the page")
    given = parser.parse_args(arguments)
    if not given.page:
        bench = Bench(given.python, given.results, given.rounds)
        for design in given.designs.split(","):
            bench.run(design, given.trials, given.planted)
    given.output.write_text(page(read(given.results)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

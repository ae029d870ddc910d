"""One trial is one experiment as `verify` makes it, on a script in which the effect is planted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from runtime_check import machine
from runtime_check.compare.memory import Memory, measure, memory_pass
from runtime_check.compare.pairs import Pairs
from runtime_check.compare.records import Change, Design, Proposal, Samples
from runtime_check.compare.sizes import Pace, Size, pair_size
from runtime_check.compare.toggle import Toggles
from runtime_check.compare.verdicts import FEWEST
from runtime_check.launch import Session
from runtime_check.options import Options

SCRIPT = Path(__file__).resolve().parents[2] / "fixtures" / "verify" / "planted.py"
DESIGNS = ("toggle", "pairs", "memory")
SHARES = (0.05, 0.10, 0.20)  # of the step as it is, planted on three lines
MEMORY_SHARE = 0.10
LINES = ("first", "second", "third")
CLOCKS = ("wall", "on-CPU")

Record = dict[str, Any]


def read(results: Path) -> list[Record]:
    if not results.exists():
        return []
    return [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines() if line]


class Bench:
    """Runs what is missing in `results`."""

    def __init__(self, python: str, results: Path, rounds: int) -> None:
        self.python = python
        self.results = results
        self.rounds = rounds

    def run(self, design: str, trials: int, planted: int) -> None:
        if design == "toggle":
            self._toggle(trials)
        elif design == "pairs":
            self._pairs(trials, planted)
        else:
            self._memory(trials, planted)

    # -- toggle: nothing and the three planted shares are four findings that share their processes

    def _toggle(self, trials: int) -> None:
        step_ms, product_ms = self.calibration()
        counts = products(SHARES, step_ms, product_ms)
        shares = (0.0, *planted_shares(counts, step_ms, product_ms))
        changes = [("torch.is_grad_enabled", "nothing"), *(("torch.bmm", line) for line in LINES)]
        proposals = [
            Proposal(
                Change("skip_call", f"without {line}", str(SCRIPT), rows_of(line), {"call": call}),
                Design.TOGGLE,
                "step_time",
            )
            for call, line in changes
        ]
        for trial in range(self._done("toggle", 0.0), trials):
            with self._session("--products", *map(str, counts)) as session:
                begun = time.monotonic()
                size = Size(1, self.rounds, 300.0, len(proposals) + 1)
                toggles = Toggles(session, proposals, size, "wall")
                for _ in range(FEWEST):
                    toggles.replicate()
                seconds = time.monotonic() - begun
                for clock in CLOCKS:
                    toggles.clock = clock
                    for share, nominal, samples in zip(shares, (0.0, *SHARES), toggles.samples(), strict=True):
                        self._write("toggle", trial, nominal, share, clock, samples, seconds)

    # -- pairs: the script against itself with other text

    def _pairs(self, trials: int, planted: int) -> None:
        step_ms, product_ms = self.calibration()
        for nominal, wanted in ((0.0, trials), *((share, planted) for share in SHARES)):
            counts = products((nominal,), step_ms, product_ms)[0] if nominal else 0
            share = planted_shares((counts,), step_ms, product_ms)[0]
            change = source_change("nothing" if not nominal else "first")
            proposal = Proposal(change, Design.PAIRS, "step_time")
            pace = Pace((step_ms + counts * product_ms) / 1e3, 5.0, 5)
            for trial in range(self._done("pairs", nominal), wanted):
                with self._session("--products", str(counts), "0", "0") as session:
                    begun = time.monotonic()
                    pairs = Pairs(session, proposal, pair_size(pace, 12.0), "wall")
                    for _ in range(FEWEST):
                        pairs.replicate()
                    seconds = time.monotonic() - begun
                    for clock in CLOCKS:
                        pairs.clock = clock
                        self._write("pairs", trial, nominal, share, clock, pairs.samples()[0], seconds)

    # -- memory: counted

    def _memory(self, trials: int, planted: int) -> None:
        with self._session() as session:
            peak = measure(session.launch(memory_pass(None)), "train_peak_bytes")
        if peak is None:
            raise RuntimeError("the script made no step")
        elements = round(peak * MEMORY_SHARE / (1 - MEMORY_SHARE) / 4)
        for nominal, wanted in ((0.0, trials), (MEMORY_SHARE, planted)):
            proposal = Proposal(source_change("buffer" if nominal else "nothing"), Design.MEMORY, "train_peak_bytes")
            for trial in range(self._done("memory", nominal), wanted):
                with self._session("--buffer", str(elements if nominal else 0)) as session:
                    begun = time.monotonic()
                    counted = Memory(session, proposal)
                    while not counted.complete:
                        counted.replicate()
                    a = [measure(outcome, "train_peak_bytes") for outcome in counted.a]
                    b = [measure(outcome, "train_peak_bytes") for outcome in counted.b]
                    record = {"a_bytes": a, "b_bytes": b, "failure": counted.failure()}
                    self._append("memory", trial, nominal, nominal, "counted", time.monotonic() - begun, **record)

    def calibration(self) -> tuple[float, float]:
        """Milliseconds on the CPU of a step without anything planted, and of one product."""
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [self.python, str(SCRIPT), "--calibrate"]
        found = []
        for _ in range(3):
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            _, step, product = done.stdout.split()
            found.append((float(step), float(product)))
        return sorted(step for step, _ in found)[1], sorted(product for _, product in found)[1]

    @contextmanager
    def _session(self, *arguments: str) -> Iterator[Session]:
        with tempfile.TemporaryDirectory(prefix="verdicts-") as folder:
            options = Options(
                script=str(SCRIPT),
                arguments=arguments,
                python=self.python,
                threads=1,
                steps=10,
                warmup=5,
                timeout_s=3600.0,
                cwd=Path(folder),
            )
            session = Session(options)
            try:
                yield session
            finally:
                session.close()

    def _done(self, design: str, nominal: float) -> int:
        done = [r["trial"] for r in read(self.results) if r["design"] == design and r["planted"] == nominal]
        return max(done, default=-1) + 1

    def _write(
        self, design: str, trial: int, nominal: float, share: float, clock: str, samples: Samples, seconds: float
    ) -> None:
        self._append(
            design,
            trial,
            nominal,
            share,
            clock,
            seconds,
            log_ratios=list(samples.log_ratios),
            a_ms=samples.a,
            b_ms=samples.b,
            rounds=samples.rounds,
            failure=samples.failure,
        )

    def _append(
        self, design: str, trial: int, nominal: float, share: float, clock: str, seconds: float, **record: Any
    ) -> None:
        entry = {
            "design": design,
            "trial": trial,
            "planted": nominal,
            "truth": share,
            "clock": clock,
            "seconds": round(seconds, 1),
            "load": round(os.getloadavg()[0], 2),
            "cpus": machine.usable_cpus(),
            **record,
        }
        self.results.parent.mkdir(parents=True, exist_ok=True)
        with self.results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
        sys.stderr.write(f"{design} trial {trial} planted {nominal:.0%} {clock}: {seconds:.0f} s\n")


def products(shares: tuple[float, ...], step_ms: float, product_ms: float) -> list[int]:
    """How many products make each of `shares` of the whole step, all of them planted together."""
    whole = step_ms / (1 - sum(shares))
    return [max(1, round(share * whole / product_ms)) for share in shares]


def planted_shares(counts: tuple[int, ...] | list[int], step_ms: float, product_ms: float) -> list[float]:
    whole = step_ms + sum(counts) * product_ms
    return [count * product_ms / whole for count in counts]


def rows_of(line: str) -> tuple[int, int]:
    """The row of the script that is marked so."""
    mark = f"# planted: {line}"
    lines = SCRIPT.read_text(encoding="utf-8").splitlines()
    row = next(n for n, text in enumerate(lines, 1) if text.endswith(mark))
    return row, row


def source_change(line: str) -> Change:
    """The script with the marked line left out, served by the overlay."""
    row, _ = rows_of(line)
    lines = SCRIPT.read_text(encoding="utf-8").splitlines(keepends=True)
    indent = lines[row - 1][: len(lines[row - 1]) - len(lines[row - 1].lstrip())]
    replacement = "buffer = None" if line == "buffer" else "pass"
    lines[row - 1] = f"{indent}{replacement}\n"
    return Change("source", f"without {line}", str(SCRIPT), (row, row), overlay={str(SCRIPT): "".join(lines)})

"""Arguments, exit codes, and which report goes where. `trainlint verify` hands its own arguments to the same `run`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from runtime_check.against import against, read_report
from runtime_check.compare.verdicts import FEWEST
from runtime_check.findings import Finding, FindingsError, read_findings, selected
from runtime_check.options import UNITS, WRITES, Options
from runtime_check.report.as_json import to_object
from runtime_check.report.html import require_jinja
from runtime_check.report.writing import Wanted, write, write_stored
from runtime_check.verify import EXIT_CONFIRMED, EXIT_RAN, EXIT_USAGE, Report, verify
from runtime_check.what_if.candidates import names_of
from runtime_check.what_if.gpus import memory_of, size_bytes
from runtime_check.what_if.records import NAMES

FORMATS = ("text", "json", "markdown", "html")
FAIL_ON = ("confirmed", "regression")
INTERRUPTED = 130


#: Gives the JSON of a static check of the script, where there is a linter to make one.
Check = Callable[[Options], str]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        hint = ""
        if message.startswith("unrecognized arguments"):
            hint = f"; arguments of the script go after `--`: {self.prog} train.py -- --data /data"
        self.exit(EXIT_USAGE, f"{self.prog}: {message}{hint}\n")


def parser(program: str) -> argparse.ArgumentParser:
    made = _Parser(
        prog=program,
        allow_abbrev=False,  # `--step` may be an option of the script that was put on the wrong side of `--`
        description="Execute a training script for a few steps, several times, and say what holds it back.",
        epilog="This runs the script's code. Arguments of the script go after `--`.",
    )
    made.add_argument("script", nargs="?", help="the training script")
    made.add_argument("--cmd", help="a whole command line, in place of a script")
    made.add_argument("--python", default=sys.executable, help="interpreter of the environment that has torch")
    made.add_argument("--launcher", help='e.g. "torchrun --nproc_per_node=2"')
    made.add_argument(
        "--bootstrap", action="store_true", help="start the script through a runner, where PYTHONPATH is ignored"
    )
    made.add_argument("--steps", type=int, default=20, help="training steps to count (default: 20)")
    made.add_argument("--warmup", type=int, default=5, help="steps before them (default: 5)")
    made.add_argument("--unit", choices=UNITS, default="auto", help="what a step is")
    made.add_argument(
        "--timeout", type=float, help="seconds for everything (default: 600 and the budget, 900 at least)"
    )
    made.add_argument("--deadline", type=float, default=300, help="seconds for one launch (default: 300)")
    made.add_argument(
        "--limit-train-batches",
        type=int,
        help="end training epochs after so many batches, in the passes that reach an evaluation (timing keeps them whole)",
    )
    made.add_argument(
        "--limit-eval-batches", type=int, default=8, help="end evaluations after so many batches (default: 8)"
    )
    made.add_argument(
        "--no-eval", action="store_true", help="go on to no evaluation; one within the steps ends after a batch"
    )
    made.add_argument("--device", default="auto", help="auto, cpu, or cuda:N")
    made.add_argument("--no-shim", action="store_true", help="without a GPU, do not stand in for torch.cuda")
    made.add_argument("--threads", type=int, help="OMP_NUM_THREADS of the script")
    made.add_argument("--seed", default="0", help="a number, or none (default: 0)")
    made.add_argument(
        "--writes", choices=WRITES, default="redirect", help="writes to what was there: to copies, refused, or done"
    )
    made.add_argument("--offline", action="store_true", help="switch the Hub's clients offline")
    made.add_argument("--env", action="append", default=[], metavar="K=V", help="environment variable of the script")
    made.add_argument("--findings", help="JSON of `trainlint check`, or - for standard input")
    made.add_argument("--only", action="append", default=[], help="codes or file:line of the findings to answer")
    made.add_argument(
        "--min-effect", type=float, help="least effect that counts (default: 0.03 on a CPU, 0.02 on a GPU)"
    )
    made.add_argument(
        "--budget",
        help="time for comparing with and without a change: 90s, 5m; 0 compares nothing (default: 5m, 15m with --try)",
    )
    made.add_argument(
        "--try",
        dest="candidates",
        metavar="NAMES",
        help=f"what-if, without findings: measure some of {', '.join(NAMES)}, or all, on this script",
    )
    made.add_argument("--find-batch-size", action="store_true", help="search the largest batch that fits, by running")
    made.add_argument("--memory-limit", metavar="SIZE", help="bytes that it may take (4GiB); needed on a CPU")
    made.add_argument("--headroom", type=float, default=0.1, help="share of the limit to keep free (default: 0.1)")
    made.add_argument(
        "--predict", action="store_true", help="estimate memory on fake tensors, without a GPU; runs nothing else"
    )
    made.add_argument("--gpu", metavar="CARD", help="with --predict: would it fit a100-40g, t4, 24GiB ...")
    made.add_argument(
        "--keep-run-dir", action="store_true", help="keep the folder with results and what was redirected"
    )
    made.add_argument("--output-format", choices=FORMATS, default="text")
    made.add_argument("--output-file", help="write the report there")
    made.add_argument("--html", metavar="FILE", help="besides, write the report there as one HTML page with plots")
    made.add_argument("--from", dest="source", metavar="REPORT", help="run nothing: take a report kept as JSON")
    made.add_argument("--baseline", metavar="REPORT", help="an earlier report (JSON): exit 1 on a regression")
    made.add_argument("--repeat", type=int, help="processes of the timing pass (default: 1; with --baseline: 5)")
    made.add_argument(
        "--fail-on",
        choices=FAIL_ON,
        action="append",
        default=[],
        help="exit 1 if a finding is confirmed, or on a regression (the default with --baseline)",
    )
    return made


def split_arguments(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Ours, and the script's after `--`."""
    if "--" not in arguments:
        return arguments, []
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


def main(arguments: list[str], program: str = "python -m runtime_check", check: Check | None = None) -> int:
    """Returns the exit code. `check` finds the findings when none are given."""
    ours, scripts = split_arguments(arguments)
    try:
        given = parser(program).parse_args(ours)
    except SystemExit as end:
        return int(end.code or 0)
    if given.source is not None:
        return _again(given)
    if (given.script is None) == (given.cmd is None):
        return _usage("give a script, or a whole command with --cmd")
    if given.cmd is not None and scripts:
        return _usage("with --cmd the script's arguments belong into the command")
    try:
        options = _options(given, scripts)
        if _problem(options) is not None:
            return _usage(str(_problem(options)))
        wanted = _wanted(given)
        asks = options.candidates or options.find_batch_size or options.predict
        findings = _findings(given.findings, options, None if asks else check)
    except (ValueError, OSError) as error:
        return _usage(str(error))
    except KeyboardInterrupt:
        sys.stderr.write("verify: interrupted; nothing was run.\n")
        return INTERRUPTED
    for word in options.only:  # no error: in CI the finding may be mended by now
        if not asks and not selected(findings, (word,)):
            there = ", ".join(sorted({finding.code for finding in findings})) or "none"
            sys.stderr.write(f"verify: --only {word} is no finding of this script; there are: {there}.\n")
    return run(options, findings, wanted)


def run(options: Options, findings: list[Finding], wanted: Wanted) -> int:
    """Verify and report. Returns the exit code."""
    from runtime_check.report import terminal

    sys.stderr.write(
        f"verify executes {options.name()}: its code runs on this machine, several times, a few steps each.\n"
    )
    try:
        with terminal.progress() as show:
            report = verify(options, selected(findings, options.only), show, "confirmed" in wanted.fail_on)
    except KeyboardInterrupt:
        sys.stderr.write("verify: interrupted; nothing of the run is left.\n")
        return INTERRUPTED
    report = _compared(report, wanted)
    write(report, wanted)
    return report.exit_code


def _compared(report: Report, wanted: Wanted) -> Report:
    """With what has become of it since the baseline."""
    if wanted.baseline is None or report.failure is not None:
        return report
    found = against(wanted.baseline, to_object(report), wanted.baseline_name)
    failed = report.exit_code == EXIT_RAN and found.regressed and "regression" in wanted.fail_on
    return replace(report, against=found, exit_code=EXIT_CONFIRMED if failed else report.exit_code)


def _wanted(given: argparse.Namespace) -> Wanted:
    """Raises ValueError for what could not be written or read: before anything is run."""
    if given.html is not None or given.output_format == "html":
        require_jinja()
    if given.fail_on and "regression" in given.fail_on and given.baseline is None:
        raise ValueError("--fail-on regression needs --baseline, a report to compare with")
    _require_places(given)
    baseline = None
    if given.baseline is not None:
        baseline = _stored(given.baseline, "--baseline")
    return Wanted(
        output_format=given.output_format,
        output_file=given.output_file,
        html=given.html,
        baseline=baseline,
        baseline_name=given.baseline or "",
        fail_on=tuple(given.fail_on) or (("regression",) if baseline is not None else ()),
    )


def _require_places(given: argparse.Namespace) -> None:
    """A report that cannot be written is said before minutes are spent on it; source text is never written over."""
    places = [(option, path) for option, path in (("--html", given.html), ("--output-file", given.output_file)) if path]
    for option, path in places:
        place = Path(path)
        if place.is_dir():
            raise ValueError(f"{option} {path}: this is a folder, name a file in it")
        if not place.parent.is_dir():
            raise ValueError(f"{option} {path}: there is no folder {place.parent}")
        if not os.access(place if place.exists() else place.parent, os.W_OK):
            raise ValueError(f"{option} {path}: no permission to write there")
        if place.exists() and place.suffix in (".py", ".pyw", ".ipynb"):
            raise ValueError(f"{option} {path}: this is a program and would be written over; name another file")
    if len({os.path.realpath(path) for _, path in places}) < len(places):
        raise ValueError("--html and --output-file name the same file: one report would be written over the other")


def _stored(path: str, option: str) -> dict[str, Any]:
    try:
        return read_report(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{option} {path}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise ValueError(f"{option} {path}: {error}") from error


def _problem(options: Options) -> str | None:
    path = options.script_path()
    if options.script is not None and path is not None and not path.is_file():
        return f"there is no script {options.script}"
    if path is not None and path.suffix == ".ipynb":
        return f"{options.script} is a notebook, which Python does not run: export it first (jupyter nbconvert --to script)"
    if options.steps < 1 or options.warmup < 1:
        return "--steps and --warmup are 1 or more"
    if options.predict and (options.candidates or options.find_batch_size):
        return "--predict runs nothing for real: ask for it alone"
    if options.gpu is not None and not options.predict:
        return "--gpu belongs to --predict"
    if options.memory_limit is not None and not options.find_batch_size:
        return "--memory-limit belongs to --find-batch-size"
    if not 0 <= options.headroom < 1:
        return "--headroom is a share such as 0.1"
    return None


def _options(given: argparse.Namespace, scripts: list[str]) -> Options:
    pairs = []
    for entry in given.env:
        name, equals, value = entry.partition("=")
        if not equals or not name:
            raise ValueError(f"--env takes NAME=VALUE, not {entry!r}")
        pairs.append((name, value))
    budget_s = duration_s(given.budget or ("15m" if given.candidates else "5m"))
    return Options(
        script=given.script,
        arguments=tuple(scripts),
        command=given.cmd,
        python=given.python,
        launcher=given.launcher,
        bootstrap=given.bootstrap,
        steps=given.steps,
        warmup=given.warmup,
        unit=given.unit,
        timeout_s=given.timeout if given.timeout is not None else max(900.0, 600.0 + budget_s),
        deadline_s=given.deadline,
        limit_train_batches=given.limit_train_batches,
        limit_eval_batches=1 if given.no_eval else given.limit_eval_batches,
        evaluate=not given.no_eval,
        device=given.device,
        shim=not given.no_shim,
        threads=given.threads,
        seed=seed_number(given.seed),
        writes=given.writes,
        offline=given.offline,
        environment=tuple(pairs),
        only=tuple(word for words in given.only for word in words.split(",") if word),
        min_effect=given.min_effect,
        repeat=_repeat(given),
        budget_s=budget_s,
        find_batch_size=given.find_batch_size,
        memory_limit=size_bytes(given.memory_limit) if given.memory_limit is not None else None,
        headroom=given.headroom,
        predict=given.predict,
        gpu=given.gpu if given.gpu is None or memory_of(given.gpu) else None,
        candidates=names_of(given.candidates) if given.candidates is not None else (),
        keep_run_dir=given.keep_run_dir,
    )


def _repeat(given: argparse.Namespace) -> int:
    if given.repeat is None:
        return FEWEST if given.baseline is not None else 1
    if given.repeat < 1:
        raise ValueError("--repeat is 1 or more")
    return int(given.repeat)


def duration_s(text: str) -> float:
    """Seconds of "90", "90s", "5m" or "1h"."""
    unit = {"s": 1.0, "m": 60.0, "h": 3600.0}.get(text[-1:])
    number = text[:-1] if unit is not None else text
    try:
        seconds = float(number) * (unit or 1.0)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"--budget is a time such as 90s or 5m, not {text!r}")
    return seconds


def seed_number(text: str) -> int | None:
    if text == "none":
        return None
    if not text.isdigit():
        raise ValueError(f"--seed is a number or none, not {text!r}")
    return int(text)


def _findings(source: str | None, options: Options, check: Check | None) -> list[Finding]:
    if source is None:
        return read_findings(check(options), options.cwd) if check is not None else []
    text = sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8")
    try:
        return read_findings(text, options.cwd)
    except FindingsError as error:
        raise ValueError(f"--findings {source}: {error}") from error


def _again(given: argparse.Namespace) -> int:
    """`--from`: the page of a stored report, and what has become worse in it. Runs nothing."""
    if given.script is not None or given.cmd is not None:
        return _usage("--from takes a report and runs nothing: give it without a script")
    try:
        wanted = _wanted(given)
        stored = _stored(given.source, "--from")
        if given.output_format == "markdown":
            raise ValueError("--from writes text, JSON and HTML; Markdown is written by the run itself")
    except (ValueError, OSError) as error:
        return _usage(str(error))
    code = EXIT_RAN
    if wanted.baseline is not None:
        found = against(wanted.baseline, stored, wanted.baseline_name)
        stored["against"] = found.as_object()
        code = EXIT_CONFIRMED if found.regressed and "regression" in wanted.fail_on else EXIT_RAN
    confirmed = any(finding["verdict"] == "confirmed" for finding in stored.get("findings", ()))
    if "confirmed" in wanted.fail_on and confirmed:
        code = EXIT_CONFIRMED
    write_stored(stored, wanted)
    return code


def _usage(message: str) -> int:
    sys.stderr.write(f"verify: {message}\n")
    return EXIT_USAGE

"""`trainlint check`"""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from trainlint.cli.failure import Failure, fault, note, warn
from trainlint.cli.options import Codes, Line, Names, TorchVersion, joined
from trainlint.discovery import PathNotFoundError, Target, discover, excluded
from trainlint.findings import Level
from trainlint.report.style import Style, printable, wants_color
from trainlint.result import FileResult
from trainlint.settings import PLATFORMS, Configuration, Overrides, SettingsError

_FORMATS = ("text", "concise", "json")


@click.command("check")
@click.argument("paths", nargs=-1, type=click.Path())
@click.option("--select", type=Codes(), multiple=True, help="Rules to look for: codes, prefixes, or ALL.")
@click.option("--ignore", type=Codes(), multiple=True, help="Rules not to look for.")
@click.option("--extend-select", type=Codes(), multiple=True, help="Rules to look for besides those selected.")
@click.option("--pedantic", is_flag=True, help="Show findings of level advice too.")
@click.option(
    "--fail-on",
    type=click.Choice(["advice", "warning", "error"]),
    help="Exit with 1 from this level on.  [default: warning]",
)
@click.option(
    "--output-format", type=click.Choice(_FORMATS), default="text", show_default=True, help="How findings are written."
)
@click.option("--fix", is_flag=True, help="Repair what can be repaired safely; report what is left.")
@click.option("--unsafe-fixes", is_flag=True, help="With --fix, --fix-only or --diff: those too that change results.")
@click.option("--fix-only", is_flag=True, help="Repair, and report nothing of what is left.")
@click.option("--diff", is_flag=True, help="Show what --fix would change, and change nothing.")
@click.option("--exit-zero", is_flag=True, help="Exit with 0 whatever is found.")
@click.option("--statistics", is_flag=True, help="Show how often each rule was hit instead.")
@click.option("--show-files", is_flag=True, help="List the files that would be checked, and stop.")
@click.option("--show-settings", is_flag=True, help="Show the settings of the first path, and stop.")
@click.option(
    "--config", type=click.Path(dir_okay=False), help="Use this pyproject.toml or trainlint.toml, and no other."
)
@click.option("--isolated", is_flag=True, help="Use no configuration file.")
@click.option(
    "--torch-version", type=TorchVersion(), help='The torch this is for: "2.5", ">=2.1,<2.6".  [default: as required]'
)
@click.option(
    "--target-platform",
    type=Names(PLATFORMS),
    multiple=True,
    help="Where this is to run: linux, macos, windows.  [default: all]",
)
@click.option("--stdin-filename", type=click.Path(), help="The name of what is read from standard input (path: -).")
@click.option("--exclude", type=Names(), multiple=True, help="Patterns of files not to check, besides those excluded.")
@click.option("--force-exclude", is_flag=True, help="Exclude files also when they are named.")
@click.option("--no-cache", is_flag=True, help="Neither read nor write the cache.")
@click.option("--why", type=Line(), help="Say what is known of this line and why it is found or not, and stop.")
@click.option("--profile-rules", is_flag=True, help="Show on stderr what CPU time each rule took.")
@click.option("-q", "--quiet", is_flag=True, help="Print findings only.")
@click.option("-v", "--verbose", is_flag=True, help="Say what is done; do not fold repeated findings.")
def command(paths: tuple[str, ...], **options: Any) -> None:
    """Check training scripts and notebooks without running them.

    PATHS are files and folders (default: the working directory), or - for standard input. Exits with 0 if there is
    nothing to complain about, 1 if there is, 2 if the check could not be done as asked.
    """
    try:
        sys.exit(_check(paths, options))
    except (SettingsError, PathNotFoundError) as error:
        raise Failure(str(error)) from None


def _check(paths: tuple[str, ...], options: dict[str, Any]) -> int:
    fixing = options["fix"] or options["fix_only"] or options["diff"]
    if options["unsafe_fixes"] and not fixing:
        raise Failure("--unsafe-fixes says which fixes to apply: give --fix, --fix-only or --diff too")
    if options["profile_rules"] and (fixing or options["why"] is not None):
        raise Failure("--profile-rules times a check: give it without --fix, --fix-only, --diff and --why")
    if options["fix_only"] and options["diff"]:
        raise Failure("--fix-only writes files and --diff does not: give one of them")
    configuration = _configuration(options)
    if options["why"] is not None:
        return _why(options["why"], configuration)
    targets = _targets(paths, options, configuration)
    if options["show_settings"]:
        from trainlint.cli.show import settings_as_text

        place = os.path.abspath(paths[0] if paths and paths[0] != "-" else ".")
        found = configuration.for_folder(place) if os.path.isdir(place) else configuration.for_file(place)
        _print(settings_as_text(targets[0].settings if targets else found))
        return 0
    if options["show_files"]:
        for target in targets:
            _print(target.path)
        return 0
    if not targets and not options["quiet"]:
        warn("no Python files found under the given paths")
    if fixing:
        from trainlint.cli.fix import fix_and_report

        return fix_and_report(targets, options)
    results = _profiled(targets, options) if options["profile_rules"] else _run(targets, options)
    report(results, options)
    return exit_code(results, options)


def exit_code(results: list[FileResult], options: dict[str, Any]) -> int:
    if any(result.fault for result in results):
        return 2
    if options["exit_zero"]:
        return 0
    return 1 if any(result.fails for result in results) else 0


def _configuration(options: dict[str, Any]) -> Configuration:
    if options["config"] is not None and options["isolated"]:
        raise Failure("--config and --isolated contradict each other: give one of them")
    overrides = Overrides(
        select=joined(options["select"]) or None,
        ignore=joined(options["ignore"]),
        extend_select=joined(options["extend_select"]),
        pedantic=options["pedantic"],
        fail_on=Level[options["fail_on"].upper()] if options["fail_on"] else None,
        target_platform=joined(options["target_platform"]) or None,
        torch_version=options["torch_version"],
        # Patterns with a slash are relative to where they were typed, not to the configuration file.
        exclude=tuple(
            os.path.join(os.getcwd(), pattern) if "/" in pattern.rstrip("/") else pattern
            for pattern in joined(options["exclude"])
        )
        or None,
    )
    return Configuration(overrides, config=options["config"], isolated=options["isolated"])


def _targets(paths: tuple[str, ...], options: dict[str, Any], configuration: Configuration) -> list[Target]:
    if "-" not in paths:
        if options["stdin_filename"] is not None:
            raise Failure("--stdin-filename names what comes from standard input: give - as the path")
        return discover(paths or (".",), configuration, force_exclude=options["force_exclude"])
    if len(paths) > 1:
        raise Failure("- (standard input) cannot be checked together with other paths")
    name = options["stdin_filename"]
    path = os.path.abspath(name) if name is not None else "-"
    settings = configuration.for_file(path) if name is not None else configuration.for_folder(os.getcwd())
    if name is not None and options["force_exclude"] and excluded(path, settings):
        return []
    return [Target(path, settings, data=sys.stdin.buffer.read())]


def _run(targets: list[Target], options: dict[str, Any]) -> list[FileResult]:
    from trainlint.cli.progress import with_progress
    from trainlint.engine import check_targets

    results = list(with_progress(check_targets(targets), len(targets)))
    for result in results:
        say_fault(result)
    if options["verbose"]:
        from trainlint.cli.show import run_as_text

        note(run_as_text(results))
    return results


def _profiled(targets: list[Target], options: dict[str, Any]) -> list[FileResult]:
    from trainlint.profiling import profile_as_text, profiled

    with profiled() as profile:
        results = _run(targets, {**options, "no_cache": True, "jobs": 1})  # what is remembered costs no rule anything
    note(profile_as_text(profile, results))
    return results


def say_fault(result: FileResult) -> None:
    if result.fault is not None:
        fault(
            f"{result.path} could not be checked. This is a mistake in trainlint, not in the file: please report "
            f"it, with this text and, if you can, the file.\n{result.fault.rstrip()}"
        )


def report(results: list[FileResult], options: dict[str, Any], *, fixed: int = 0, err: bool = False) -> None:
    """`fixed` findings were repaired; with `err` the report goes to standard error."""
    style = Style(wants_color(sys.stderr if err else sys.stdout))
    quiet, form = options["quiet"], options["output_format"]
    if options["statistics"]:
        from trainlint.report.statistics import statistics, statistics_json

        output = statistics_json(results) if form == "json" else statistics(results, style, quiet)
    elif form == "json":
        from trainlint.report.json import json

        output = json(results)
    elif form == "concise":
        from trainlint.report.concise import concise

        output = concise(results, style, quiet, fixed)
    else:
        from trainlint.report.text import text

        output = text(results, style, quiet=quiet, unfold=options["verbose"], fixed=fixed)
    if output:
        _print(output, style, err=err)


def _why(line: tuple[str, int | None, int], configuration: Configuration) -> int:
    from trainlint.engine import why
    from trainlint.source import NotChecked

    path, cell, row = line
    absolute = os.path.abspath(path)
    if not os.path.exists(absolute):
        raise PathNotFoundError(f"{path}: no such file")
    try:
        _print(why(absolute, cell, row, configuration.for_file(absolute)))
    except NotChecked as error:
        raise Failure(f"{path}:{error.row}:{error.column}: {error.reason}") from None
    except ValueError as error:
        raise Failure(str(error)) from None
    except Exception:
        import traceback

        fault(f"{path} could not be explained; please report it, with this text.\n{traceback.format_exc().rstrip()}")
        return 2
    return 0


def _print(text: str, style: Style | None = None, *, err: bool = False) -> None:
    stream = sys.stderr if err else sys.stdout
    click.echo(printable(text, stream), err=err, color=style.colored if style is not None else None)

"""What `trainlint check` does, given its paths and options. Does without click, which a hook would pay for at each start."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from trainlint.cli.failure import Failure, fault, note, warn
from trainlint.cli.output import write
from trainlint.discovery import PathNotFoundError, Target, discover, excluded
from trainlint.findings import Level
from trainlint.report.style import Style, printable, wants_color
from trainlint.result import FileResult
from trainlint.settings import Configuration, Overrides, SettingsError

if TYPE_CHECKING:
    from trainlint.verified import Verified

# The options as they are when none is given.
DEFAULTS: dict[str, Any] = {
    "select": (),
    "ignore": (),
    "extend_select": (),
    "pedantic": False,
    "preview": None,
    "fail_on": None,
    "output_format": "text",
    "fix": False,
    "unsafe_fixes": False,
    "fix_only": False,
    "diff": False,
    "exit_zero": False,
    "statistics": False,
    "show_files": False,
    "show_settings": False,
    "config": None,
    "isolated": False,
    "torch_version": None,
    "target_platform": (),
    "stdin_filename": None,
    "exclude": (),
    "force_exclude": False,
    "no_cache": False,
    "jobs": 0,
    "why": None,
    "profile_rules": False,
    "verified": None,
    "quiet": False,
    "verbose": False,
}


def check(paths: tuple[str, ...], options: dict[str, Any]) -> int:
    """The exit code. Raises Failure."""
    try:
        return _check(paths, options)
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
    if options["verified"] is not None and options["statistics"]:
        raise Failure("--verified says what findings cost and --statistics counts them: give one of them")
    options = {**options, "verified": _verified(options["verified"])}
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
    _say_what_has_no_effect(targets)
    if not targets and not options["quiet"]:
        warn("no Python files found under the given paths")
    if fixing:
        from trainlint.cli.fix import fix_and_report

        return fix_and_report(targets, options)
    results = _profiled(targets, options) if options["profile_rules"] else _run(targets, options)
    report(results, options)
    return exit_code(results, options)


def _say_what_has_no_effect(targets: list[Target]) -> None:
    from trainlint.rules.registry import index
    from trainlint.selection import without_effect

    distinct = {id(target.settings): target.settings for target in targets}.values()
    lines = [line for settings in distinct for line in without_effect(settings, index())]
    for line in dict.fromkeys(lines):
        warn(line)


def _verified(path: str | None) -> Verified | None:
    if path is None:
        return None
    from trainlint.verified import VerifiedError, read

    try:
        return read(path)
    except VerifiedError as error:
        raise Failure(f"--verified: {error}") from None


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
        preview=options["preview"],
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

    going = checked(targets, options)
    try:
        results = list(with_progress(going, len(targets)))
    finally:
        going.close()  # interrupted: no other process goes on
    for result in results:
        say_fault(result)
    if options["verbose"]:
        from trainlint.cli.show import run_as_text

        note(run_as_text(results))
    return results


def checked(targets: list[Target], options: dict[str, Any]) -> Generator[FileResult, None, None]:
    """The results of all files, from the cache where it knows them."""

    def check(left: list[Target], neighbours: dict[str, Any]) -> Iterable[FileResult]:
        if options["jobs"] == 1 or len(left) < 2:
            from trainlint.engine import check_targets

            return check_targets(left, neighbours=neighbours)
        from trainlint.parallel import check_parallel

        return check_parallel(left, options["jobs"], neighbours)

    if options["no_cache"] or all(target.data is not None for target in targets):
        yield from check(targets, {})
    else:
        from trainlint.cache import check_with_cache

        yield from check_with_cache(targets, check, note if options["verbose"] else None)


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


def report(results: Sequence[FileResult], options: dict[str, Any], *, fixed: int = 0, err: bool = False) -> None:
    """`fixed` findings were repaired; with `err` the report goes to standard error."""
    style = Style(wants_color(sys.stderr if err else sys.stdout))
    if options["verified"] is not None:
        from trainlint.report.order import with_confirmed

        results = with_confirmed(results, options["verified"])
    quiet, form = options["quiet"], options["output_format"]
    if options["statistics"]:
        from trainlint.report.statistics import statistics, statistics_json

        output = statistics_json(results) if form == "json" else statistics(results, style, quiet)
    elif form == "json":
        from trainlint.report.json import json

        output = json(results, options["verified"])
    elif form == "concise":
        from trainlint.report.concise import concise

        output = concise(results, style, quiet, fixed, options["verified"])
    elif options["verified"] is None and not any(result.findings for result in results):
        from trainlint.report.summary import summary

        output = "" if quiet else summary(results, style, fixed)
    else:
        from trainlint.report.text import text

        output = text(results, style, quiet=quiet, unfold=options["verbose"], fixed=fixed, verified=options["verified"])
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
    write(printable(text, stream), stream, style is not None and style.colored)


def joined(values: tuple[tuple[str, ...], ...]) -> tuple[str, ...]:
    """What an option that is given several times holds in all."""
    return tuple(item for value in values for item in value)

"""`trainlint check`: its options. What it does is in `check.py`, which needs no click."""

from __future__ import annotations

import sys
from typing import Any

import click

from trainlint.cli.check import check
from trainlint.cli.options import Codes, Jobs, Line, Names, TorchVersion
from trainlint.settings import PLATFORMS

_FORMATS = ("text", "concise", "json")


@click.command("check")
@click.argument("paths", nargs=-1, type=click.Path(readable=False))  # what cannot be read is a finding
@click.option("--select", type=Codes(), multiple=True, help="Rules to look for: codes, prefixes, or ALL.")
@click.option("--ignore", type=Codes(), multiple=True, help="Rules not to look for.")
@click.option("--extend-select", type=Codes(), multiple=True, help="Rules to look for besides those selected.")
@click.option("--pedantic", is_flag=True, help="Show findings of level advice too.")
@click.option("--preview/--no-preview", default=None, help="Look for what rules in preview find too.")
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
@click.option(
    "-j", "--jobs", type=Jobs(), default="auto", show_default=True, help="Processes to check on; auto: as many as pay."
)
@click.option("--why", type=Line(), help="Say what is known of this line and why it is found or not, and stop.")
@click.option(
    "--verified",
    type=click.Path(dir_okay=False),
    help="Show what `trainlint verify` measured (its JSON report) with each finding, and sort by it.",
)
@click.option("--profile-rules", is_flag=True, help="Show on stderr what CPU time each rule took.")
@click.option("-q", "--quiet", is_flag=True, help="Print findings only.")
@click.option("-v", "--verbose", is_flag=True, help="Say what is done; do not fold repeated findings.")
def command(paths: tuple[str, ...], **options: Any) -> None:
    """Check training scripts and notebooks without running them.

    PATHS are files and folders (default: the working directory), or - for standard input. Exits with 0 if there is
    nothing to complain about, 1 if there is, 2 if the check could not be done as asked.
    """
    sys.exit(check(paths, options))

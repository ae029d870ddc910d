"""`trainlint clean`."""

from __future__ import annotations

import os

import click

from trainlint.cache import FOLDER, clean
from trainlint.cli.failure import Failure, note
from trainlint.settings import Configuration


@click.command("clean")
@click.argument("paths", nargs=-1, type=click.Path())
def command(paths: tuple[str, ...]) -> None:
    """Delete what earlier checks remembered of the projects that PATHS (the working directory by default) lie in."""
    configuration = Configuration(isolated=True)
    found = set()
    for path in paths or (".",):
        absolute = os.path.abspath(path)
        if not os.path.exists(absolute):
            raise Failure(f"{path}: no such file or folder")
        of = configuration.for_folder if os.path.isdir(absolute) else configuration.for_file
        found.add(of(absolute).project)
    for project in sorted(found):
        try:
            deleted = clean(project)
        except OSError as error:
            raise Failure(f"{os.path.join(project, FOLDER)}: {error.strerror or error}") from None
        note(f"{os.path.join(project, FOLDER)}: " + ("deleted" if deleted else "there is none"))

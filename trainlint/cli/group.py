"""The commands. Each lies in its own file and is imported when it is called."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from trainlint import __version__
from trainlint.cli.failure import Failure, problem

# command -> (module, one line for `trainlint --help`, which must not import them all)
_COMMANDS = {
    "check": (
        "trainlint.cli.check_command",
        "Read training scripts and say where they will be slow, hang, or learn wrongly.",
    ),
    "verify": (
        "trainlint.cli.verify",
        "Run a few real steps of a script and say which findings hold, and what slows it.",
    ),
    "rule": ("trainlint.cli.rule", "Explain a rule, or list all of them."),
    "clean": ("trainlint.cli.clean", "Delete what earlier checks remembered."),
    "completion": ("trainlint.cli.completion", "Print the script that completes commands in a shell."),
}


class _Commands(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except Failure as failure:
            problem(str(failure))
            ctx.exit(2)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command = import_module(_COMMANDS[cmd_name][0]).command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in _COMMANDS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        if name not in _COMMANDS and not name.startswith("-"):
            import difflib

            close = difflib.get_close_matches(name, _COMMANDS, n=1)
            hint = f"did you mean 'trainlint {close[0]}'?" if close else f"to check a file: trainlint check {name}"
            raise click.UsageError(f"there is no command {name!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, "--version", "-V", message="%(prog)s %(version)s")
def cli() -> None:
    """trainlint reads PyTorch training scripts without running them and says where they will be slow, run out of
    memory, hang, break on another platform, or learn something wrong."""

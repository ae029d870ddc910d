"""`trainlint completion`"""

from __future__ import annotations

import click


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the script that makes SHELL complete trainlint's commands and options.

    \b
    bash:  trainlint completion bash > ~/.trainlint-complete.bash
           echo '. ~/.trainlint-complete.bash' >> ~/.bashrc
    zsh:   trainlint completion zsh > ~/.trainlint-complete.zsh
           echo '. ~/.trainlint-complete.zsh' >> ~/.zshrc
    fish:  trainlint completion fish > ~/.config/fish/completions/trainlint.fish
    """
    from click.shell_completion import ShellComplete, get_completion_class

    from trainlint.cli.group import cli

    found = get_completion_class(shell)
    assert found is not None
    script = found(cli, {}, "trainlint", "_TRAINLINT_COMPLETE")
    # Not `source()` of the subclass: for bash that looks for a bash of the right version on this machine first.
    click.echo(ShellComplete.source(script))

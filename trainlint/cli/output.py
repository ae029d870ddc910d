"""Writing to a stream, without click where nothing is coloured."""

from __future__ import annotations

from typing import IO


def write(text: str, stream: IO[str], colored: bool) -> None:
    """A line, or several. Colours need click where a console does not know escape codes (Windows)."""
    if colored:
        import click

        click.echo(text, file=stream, color=True)
    else:
        stream.write(text + "\n")
        stream.flush()

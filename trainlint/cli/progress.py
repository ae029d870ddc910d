"""A progress bar for long runs, on a terminal only."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

_PATIENCE = 1.0  # seconds; a run that ends before shows no bar and does not import rich


def with_progress(items: Iterable[T], total: int, clock: Callable[[], float] = time.monotonic) -> Iterator[T]:
    """Hands `items` on, and shows on stderr how far they have come, once that takes longer than a moment."""
    if not sys.stderr.isatty():
        yield from items
        return
    start = clock()
    iterator = iter(items)
    done = 0
    for item in iterator:
        done += 1
        yield item
        if clock() - start > _PATIENCE:
            break
    else:
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("Checking"), BarColumn(), MofNCompleteColumn(), TextColumn("files"), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("check", total=total, completed=done)
        for item in iterator:
            progress.advance(task)
            yield item

"""Checking on several processes: whether that pays, who gets which files, and the results in the order of the files."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from trainlint.discovery import Target
from trainlint.engine import check_targets, is_training_code
from trainlint.records import NamedTuple
from trainlint.result import FileResult
from trainlint.settings import SettingsError
from trainlint.source import NotChecked, read_bytes

if TYPE_CHECKING:
    from trainlint.crew import Job, Outcome
    from trainlint.semantic.neighbours import Neighbours

AUTO = 0  # as many processes as pay

# Bytes of training code for each process. Below, what a process costs to start is about what it saves.
_SHARE = 100_000
_MOST = 8  # processes, unless more are asked for: each needs the memory of a run of its own
_ROOM = 500_000_000  # bytes that a process may need, however large the tree is; all together get half of what there is

# What is handed out at once: a fourth of what would be a fair share of the rest, in bytes. Runs of neighbours go to one
# process, which has then read what they share, and towards the end none waits long for another.
_PART = 4
_SMALLEST = 10_000


class _Work(NamedTuple):
    """A file that is about training, by its number among all files."""

    number: int
    size: int  # bytes


def check_parallel(
    targets: Sequence[Target], jobs: int = AUTO, neighbours: dict[str, Neighbours] | None = None
) -> Iterator[FileResult]:
    """As `engine.check_targets`, on `jobs` processes, or as many as pay. Raises SettingsError.

    A process that goes down is a fault of the file it was at. Nothing is left running when this ends or is closed.
    """
    most = jobs or processors()
    if most == 1 or len(targets) < 2 or not _can_start() or (jobs == AUTO and not _reaches(targets, 2 * _SHARE)):
        yield from check_targets(targets, neighbours=neighbours)
        return
    works = list(_works(targets))
    if jobs == AUTO:
        most = min(most, _MOST, max(1, memory() // 2 // _ROOM), sum(work.size for work in works) // _SHARE)
    most = min(most, len(works))
    if most < 2:
        found = check_targets((targets[work.number] for work in works), neighbours=neighbours)
        yield from _merged(targets, {work.number for work in works}, found)
    else:
        if neighbours is not None:
            neighbours.clear()  # each process reads for itself, and this one needs the room no longer
        yield from _merged(targets, {work.number for work in works}, _by_crew(targets, works, most))


def processors() -> int:
    """How many processes can run at once: what this process may use, and what its container may."""
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    try:
        with open("/sys/fs/cgroup/cpu.max", encoding="ascii") as file:
            quota, period = file.read().split()
        return max(1, min(count, -(-int(quota) // int(period))))
    except (OSError, ValueError):  # no such file, or "max"
        return count


def memory() -> int:
    """How many bytes there are: in the machine, or for its container. As many as all processes want where that is not said."""
    found = 2 * _MOST * _ROOM
    if hasattr(os, "sysconf") and {"SC_PHYS_PAGES", "SC_PAGE_SIZE"} <= os.sysconf_names.keys():
        found = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        with open("/sys/fs/cgroup/memory.max", encoding="ascii") as file:
            return min(found, int(file.read()))
    except (OSError, ValueError):  # no such file, or "max"
        return found


def _can_start() -> bool:
    """Whether `sys.executable` is a Python: in a bundled program it is that program."""
    return bool(sys.executable) and not getattr(sys, "frozen", False)


def _reaches(targets: Iterable[Target], size: int) -> bool:
    """Whether the files have that many bytes in all, whatever is in them."""
    total = 0
    for target in targets:
        try:
            total += os.stat(target.path).st_size
        except OSError:
            continue
        if total >= size:
            return True
    return False


def _works(targets: Sequence[Target]) -> Iterator[_Work]:
    """The files that cost more than one read, and those about which something is to be said."""
    for number, target in enumerate(targets):
        if target.data is not None or target.problem is not None:
            yield _Work(number, 0)
            continue
        try:
            data = read_bytes(target.path)
        except NotChecked:
            yield _Work(number, 0)
            continue
        if is_training_code(data):
            yield _Work(number, len(data))


def _merged(targets: Sequence[Target], worked: set[int], results: Iterator[FileResult]) -> Iterator[FileResult]:
    """`results` are those of `worked`, in order; about the other files there is nothing to say."""
    for number, target in enumerate(targets):
        yield next(results) if number in worked else FileResult(target.path, target.settings)


def _by_crew(targets: Sequence[Target], works: list[_Work], size: int) -> Iterator[FileResult]:
    from trainlint.crew import Crew
    from trainlint.worker import Task

    numbers: dict[int, int] = {}
    settings = list({id(target.settings): target.settings for target in targets}.values())
    for position, each in enumerate(settings):
        numbers[id(each)] = position
    rest = deque(works)
    left = sum(work.size for work in works)

    def take() -> list[Job]:
        nonlocal left
        goal = max(_SMALLEST, left // (_PART * size))
        taken: list[Job] = []
        weight = 0
        while rest and (not taken or weight + rest[0].size <= goal):
            number, bytes_ = rest.popleft()
            target = targets[number]
            taken.append((number, Task(target.path, numbers[id(target.settings)], target.data, target.problem)))
            weight += bytes_
        left -= weight
        return taken

    done: dict[int, Outcome] = {}
    own = _InThisProcess()
    with Crew(size, settings, take) as crew:
        for work in works:
            while work.number not in done:
                number, outcome = crew.next()
                done[number] = outcome
            yield _result(targets[work.number], done.pop(work.number), own)


def _result(target: Target, outcome: Outcome, own: _InThisProcess) -> FileResult:
    from trainlint.crew import Ended, NotStarted

    if isinstance(outcome, SettingsError):
        raise outcome
    if isinstance(outcome, NotStarted):
        return own.check(target)
    if isinstance(outcome, Ended):
        return FileResult(target.path, target.settings, fault=f"the process that checked it {outcome.how}")
    return FileResult(target.path, target.settings, *outcome)


class _InThisProcess:
    """Checks one file after the other with one analysis."""

    def __init__(self) -> None:
        self._next: deque[Target] = deque()
        self._results = check_targets(iter(self._next.popleft, None))

    def check(self, target: Target) -> FileResult:
        self._next.append(target)
        return next(self._results)

"""`--fix`: check, apply the fixes that do not overlap, check again, until nothing is left to fix; then write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from trainlint.analysis import Analysis
from trainlint.discovery import Target
from trainlint.edits import Applied, Patch, apply, changed, chosen, is_clean, patch_of
from trainlint.engine import check_targets
from trainlint.records import NamedTuple
from trainlint.result import FileResult
from trainlint.settings import Settings
from trainlint.source import NotChecked, Source, decode, read_bytes
from trainlint.writing import NotWritten, encoded, replace_file

MOST_ROUNDS = 20

Check = Callable[[list[Target]], Iterable[FileResult]]
Progress = Callable[[Iterable[FileResult], int], Iterable[FileResult]]


class Change(NamedTuple):
    """What fixes make of one file."""

    path: str
    before: bytes
    after: bytes
    patches: tuple[Patch, ...]

    def sources(self) -> tuple[Source, Source]:
        return decode(self.path, self.before), decode(self.path, self.after)


class Fixed(NamedTuple):
    results: list[FileResult]  # what is left, in the order of the targets
    changes: list[Change]
    dropped: list[tuple[str, Patch]]  # fixes that would have changed more than they may
    problems: list[tuple[str, str]]  # (path, why it could not be fixed or written)
    unsettled: list[str]  # files that could be fixed on and on


def fix(
    targets: Sequence[Target], *, unsafe: bool, write: bool, progress: Progress, check: Check = check_targets
) -> Fixed:
    """Raises SettingsError. With `write` the files are changed, each in one step, when all is known. `check` gives the
    results for files as they lie on the disk, also those that it remembers."""
    run = _Fixing(targets, unsafe, progress, check)
    run.settle()
    if write:
        run.write()
    return run.fixed()


def without_leftovers(source: Source, applied: Applied) -> Applied:
    """Takes out the imports that nothing needs any more."""
    from trainlint.leftover_imports import removals

    more = removals(source, applied.changes)
    changes = tuple(sorted((*applied.changes, *more)))
    text = changed(source.text, changes)
    if not more or not is_clean(source.text, text, changes):
        return applied
    return applied._replace(text=text, changes=changes)


class _Fixing:
    def __init__(self, targets: Sequence[Target], unsafe: bool, progress: Progress, check: Check) -> None:
        self.targets = targets
        self.check = check  # of files as they lie on the disk
        self.unsafe = unsafe
        self.progress = progress
        self.first: dict[str, FileResult] = {}
        self.results: dict[str, FileResult] = {}
        self.before: dict[str, bytes] = {t.path: t.data for t in targets if t.data is not None}
        self.after: dict[str, bytes] = {}
        self.done: dict[str, list[Patch]] = {}
        self.dropped: dict[tuple[str, str, str], tuple[str, Patch]] = {}
        self.problems: dict[str, str] = {}
        self.unsettled: list[str] = []

    def settle(self) -> None:
        pending = list(self.targets)
        for _ in range(MOST_ROUNDS):
            changed = self._round(pending)
            if changed:
                pending = [target for target in self.targets if target.path in changed]
            elif len(pending) < len(self.targets):
                pending = list(self.targets)  # what was fixed in one file may have been read by another one
            else:
                return
        self.unsettled = sorted(t.path for t in pending)

    def _round(self, targets: Sequence[Target]) -> set[str]:
        texts = {path: decode(path, data).text for path, data in self.after.items()}

        def analysis(settings: Settings) -> Analysis:
            return Analysis(settings, texts) if texts else Analysis(settings)

        current = [target._replace(data=self.after.get(target.path, target.data)) for target in targets]
        changed = set()
        checked = check_targets(current, analysis=analysis) if texts else self.check(current)
        for result in self.progress(checked, len(current)):
            self.first.setdefault(result.path, result)
            self.results[result.path] = result
            if result.source is not None and result.path not in self.problems and self._apply(result, result.source):
                changed.add(result.path)
        return changed

    def _apply(self, result: FileResult, source: Source) -> bool:
        path = result.path
        fixes = [(finding, chosen(finding, self.unsafe)) for finding in result.findings]
        patches = [patch_of(finding, fix, source) for finding, fix in fixes if fix is not None]
        patches = [patch for patch in patches if (path, patch.code, patch.message) not in self.dropped]
        if not patches:
            return False
        applied = apply(source.text, patches)
        for patch in applied.dropped:
            self.dropped[path, patch.code, patch.message] = (path, patch)
        if not applied.done or applied.text == source.text:
            return False
        applied = without_leftovers(source, applied)
        try:
            data = self._data(path)
            if decode(path, data).text != source.text:
                raise NotWritten("it has changed since it was read")
            after = encoded(data, source, applied.changes)
            if decode(path, after).text != applied.text:
                raise NotWritten("its text would not come back as it was fixed")
        except (NotWritten, NotChecked) as error:
            self.problems[path] = str(error)
            return False
        self.after[path] = after
        self.done.setdefault(path, []).extend(applied.done)
        return True

    def _data(self, path: str) -> bytes:
        if path in self.after:
            return self.after[path]
        if path not in self.before:
            self.before[path] = read_bytes(path)
        return self.before[path]

    def write(self) -> None:
        for target in self.targets:
            path = target.path
            if path not in self.after or target.data is not None:
                continue
            try:
                replace_file(path, self.before[path], self.after[path])
            except NotWritten as error:
                self.problems[path] = str(error)
                self.results[path] = self.first[path]
                del self.after[path]

    def fixed(self) -> Fixed:
        changes = [
            Change(t.path, self.before[t.path], self.after[t.path], tuple(self.done[t.path]))
            for t in self.targets
            if t.path in self.after and self.after[t.path] != self.before[t.path]
        ]
        return Fixed(
            [self.results[target.path] for target in self.targets if target.path in self.results],
            changes,
            list(self.dropped.values()),
            sorted(self.problems.items()),
            self.unsettled,
        )

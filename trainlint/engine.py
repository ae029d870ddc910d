"""From paths to findings: discover, read, analyse, judge, suppress; one result per file, in the order of the paths."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from trainlint.discovery import Target, discover
from trainlint.findings import Claim, Finding, Level, Place
from trainlint.fingerprints import with_fingerprints
from trainlint.result import FileResult
from trainlint.rules.registry import NOT_CHECKED, UNUSED_SUPPRESSION, index, load
from trainlint.selection import Selection, matching, select
from trainlint.settings import Configuration, Settings
from trainlint.source import NotChecked, Source, decode, read_bytes
from trainlint.suppression import Suppression, read_suppressions, skips_file, suppress, unused

if TYPE_CHECKING:
    from trainlint.rules.registry import Entry
    from trainlint.rules.rule import Rule
    from trainlint.semantic.neighbours import Neighbours

# A file without any of these has nothing to do with training and costs one read.
FRAMEWORKS = (
    b"torch", b"lightning", b"accelerate", b"fastai", b"ignite", b"transformers", b"deepspeed", b"monai", b"timm",
    b"ultralytics",
    # a helper need not import what it works on
    b".backward(", b".zero_grad(", b".state_dict(", b".requires_grad_(", b".no_sync(", b"--local_rank",
)  # fmt: skip


MOST_HELD_OF_OTHERS = 4_000_000  # characters, each some 25 bytes of facts


class Analyse(Protocol):
    """What the engine asks of the analysis: `trainlint.analysis.Analysis`."""

    @property
    def held(self) -> int: ...

    def check(self, source: Source, rules: Sequence[Rule]) -> list[Finding]: ...

    def speaks_near(self, source: Source, words: tuple[bytes, ...]) -> bool: ...

    def rest(self) -> None: ...


def check(
    paths: Iterable[str],
    configuration: Configuration | None = None,
    *,
    force_exclude: bool = False,
    analysis: Callable[[Settings], Analyse] | None = None,
) -> Iterator[FileResult]:
    """Raises SettingsError and PathNotFoundError before the first result."""
    configuration = configuration or Configuration()
    yield from check_targets(discover(paths, configuration, force_exclude=force_exclude), analysis=analysis)


def check_targets(
    targets: Iterable[Target],
    *,
    analysis: Callable[[Settings], Analyse] | None = None,
    neighbours: Mapping[str, Neighbours] | None = None,
) -> Iterator[FileResult]:
    """As `check`, for what `discover` gave, or for text from standard input; `neighbours` are what was read of projects (by
    folder) already. Raises SettingsError."""
    runs: dict[int, _Run] = {}
    last: _Run | None = None
    for target in targets:
        run = runs.get(id(target.settings))
        if run is None:
            run = runs[id(target.settings)] = _Run(target.settings, analysis, neighbours)
        if run is not last and last is not None:
            _make_room(other for other in runs.values() if other is not run)
        last = run
        yield run.check(target)


def asked(entries: Iterable[Entry], source: Source, data: bytes, analysis: Analyse) -> Iterator[Entry]:
    """The rules that can have a finding in a file with these bytes."""
    known: dict[tuple[bytes, ...], bool] = {(): True}
    for entry in entries:
        if not entry.may_hit(data):
            continue
        near = known.get(entry.near)
        if near is None:
            near = any(word in data for word in entry.near) or analysis.speaks_near(source, entry.near)
            known[entry.near] = near
        if near:
            yield entry


def _make_room(runs: Iterable[_Run]) -> None:
    """Files come folder by folder, so that what was read for the projects before this one is mostly done with."""
    held = [run.analysis for run in runs if run.has_begun]
    if sum(analysis.held for analysis in held) > MOST_HELD_OF_OTHERS:
        for analysis in held:
            analysis.rest()
        gc.collect()  # facts refer to each other in circles


class _Run:
    """All files that have the same settings: one selection, one analysis."""

    def __init__(
        self,
        settings: Settings,
        analysis: Callable[[Settings], Analyse] | None,
        neighbours: Mapping[str, Neighbours] | None,
    ) -> None:
        self.settings = settings
        self.entries = index()
        self.selection = select(settings, self.entries)
        self.candidates = [
            entry
            for code, entry in self.entries.items()
            if code in self.selection.codes and code not in (NOT_CHECKED, UNUSED_SUPPRESSION)
        ]
        self._make = analysis
        self._neighbours = neighbours
        self._analysis: Analyse | None = None

    @property
    def has_begun(self) -> bool:
        return self._analysis is not None

    @property
    def analysis(self) -> Analyse:
        if self._analysis is None:
            if self._make is not None:
                self._analysis = self._make(self.settings)
            else:
                from trainlint.analysis import Analysis

                self._analysis = Analysis(self.settings, neighbours=self._neighbours)
        return self._analysis

    def check(self, target: Target) -> FileResult:
        path, settings = target.path, self.settings
        source: Source | None = None
        try:
            if target.problem is not None:
                raise target.problem
            data = target.data if target.data is not None else read_bytes(path)
            if not is_training_code(data):
                return FileResult(path, settings)
            source = decode(path, data)
            return self._check_source(source, data)
        except NotChecked as error:
            return self._not_checked(path, source, error)
        except Exception:  # also RecursionError: what is nested too deeply the analysis says by NotChecked
            import traceback

            return FileResult(path, settings, source=source, fault=traceback.format_exc())

    def _check_source(self, source: Source, data: bytes) -> FileResult:
        suppressions = read_suppressions(source)
        if skips_file(suppressions):
            return FileResult(source.path, self.settings)
        if source.is_notebook:  # its bytes are JSON, where quotes are escaped
            data = source.text.encode("utf-8", "surrogatepass")
        rules = [load(entry.code) for entry in asked(self.candidates, source, data, self.analysis)]
        findings = self.analysis.check(source, rules)
        if source.path == "-":
            findings = [_of_stdin(finding) for finding in findings]
        if not findings and not suppressions:
            return FileResult(source.path, self.settings)
        return self._judge(source, findings, suppressions)

    def _judge(self, source: Source, findings: list[Finding], suppressions: list[Suppression]) -> FileResult:
        ignored = self._ignored_here(source.path)
        findings = with_fingerprints(sorted(findings, key=Finding.sort_key), self.settings.project)
        findings = [finding for finding in findings if not matching(ignored, finding.code)]
        left, silenced, used = suppress(findings, suppressions)
        if suppressions and UNUSED_SUPPRESSION in self.selection.codes and not matching(ignored, UNUSED_SUPPRESSION):
            active = {code for code in self.selection.codes if not matching(ignored, code)}
            idle = unused(source, suppressions, used, active, self.entries, self.selection.complete and not ignored)
            idle = with_fingerprints(idle, self.settings.project)
            own = [suppression for suppression in suppressions if UNUSED_SUPPRESSION in (suppression.codes or ())]
            more, more_silenced, _ = suppress(idle, own)
            left += more
            silenced += more_silenced
        shown, hidden = _shown(left, self.selection)
        return FileResult(source.path, self.settings, shown, source, hidden, tuple(silenced))

    def _ignored_here(self, path: str) -> tuple[str, ...]:
        """The codes that `per-file-ignores` names for this file."""
        if not self.settings.per_file_ignores:
            return ()
        from trainlint.patterns import matches

        root = self.settings.root
        found: list[str] = []
        for pattern, codes in self.settings.per_file_ignores:
            if matches(pattern, path, root):
                found.extend(codes)
        return tuple(found)

    def _not_checked(self, path: str, source: Source | None, error: NotChecked) -> FileResult:
        rule = load(NOT_CHECKED)
        finding = Finding(
            code=rule.code,
            name=rule.name,
            level=Level.ERROR,
            claim=Claim.NONE,
            message=rule.message.format(reason=error.reason),
            why=rule.why,
            help=rule.help,
            path=path,
            place=Place(error.row, error.column, error.row, error.column + 1),
            statement=" ".join(source.line(error.row).split()) if source else "",
        )
        (finding,) = with_fingerprints([finding], self.settings.project)
        if matching(self._ignored_here(path), NOT_CHECKED):
            return FileResult(path, self.settings)
        shown, hidden = _shown([finding], self.selection)
        return FileResult(path, self.settings, shown, source, hidden)


def is_training_code(data: bytes) -> bool:
    """Whether a file mentions torch or a framework that is built on it."""
    if b"\0" in data:  # UTF-16, or a stray NUL: let the reader say so, if it is one of ours
        data = data.replace(b"\0", b"")
    return any(name in data for name in FRAMEWORKS)


def _of_stdin(finding: Finding) -> Finding:
    """Standard input without a name has no path that could be made absolute."""
    here = os.path.abspath("-")
    related = tuple(place._replace(path="-") if place.path == here else place for place in finding.related)
    return finding._replace(path="-", related=related)


def _shown(findings: Iterable[Finding], selection: Selection) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """(those to show, those kept back as mere advice)."""
    shown: list[Finding] = []
    hidden: list[Finding] = []
    for finding in findings:
        judged = selection.judge(finding)
        if judged is not None:
            shown.append(judged)
        elif finding.code in selection.codes:
            hidden.append(finding)
    return tuple(sorted(shown, key=Finding.sort_key)), tuple(hidden)


def why(path: str, cell: int | None, row: int, settings: Settings) -> str:
    """What the analysis knows of a line.

    Raises NotChecked, ValueError for a line that is not there, and SettingsError.
    """
    from trainlint.analysis import Analysis

    source = decode(path, read_bytes(path))
    if cell is not None:
        row = source.joined_row(cell, row)
    elif source.is_notebook:
        raise ValueError(f"{path} is a notebook: write FILE:CELL:LINE")
    if row > len(source.row_starts):
        raise ValueError(f"{path} has {len(source.row_starts)} lines, not {row}")
    rules = [
        load(code)
        for code, entry in index().items()
        if code not in (NOT_CHECKED, UNUSED_SUPPRESSION) and (settings.preview or not entry.preview)
    ]
    return Analysis(settings).why(source, row, rules)

"""From a file's text to its findings: parse, link, ask the rules, confirm on libcst, place."""

from __future__ import annotations

import gc
import os
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from trainlint.findings import Finding, Fix, Place, Related
from trainlint.patterns_on_use import Pattern
from trainlint.precedence import FIRST
from trainlint.records import NamedTuple
from trainlint.rules.rule import Hit, Rewrite, Rule
from trainlint.semantic import from_ast
from trainlint.semantic.contexts import link
from trainlint.semantic.deep_stack import run_in_deep_stack
from trainlint.semantic.facts import Call, Define, Expr, For, Function, If, Module, Record, Statement, Try, While, With
from trainlint.semantic.project import Project, find_root
from trainlint.semantic.script import Script, Semantics
from trainlint.semantic.syntax import ParseError, TooDeep
from trainlint.source import NotChecked, Source, read_source

if TYPE_CHECKING:
    import libcst as cst

    from trainlint.rewriting import Change
    from trainlint.semantic.confirm import Confirmed
    from trainlint.semantic.neighbours import Neighbours
    from trainlint.settings import Settings


# Characters of files whose facts, and what was asked about them, are kept for the files that come after: some 20 bytes each.
_KEPT = 8_000_000  # of those asked for last; besides them what is known of these rests on
_READ_MEANWHILE = 3_000_000  # before it is looked which are the last
_MOST_KEPT = 18_000_000

_PYTHON_2_EXCEPT = Pattern(r"\s*except\s[^#'\"]*,\s*[a-z_]\w*\s*:")


class Raw(NamedTuple):
    """A hit with its rule, before it has a place."""

    rule: Rule
    hit: Hit
    statement: Statement | None


class Analysis:
    """The checks of one run. Keeps what was read of each project for the files that come after."""

    def __init__(
        self,
        settings: Settings,
        texts: Mapping[str, str] | None = None,
        neighbours: Mapping[str, Neighbours] | None = None,
    ) -> None:
        """`texts` are files (by absolute path) whose text differs from what lies on the disk: fixed, not yet written;
        `neighbours` what was read of projects (by folder) already."""
        self.settings = settings
        self._texts = texts or {}
        self._neighbours = {} if texts else dict(neighbours or {})
        self._projects: dict[str, Semantics] = {}

    @property
    def held(self) -> int:
        """Characters of the files whose facts are kept."""
        return sum(semantics.project.size for semantics in self._projects.values())

    def rest(self) -> None:
        """Files of another analysis come now: lets go of all but what was read of imports."""
        for root in self._projects:
            self._empty(root)

    def _empty(self, root: str) -> Semantics:
        emptied = Semantics(self._projects[root].project.emptied(), self.settings)
        self._projects[root] = emptied
        return emptied

    def check(self, source: Source, rules: Sequence[Rule]) -> list[Finding]:
        """All findings of a file, not suppressed and not filtered. Raises NotChecked."""
        if not rules:
            self._parse(source)
            return []
        return run_in_deep_stack(lambda: self._check(source, rules))

    def _check(self, source: Source, rules: Sequence[Rule]) -> list[Finding]:
        script, tree = self._script(source)
        try:
            return self._ask(source, script, tree, rules)
        finally:
            if tree is None and script.module.again is None:  # else they are gone already, or have come back
                script.project.forget(script.module)
            script.project.forget_all()

    def _ask(self, source: Source, script: Script, tree: cst.Module | None, rules: Sequence[Rule]) -> list[Finding]:
        raws = [Raw(rule, hit, statement_of(script.module, hit.record)) for rule in rules for hit in rule.check(script)]
        if not raws:
            return []
        return self._findings(source, script, tree, _settle(raws))

    def speaks_near(self, source: Source, words: tuple[bytes, ...]) -> bool:
        """Whether one of the words stands in a file, or in one that it hangs together with by imports."""
        path = os.path.abspath(source.path)
        neighbours = self._semantics(path).project.neighbours
        neighbours.add(path, source.text)
        return neighbours.connected_speak(path, Pattern(b"|".join(words)))

    def why(self, source: Source, row: int, rules: Sequence[Rule]) -> str:
        """What the model knows of a row, and why each rule spoke or stayed silent. Raises NotChecked."""
        from trainlint.explain import explain

        findings = self.check(source, rules)
        script, _ = self._script(source)
        return run_in_deep_stack(lambda: explain(script, source, row, rules, findings))

    # ------------------------------------------------------------------------------------------------- reading

    def _parse(self, source: Source) -> tuple[tuple[Statement, ...], cst.Module | None]:
        try:
            return from_ast.lower(from_ast.parse(source.text, source.path)), None
        except TooDeep as error:
            raise NotChecked(error.reason, error.row, error.column) from None
        except ParseError as error:
            # Python 2's `except Error, name:` is Python 3.14's for two errors, and libcst reads it so.
            old = _PYTHON_2_EXCEPT.match(source.line(error.row)) is not None
            newer = None if old else self._newer_syntax(source.text)
            if newer is not None:
                return newer
            raise _not_checked(error) from None

    def _read_text(self, path: str) -> str | None:
        given = self._texts.get(path)
        return given if given is not None else _read_text(path)

    def _newer_syntax(self, text: str) -> tuple[tuple[Statement, ...], cst.Module] | None:
        """libcst reads syntax that the running Python does not know yet."""
        from trainlint.semantic import quick_libcst

        quick_libcst.load()
        from trainlint.semantic import from_libcst

        try:
            tree = from_libcst.parse(text)
            return from_libcst.lower(tree), tree
        except ParseError:
            return None

    def _semantics(self, path: str) -> Semantics:
        """What is known of the project of a file, with room for another one."""
        root = find_root(path)
        semantics = self._projects.get(root)
        if semantics is not None and semantics.project.read_since > _READ_MEANWHILE:
            if semantics.project.release(_KEPT) > _MOST_KEPT:
                semantics = self._empty(root)
                gc.collect()  # facts refer to each other in circles
        if semantics is None:
            project = Project(root, self._read_text, self._texts, self._neighbours.pop(root, None))
            semantics = self._projects[root] = Semantics(project, self.settings)
        return semantics

    def _script(self, source: Source) -> tuple[Script, cst.Module | None]:
        path = os.path.abspath(source.path)
        semantics = self._semantics(path)
        project = semantics.project
        known = project.given(path, source.text)
        if known is not None:
            return Script(known[0], semantics), known[1]
        body, tree = self._parse(source)
        try:
            module = link(path, body, project.module_name(path))
        except RecursionError:
            raise NotChecked("is nested too deeply to be checked") from None
        project.add(path, module, source.text, tree)
        return Script(module, semantics), tree

    # ------------------------------------------------------------------------------------------------- findings

    def _findings(
        self, source: Source, script: Script, tree: cst.Module | None, groups: list[list[Raw]]
    ) -> list[Finding]:
        places = _Places(script, source, tree)
        for group in groups:
            for raw in group:
                places.want(script.module, raw.hit.record)
                if raw.hit.until is not None:
                    places.want(script.module, raw.hit.until)
                for record in _worked_on(raw.hit.rewrite):
                    places.want(script.module, record)
                for note in raw.hit.notes:
                    places.want(note.record.context.module, note.record)
        places.resolve()
        try:
            return [
                self._finding(source, script, places, part)
                for group in groups
                for part in (_by_row(script, places, group) if group[0].rule.by_row else (group,))
            ]
        finally:
            for name in ("trainlint.semantic.libcst_spans", "trainlint.rewriting"):
                if name in sys.modules:  # only where there was something to place, or to fix
                    sys.modules[name].forget_trees()

    def _finding(self, source: Source, script: Script, places: _Places, group: list[Raw]) -> Finding:
        first = group[0]
        rule, hit = first.rule, first.hit
        spans = [places.of(script.module, raw.hit.record) for raw in group]
        ends = [places.of(script.module, raw.hit.until) for raw in group if raw.hit.until is not None]
        start = min((s.row, s.column) for s in spans)
        end = max((s.end_row, s.end_column) for s in [*spans, *ends])
        place = Place(*start, *end)
        if isinstance(hit.record, (For, While, With, If, Try)):
            place = _header_place(source, hit.record, place)
        elif isinstance(hit.record, (Function, Define)):
            place = _line_place(source, place)
        related = []
        for note in hit.notes:
            module = note.record.context.module
            where = places.of(module, note.record)
            if isinstance(note.record, (For, While)):
                where = _header_place(source if module is script.module else None, note.record, where)
            related.append(Related(module.path, where, note.message))
        rows = _anchor_rows(first.statement, place, hit.record)
        return Finding(
            code=rule.code,
            name=rule.name,
            level=hit.level if hit.level is not None else max(r.rule.level for r in group),
            claim=rule.claim,
            message=rule.message.format(**hit.values),
            why=hit.why or rule.why,
            help=(hit.help or rule.help).format(**hit.values),
            path=source.path,
            place=place,
            related=tuple(related),
            fix=_fix(source, places, group),
            anchor_rows=(*rows, place.end_row) if rule.by_row else rows,
            scope=_scope(hit.record),
            statement=" ".join(source.line(place.row if rule.by_row else rows[0]).split()),
        )


class _Places:
    """The places of the records that findings speak of, confirmed on libcst for the file that is checked."""

    def __init__(self, script: Script, source: Source, tree: cst.Module | None) -> None:
        self.script = script
        self.source = source
        self.tree = tree
        self._wanted: dict[int, tuple[Module, Record]] = {}
        self._found: dict[int, Confirmed] = {}
        self._texts: dict[str, str] = {script.module.path: source.text}

    def want(self, module: Module, record: Record) -> None:
        self._wanted[id(record)] = (module, record)

    def resolve(self) -> None:
        from trainlint.semantic import quick_libcst

        quick_libcst.load()
        from trainlint.semantic.confirm import confirm, places_of_libcst_module

        own = [r for m, r in self._wanted.values() if m is self.script.module]
        if self.tree is not None:
            self._found.update(places_of_libcst_module(self.source.text, self.tree, own))
        else:
            self._found.update(confirm(self.source.text, self.script.module, own))
        others: dict[str, list[Record]] = {}
        for module, record in self._wanted.values():
            if module is not self.script.module:
                others.setdefault(module.path, []).append(record)
        for path, records in others.items():
            self._found.update(self._elsewhere(path, records))

    def _elsewhere(self, path: str, records: list[Record]) -> dict[int, Confirmed]:
        from trainlint.semantic.confirm import Confirmed
        from trainlint.semantic.positions import ast_places

        text = self.script.project.text(path)
        if text is None:
            return {id(r): Confirmed(Place(1, 1, 1, 1)) for r in records}
        return {key: Confirmed(place) for key, place in ast_places(text, records).items()}

    def confirmed(self, record: Record) -> Confirmed:
        return self._found[id(record)]

    def of(self, module: Module, record: Record) -> Place:
        return self._found[id(record)].place


def _fix(source: Source, places: _Places, group: list[Raw]) -> Fix | None:
    """The rewrites of all hits that make up a finding; those whose code has an odd shape are left out."""
    rewrites = [(raw.hit, raw.hit.rewrite) for raw in group if raw.hit.rewrite is not None]
    first = _fix_of(source, places, rewrites)
    if first is None or not any(rewrite.instead for _, rewrite in rewrites):
        return first
    return first._replace(instead=_fix_of(source, places, [(hit, r.instead or r) for hit, r in rewrites]))


def _fix_of(source: Source, places: _Places, rewrites: Sequence[tuple[Hit, Rewrite]]) -> Fix | None:
    if not rewrites:
        return None
    from trainlint.rewriting import NoFix, Site, edits_of

    def site_of(record: Record) -> Site:
        found = places.confirmed(record)
        if found.node is None or found.tree is None:
            raise NoFix
        return Site(found.node, found.tree, found.row, source, site_of)

    done: list[Rewrite] = []
    changes: list[Change] = []
    for hit, rewrite in rewrites:
        try:
            own = list(rewrite.edit(site_of(rewrite.at or hit.record)))
            edits_of([*changes, *own], source)
        except (NoFix, ParseError):
            continue
        changes += own
        done.append(rewrite)
    if not changes:
        return None
    return Fix(all(rewrite.safe for rewrite in done), done[0].message, edits_of(changes, source))


def _worked_on(rewrite: Rewrite | None) -> Iterator[Record]:
    if rewrite is not None:
        if rewrite.at is not None:
            yield rewrite.at
        yield from rewrite.others
        yield from _worked_on(rewrite.instead)


def statement_of(module: Module, record: Record) -> Statement | None:
    """The innermost statement that a record stands in."""
    if isinstance(record, Statement):
        return record
    if isinstance(record, Call):
        return record.statement
    orders = [s.order for s in module.statements]
    index = bisect_right(orders, record.order) - 1
    return module.statements[index] if index >= 0 else None


def _settle(raws: list[Raw]) -> list[list[Raw]]:
    """Drops what another rule says better, and joins the hits of one rule in one statement."""
    at: dict[str, set[int]] = {}
    for raw in raws:
        at.setdefault(raw.rule.code, set()).update(_spots(raw.hit.record))
    silent: dict[str, set[int]] = {}
    for speaks, others in FIRST:
        spots = at.get(speaks)
        if spots:
            for other in others:
                silent.setdefault(other, set()).update(spots)
    groups: dict[tuple[str, int], list[Raw]] = {}
    for raw in raws:
        if id(raw.hit.record) in silent.get(raw.rule.code, ()):
            continue
        anchor = (
            raw.statement if raw.statement is not None and not isinstance(raw.hit.record, Statement) else raw.hit.record
        )
        groups.setdefault((raw.rule.code, id(anchor)), []).append(raw)
    for group in groups.values():
        group.sort(key=lambda raw: (-(raw.hit.level or raw.rule.level), raw.hit.record.order))
    return list(groups.values())


def _by_row(script: Script, places: _Places, group: list[Raw]) -> Iterable[list[Raw]]:
    """A group for each row that hits of it start on."""
    rows: dict[int, list[Raw]] = {}
    for raw in group:
        rows.setdefault(places.of(script.module, raw.hit.record).row, []).append(raw)
    return rows.values()


def _spots(record: Record) -> Iterable[int]:
    """A record and what it encloses, for "the same expression"."""
    found = [id(record)]
    if isinstance(record, Expr):
        stack: list[Record] = [record]
        while stack:
            current = stack.pop()
            found.append(id(current))
            for part in current.parts:
                child = getattr(current, part)
                if isinstance(child, tuple):
                    stack.extend(c for c in child if isinstance(c, Record))
                elif isinstance(child, Record):
                    stack.append(child)
    return found


def _anchor_rows(statement: Statement | None, place: Place, record: Record) -> tuple[int, int]:
    """First and last row of the statement; of a compound statement: of its header, as far as it can be told."""
    if statement is None:
        return place.row, place.end_row
    node = statement.node
    if isinstance(statement, (For, While, With, If, Try, Define)) or not hasattr(node, "lineno"):
        return place.row, place.end_row
    return min(node.lineno, place.row), max(node.end_lineno, place.end_row)


def _header_place(source: Source | None, record: Record, place: Place) -> Place:
    """Of a loop only its header is underlined."""
    if source is None:
        return Place(place.row, place.column, place.row, place.column + 1)
    last = _header_end(record)
    if last is not None and hasattr(last, "end_lineno"):
        row = last.end_lineno
        line = source.line(row)
        colon = line.rfind(":")
        return Place(
            place.row,
            place.column,
            row,
            max(len(line.rstrip()) if colon < 0 else colon + 1, place.column + 1 if row == place.row else 1),
        )
    return _line_place(source, place)


def _header_end(record: Record) -> object | None:
    if isinstance(record, For):
        return record.iter.node  # type: ignore[no-any-return]
    if isinstance(record, (While, If)):
        return record.test.node  # type: ignore[no-any-return]
    if isinstance(record, With):
        return record.items[-1].value.node  # type: ignore[no-any-return]
    return None


def _line_place(source: Source, place: Place) -> Place:
    line = source.line(place.row)
    end = len(line.split("#")[0].rstrip()) + 1
    return Place(place.row, place.column, place.row, max(end, place.column + 1))


def _scope(record: Record) -> str:
    for frame in record.context.frames():
        if frame.kind in ("function", "class"):
            return frame.record.qualname  # type: ignore[no-any-return]
    return ""


def _not_checked(error: ParseError) -> NotChecked:
    reason = error.reason
    if not reason.startswith(("syntax error", "null byte", "nested")):
        reason = f"syntax error: {reason}"
    if any(sign in reason for sign in ("Missing parentheses in call to", "multiple exception types", "leading zeros")):
        reason += " (Python 2 code?)"
    return NotChecked(reason, error.row, error.column)


def _read_text(path: str) -> str | None:
    try:
        return read_source(path).text
    except NotChecked:
        return None

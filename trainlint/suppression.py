"""Comments that silence findings: `# trainlint: ignore[TL101]`, `# trainlint: skip-file`, `# noqa: TL101`."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Sequence

from trainlint.findings import Claim, Edit, Finding, Fix, Level, Place
from trainlint.records import NamedTuple
from trainlint.rules.registry import UNUSED_SUPPRESSION
from trainlint.source import Source

_MARKERS = ("trainlint", "noqa", "NOQA")
_DIRECTIVE = (  # compiled when a comment is there that may be one
    r"#\s*(?:"
    r"trainlint\s*:\s*(?:(?P<skip>skip-file)\b|(?P<ignore>ignore)\b(?:\s*\[(?P<codes>[^\]]*)\]|\s*[:=]?\s*(?P<bare>TL\d+(?:[\s,]+TL\d+)*))?)"
    r"|noqa\s*:\s*(?P<noqa>[A-Z]+\d+(?:[\s,]+[A-Z]+\d+)*)"
    r")(?P<reason>[^#]*)"
)
_CODE = r"[A-Za-z]+\d+"


class Suppression(NamedTuple):
    """One comment, or the part of a comment, that is addressed to us."""

    row: int
    column: int  # of its `#`
    end_column: int  # where the directive ends, with its reason
    codes: tuple[str, ...] | None  # None: all of them
    others: tuple[str, ...] = ()  # codes of other linters in the same `noqa`
    noqa: bool = False
    skip_file: bool = False
    alone: bool = False  # nothing but white space stands before the comment

    def names(self, code: str) -> bool:
        return self.codes is None or any(code.startswith(own) for own in self.codes)


def read_suppressions(source: Source) -> list[Suppression]:
    """Only comments count, so the file is tokenized, but only if it holds something that looks like a suppression."""
    if not any(marker in source.text for marker in _MARKERS):
        return []
    found: list[Suppression] = []
    for row, column, comment in _comments(source):
        for match in re.finditer(_DIRECTIVE, comment, re.IGNORECASE):
            codes: tuple[str, ...] | None
            others: tuple[str, ...] = ()
            written = match["codes"] if match["codes"] is not None else match["bare"] or match["noqa"]
            codes = None if written is None else tuple(code.upper() for code in re.findall(_CODE, written))
            if match["noqa"] and codes is not None:
                others = tuple(code for code in codes if not code.startswith("TL"))
                codes = tuple(code for code in codes if code.startswith("TL"))
                if not codes:
                    continue
            found.append(
                Suppression(
                    row,
                    column + match.start(),
                    column + len(match[0].rstrip()) + match.start(),
                    codes,
                    others,
                    noqa=match["noqa"] is not None,
                    skip_file=match["skip"] is not None,
                    alone=not source.line(row)[: column - 1].strip(),
                )
            )
    return found


def skips_file(suppressions: Iterable[Suppression]) -> bool:
    return any(suppression.skip_file for suppression in suppressions)


def suppress(
    findings: Iterable[Finding], suppressions: Sequence[Suppression]
) -> tuple[list[Finding], list[Finding], dict[int, set[str]]]:
    """(left, silenced, used): `used` says of each suppression, by its index, which codes it silenced."""
    used: dict[int, set[str]] = {}
    by_row: dict[int, list[int]] = {}
    for at, suppression in enumerate(suppressions):
        by_row.setdefault(suppression.row, []).append(at)
    left: list[Finding] = []
    silenced: list[Finding] = []
    for finding in findings:
        rows = finding.anchor_rows if finding.anchor_rows[0] else (finding.place.row,)
        hit = False
        for row in set(rows):
            for at in by_row.get(row, ()):
                if suppressions[at].names(finding.code) and not suppressions[at].skip_file:
                    used.setdefault(at, set()).add(finding.code)
                    hit = True
        (silenced if hit else left).append(finding)
    return left, silenced, used


def unused(
    source: Source,
    suppressions: Sequence[Suppression],
    used: dict[int, set[str]],
    active: Container[str],
    known: Iterable[str],
    complete: bool,
) -> list[Finding]:
    """TL001 for what silenced nothing. Codes that are not `active` in this run are given the benefit of the doubt.

    `complete`: all rules are active, so that a suppression of everything can be judged.
    """
    found: list[Finding] = []
    known = list(known)
    for at, suppression in enumerate(suppressions):
        if suppression.skip_file:
            continue
        if suppression.codes is None:
            if complete and at not in used:
                found.append(_finding(source, suppression, None))
            continue
        hits = used.get(at, set())
        idle = []
        for own in suppression.codes:
            meant = [code for code in known if code.startswith(own)]
            if not any(hit.startswith(own) for hit in hits) and all(code in active for code in meant):
                idle.append(own)
        if idle or not suppression.codes:
            found.append(_finding(source, suppression, tuple(idle)))
    return found


def _finding(source: Source, suppression: Suppression, idle: tuple[str, ...] | None) -> Finding:
    from trainlint.rules.registry import load

    rule = load(UNUSED_SUPPRESSION)
    word = "noqa" if suppression.noqa else "trainlint: ignore"
    if idle is None or not idle:
        shown, what = f"`# {word}`", "the comment"
    elif suppression.noqa:
        shown = f"`# noqa: {', '.join(idle)}`"
        what = "the comment" if idle == suppression.codes and not suppression.others else ", ".join(idle)
    else:
        shown = f"`# trainlint: ignore[{', '.join(idle)}]`"
        what = "the comment" if idle == suppression.codes else ", ".join(idle)
    place = Place(suppression.row, suppression.column, suppression.row, suppression.end_column)
    return Finding(
        code=rule.code,
        name=rule.name,
        level=Level.WARNING,
        claim=Claim.NONE,
        message=rule.message.format(suppression=shown),
        why=rule.why,
        help=rule.help.format(what=what),
        path=source.path,
        place=place,
        fix=Fix(True, f"Remove {what}", (_removal(source, suppression, idle),)),
        anchor_rows=(suppression.row, suppression.row),
        statement=" ".join(source.line(suppression.row).split()),
    )


def _removal(source: Source, suppression: Suppression, idle: tuple[str, ...] | None) -> Edit:
    line = source.line(suppression.row)
    left = [code for code in suppression.codes or () if idle is not None and code not in idle]
    row = suppression.row
    kept = [*left, *suppression.others]
    if kept:
        content = f"# noqa: {', '.join(kept)}" if suppression.noqa else f"# trainlint: ignore[{', '.join(kept)}]"
        written = line[suppression.column - 1 : suppression.end_column - 1]
        codes = re.search(r"\][^\]]*$", written) if not suppression.noqa else None
        return Edit(
            Place(row, suppression.column, row, suppression.end_column), content + (codes[0][1:] if codes else "")
        )
    after = line[suppression.end_column - 1 :]
    before = line[: suppression.column - 1]
    if not before.strip() and not after.strip() and row < len(source.row_starts):
        return Edit(Place(row, 1, row + 1, 1), "")  # the comment's own line goes with it
    if after.strip():  # another comment follows and takes its place
        end = suppression.end_column + len(after) - len(after.lstrip())
        return Edit(Place(row, suppression.column, row, end), "")
    return Edit(Place(row, len(before.rstrip()) + 1, row, len(line) + 1), "")


def _comments(source: Source) -> Iterable[tuple[int, int, str]]:
    """(row, column, text) of the comments; what the tokenizer cannot read ends the list."""
    import io
    import tokenize

    try:
        for token in tokenize.generate_tokens(io.StringIO(source.text, newline="").readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.start[1] + 1, token.string.rstrip("\r\n")
    except (tokenize.TokenError, SyntaxError, RecursionError):
        return

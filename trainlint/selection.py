"""Which rules run, and which of their findings are shown, and how grave they are: the settings given their meaning."""

from __future__ import annotations

from collections.abc import Iterable

from trainlint.findings import Finding, Level
from trainlint.records import NamedTuple
from trainlint.rules.registry import NOT_CHECKED, Entry
from trainlint.settings import Settings, SettingsError


class Selection(NamedTuple):
    codes: frozenset[str]  # the rules that run
    shown_as_advice: frozenset[str]  # those whose findings of level advice are shown too
    levels: dict[str, Level]  # for these, the level of every finding
    complete: bool  # every rule there is runs, except for those in preview where that is off

    def judge(self, finding: Finding) -> Finding | None:
        """The finding with the level that it has here; None when it is not to be shown."""
        code = finding.code
        if code not in self.codes:
            return None
        level = self.levels.get(code, finding.level)
        if level <= Level.OFF or (level < Level.WARNING and code not in self.shown_as_advice):
            return None
        return finding if level is finding.level else finding._replace(level=level)


def select(settings: Settings, rules: dict[str, Entry]) -> Selection:
    """Raises SettingsError for a selector or a code that no rule answers to.

    The longer selector wins (`TL101` over `TL1` over `TL` and `ALL`); of two equally long ones, `ignore`. The command
    line's `--select` starts anew; its `--ignore` and `--extend-select` change what the file selected. The `levels`
    table goes over the file's selection, and a level of "off" over everything. Without `preview`, the rules in preview
    are as if they were not there.
    """
    line = settings.overrides
    levels = dict(settings.levels)
    off = {code for code, level in levels.items() if level is Level.OFF}
    _check(settings, rules)
    if not settings.preview:
        rules = {code: entry for code, entry in rules.items() if not entry.preview}
    codes: set[str] = set()
    exact: set[str] = set()
    everything = False
    if line is None or line.select is None:
        chosen = settings.select if settings.select is not None else ("TL",)
        _apply(codes, rules, (*chosen, *settings.extend_select), settings.ignore)
        codes.update(code for code in levels if code in rules)
        exact.update(chosen, settings.extend_select)
        everything = "ALL" in chosen or "ALL" in settings.extend_select
    if line is not None:
        chosen = (*(line.select or ()), *line.extend_select)
        _apply(codes, rules, chosen, line.ignore)
        exact.update(chosen)
        everything = everything or line.pedantic or "ALL" in chosen
    ignored = settings.ignore if line is None or line.select is None else ()
    if not any(_matches(selector, NOT_CHECKED) for selector in (*ignored, *(line.ignore if line else ()))):
        codes.add(NOT_CHECKED)  # what could not be checked is said whatever was selected
    codes -= off
    everything = everything or settings.fail_on <= Level.ADVICE
    shown = frozenset(codes) if everything else frozenset(codes & exact)
    return Selection(frozenset(codes), shown, levels, len(codes) == len(rules))


def without_effect(settings: Settings, rules: dict[str, Entry]) -> list[str]:
    """What the user should hear: rules in preview that are named by their whole code, while preview is off.

    A prefix or ALL that only passes over them is no reason to speak.
    """
    if settings.preview:
        return []
    return [
        f"{place}: {code} ({rules[code].name}) is in preview and is not looked for; "
        f"give --preview, or set preview = true{'' if settings.config is None else f' in {settings.config}'}"
        for place, selectors in _adding(settings)
        for code in selectors
        if code in rules and rules[code].preview
    ]


def matching(selectors: Iterable[str], code: str) -> bool:
    """Whether one of the selectors (a code, a prefix, ALL) names this code."""
    return any(_matches(selector, code) for selector in selectors)


def _matches(selector: str, code: str) -> bool:
    return selector == "ALL" or code.startswith(selector)


def _apply(codes: set[str], rules: Iterable[str], added: Iterable[str], ignored: Iterable[str]) -> None:
    for code in rules:
        plus = max((_weight(s) for s in added if _matches(s, code)), default=-1)
        minus = max((_weight(s) for s in ignored if _matches(s, code)), default=-1)
        if plus > minus:
            codes.add(code)
        elif minus >= 0:
            codes.discard(code)


def _weight(selector: str) -> int:
    return 0 if selector in ("ALL", "TL") else len(selector)


def _check(settings: Settings, rules: dict[str, Entry]) -> None:
    where, prefix = _place(settings)
    named = [*_adding(settings), (f"{where}: {prefix}ignore", settings.ignore)]
    named.extend((f"{where}: {prefix}per-file-ignores.{p!r}", codes) for p, codes in settings.per_file_ignores)
    if settings.overrides is not None:
        named.append(("--ignore", settings.overrides.ignore))
    for place, selectors in named:
        for selector in selectors:
            if not any(_matches(selector, code) for code in rules):
                raise SettingsError(f"{place}: there is no rule {selector!r}{_nearest(selector, rules)}")


def _adding(settings: Settings) -> list[tuple[str, tuple[str, ...]]]:
    """What asks for rules: (where it stands, its selectors)."""
    where, prefix = _place(settings)
    found = [
        (f"{where}: {prefix}select", settings.select or ()),
        (f"{where}: {prefix}extend-select", settings.extend_select),
        (f"{where}: {prefix}levels", tuple(code for code, level in settings.levels if level is not Level.OFF)),
    ]
    if settings.overrides is not None:
        found.append(("--select", settings.overrides.select or ()))
        found.append(("--extend-select", settings.overrides.extend_select))
    return found


def _place(settings: Settings) -> tuple[str, str]:
    where = settings.config or "command line"
    return where, "tool.trainlint." if where.endswith("pyproject.toml") else ""


def _nearest(selector: str, rules: dict[str, Entry]) -> str:
    import difflib

    by_name = next((code for code, entry in rules.items() if entry.name == selector), None)
    if by_name:
        return f"; did you mean {by_name!r}, the code of {selector}?"
    close = difflib.get_close_matches(selector.upper(), rules, n=1, cutoff=0.5)
    if close:
        return f"; did you mean {close[0]!r} ({rules[close[0]].name})?"
    return '; write a code such as "TL101", a prefix such as "TL1", or "ALL" (see `trainlint rule --all`)'

"""What rules would say if a loader had an option: no fix may make a finding of another rule."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from trainlint.findings import Level
from trainlint.rules.registry import load
from trainlint.rules.rule import Rule
from trainlint.semantic import loading, reading
from trainlint.semantic.facts import Call
from trainlint.semantic.values import Value

if TYPE_CHECKING:
    from trainlint.semantic.script import Script


def new_codes(script: Script, loader: Call, option: str, value: Value, codes: Iterable[str]) -> set[str]:
    """Those of the rules that would find more, in any file that the loader touches, if the option had the value."""
    scripts = _touched(script, loader)
    found: set[str] = set()
    for rule in map(load, codes):
        supposed = script.semantics.supposed
        supposed[id(loader), option] = value
        try:
            then = _findings(rule, scripts)
        finally:
            del supposed[id(loader), option]
        if then and not then <= _findings(rule, scripts):
            found.add(rule.code)
    return found


def _findings(rule: Rule, scripts: list[Script]) -> set[tuple[int, Level]]:
    return {
        (id(hit.record), hit.level if hit.level is not None else rule.level)
        for script in scripts
        for hit in rule.check(script)
    }


def _touched(script: Script, loader: Call) -> list[Script]:
    """Its own file, and those of its dataset, of what runs in its workers, and of the loops that draw from it."""
    modules = [script.module]
    modules += [d.cls.module for d in loading.datasets(script, loader) if d.cls is not None]
    modules += [f.module for f, _ in reading.entered(script, reading.item_functions(script, loader))]
    modules += [feed.module for feed in script.feeding.feeds(loader)]
    return [script.beside(module) for module in {id(m): m for m in modules}.values()]

"""Which rules there are. A rule is found by being there: a file `trainlint/rules/<group>/tlNNN_*.py` with one in it.

`index.json` repeats what a run must know of each rule before it imports any. After adding or changing a rule:

    python -m trainlint.rules.registry
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from functools import cache

from trainlint.findings import Claim, Level
from trainlint.records import NamedTuple
from trainlint.rules.rule import Rule

INDEX = os.path.join(os.path.dirname(__file__), "index.json")

# Their findings are made by the engine, not by looking at a script.
NOT_CHECKED = "TL000"
UNUSED_SUPPRESSION = "TL001"


class Entry(NamedTuple):
    """A rule, before it is imported."""

    code: str
    name: str
    level: Level
    claim: Claim
    triggers: tuple[tuple[bytes, ...], ...]
    module: str
    preview: bool
    near: tuple[bytes, ...] = ()

    def may_hit(self, data: bytes) -> bool:
        """Whether a file with these bytes can have a finding of this rule, whatever stands `near` it."""
        return not self.triggers or any(all(part in data for part in group) for group in self.triggers)


@cache
def index() -> dict[str, Entry]:
    """All rules by code, in the order of their codes, as `index.json` has them."""
    with open(INDEX, encoding="utf-8") as file:
        rows = json.load(file)
    entries = (
        Entry(
            row["code"],
            row["name"],
            Level[row["level"].upper()],
            Claim(row["claim"]),
            tuple(tuple(part.encode("latin-1") for part in group) for group in row["triggers"]),
            row["module"],
            row["preview"],
            tuple(word.encode("latin-1") for word in row["near"]),
        )
        for row in rows
    )
    return {entry.code: entry for entry in entries}


@cache
def load(code: str) -> Rule:
    """The rule with this code; imports its module. Raises KeyError for an unknown code."""
    return _rule_in(index()[code].module)


def find_rules(modules: Iterable[str] | None = None) -> list[Rule]:
    """Every rule that lies under `trainlint/rules`, by code.

    Imports all of them; `index` and `load` do not need this.
    """
    rules = [_rule_in(module) for module in (modules if modules is not None else _modules())]
    by_code: dict[str, Rule] = {}
    for rule in rules:
        other = by_code.setdefault(rule.code, rule)
        if other is not rule:
            raise TypeError(f"{type(rule).__module__} and {type(other).__module__} both have the code {rule.code}")
    return [by_code[code] for code in sorted(by_code)]


def render_index(modules: Iterable[str] | None = None) -> str:
    """What `index.json` should hold."""
    rows = [
        {
            "code": rule.code,
            "name": rule.name,
            "level": rule.level.label,
            "claim": rule.claim.value,
            "triggers": [[part.decode("latin-1") for part in group] for group in rule.triggers],
            "module": type(rule).__module__,
            "preview": rule.preview,
            "near": [word.decode("latin-1") for word in rule.near],
        }
        for rule in find_rules(modules)
    ]
    return "[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n"


def _modules() -> Iterator[str]:
    folder = os.path.dirname(__file__)
    for group in sorted(os.listdir(folder)):
        if not os.path.isfile(os.path.join(folder, group, "__init__.py")):
            continue
        for name in sorted(os.listdir(os.path.join(folder, group))):
            if name.startswith("tl") and name[2:5].isdigit() and name.endswith(".py"):
                yield f"trainlint.rules.{group}.{name[:-3]}"


def _rule_in(module_name: str) -> Rule:
    """The one rule that a module defines. Its code must be that of the file's name."""
    from importlib import import_module

    module = import_module(module_name)
    found = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Rule) and value.__module__ == module_name
    ]
    if len(found) != 1:
        raise TypeError(f"{module_name} must define one rule, not {len(found)}")
    expected = module_name.rpartition(".")[2][:5].upper()
    if found[0].code != expected:
        raise TypeError(f"{module_name} must define {expected}, not {found[0].code}")
    return found[0]()


if __name__ == "__main__":
    rendered = render_index()
    with open(INDEX, "w", encoding="utf-8", newline="\n") as out:
        out.write(rendered)

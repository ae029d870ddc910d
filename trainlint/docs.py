"""The pages under `docs/` that are generated: one for each rule, their index, which have fixes, and the known error messages.

What they say stands in the docstrings of the rules and in `rules/errors.json`. After changing either:

    python -m trainlint.docs
"""

from __future__ import annotations

import inspect
import re
from itertools import groupby
from pathlib import Path

from trainlint.rules.errors import KnownError, known_errors
from trainlint.rules.registry import find_rules
from trainlint.rules.rule import Rule

FOLDER = Path(__file__).parents[1] / "docs"
COMMAND = "python -m trainlint.docs"

_TITLES = {
    "itself": "trainlint itself",
    "sync": "synchronisation",
    "memory": "memory",
    "data": "data loading",
    "precision": "precision",
    "distributed": "distributed",
    "loop": "training loop",
    "compute": "compute and compile",
    "api": "API",
}
_FIX_SECTION = re.compile(r"^## Fix safety\n\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)


def pages() -> dict[str, str]:
    """What each generated page should hold, by its path relative to `docs/`, with `/`."""
    rules = find_rules()
    found = {f"rules/{rule.code}.md": _rule_page(rule) for rule in rules}
    found["rules/index.md"] = _index_page(rules)
    found["fixes.md"] = _fixes_page(rules)
    found["errors.md"] = _errors_page({rule.code: rule.name for rule in rules})
    return found


def stale(folder: Path = FOLDER) -> list[str]:
    """The generated pages in `folder` that are missing, differ, or belong to a rule that is gone."""
    expected = pages()
    differing = [name for name, text in expected.items() if _read(folder / name) != text]
    return sorted(differing + _left_over(folder, expected))


def write(folder: Path = FOLDER) -> list[str]:
    """Brings the pages in `folder` up to date; returns those that changed."""
    expected = pages()
    changed = stale(folder)
    for name in changed:
        path = folder / name
        if name not in expected:
            path.unlink()
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "w", encoding="utf-8", newline="\n") as out:
            out.write(expected[name])
    return changed


def fix_safety(rule: Rule) -> str:
    """`safe`, `unsafe`, `safe or unsafe` or `none`, as the section of the docstring says."""
    section = _FIX_SECTION.search(inspect.cleandoc(rule.__doc__ or ""))
    first = re.match(r"(safe|unsafe)\b", section[1], re.IGNORECASE) if section else None
    if section is None or first is None:
        return "none"
    other = r"\bunsafe\b" if first[1].lower() == "safe" else r"\bsafe\b"
    return "safe or unsafe" if re.search(other, section[1], re.IGNORECASE) else first[1].lower()


def _rule_page(rule: Rule) -> str:
    lines = [f"# {rule.code} {rule.name}", ""]
    facts = f"Level: **{rule.level.label}** · Claim: **{rule.claim.value}** · Fix: **{fix_safety(rule)}**"
    if rule.preview:
        facts += " · **Preview**: still being tried, looked for with `--preview` or `preview = true` only"
    lines += [facts, ""]
    lines += [inspect.cleandoc(rule.__doc__ or ""), "", "[All rules](index.md)"]
    return "\n".join(lines) + "\n"


def _index_page(rules: list[Rule]) -> str:
    lines = [
        "# Rules",
        "",
        "**Level**: an *error* crashes, hangs or learns something wrong; a *warning* costs time, memory or portability;",
        "*advice* is worth knowing, and shown with `--pedantic`. A single finding can have another level than its rule.",
        "**Claim**: what `trainlint verify` can settle by a measured run.",
    ]
    for group, members in groupby(rules, key=_group):
        own = list(members)
        lines += ["", f"## {own[0].code[:3]}xx {_TITLES.get(group, group)}", ""]
        lines += ["| code | name | level | claim | what it finds |", "|---|---|---|---|---|"]
        for rule in own:
            summary = inspect.cleandoc(rule.__doc__ or "").partition("\n\n")[0]
            name = f"{rule.name} (preview)" if rule.preview else rule.name
            cells = (f"[{rule.code}]({rule.code}.md)", name, rule.level.label, rule.claim.value, _cell(summary))
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _fixes_page(rules: list[Rule]) -> str:
    """The rules with a fix; what was measured (below the heading `## Measured`) is kept as it stands."""
    titles = {
        "safe": ("Safe", "applied by `--fix` and by the hook `trainlint-fix`"),
        "safe or unsafe": ("Safe or unsafe", "safe in some places, unsafe in others, or in two strengths"),
        "unsafe": ("Unsafe", "applied with `--unsafe-fixes` too, to be read before they are kept"),
    }
    groups = {kind: [rule for rule in rules if fix_safety(rule) == kind] for kind in titles}
    total = sum(len(own) for own in groups.values())
    lines = [
        "# Fixes",
        "",
        f"{total} of the {len(rules)} rules can repair what they find, where the code has a shape that they know. *Safe*: on a script that",
        "ran, every number stays the same up to rounding, and it needs no more device memory. *Unsafe*: all else, also where the",
        "change is plainly what was meant. What each one writes, and where it leaves the code alone, stands in the rule's page",
        'under "Fix safety".',
    ]
    for kind, own in groups.items():
        title, meaning = titles[kind]
        lines += ["", f"## {title} ({len(own)})", "", f"{meaning[0].upper()}{meaning[1:]}.", ""]
        lines += [f"- [{rule.code}](rules/{rule.code}.md) {rule.name}" for rule in own]
    measured = (_read(FOLDER / "fixes.md") or "").partition("\n## Measured\n")
    return "\n".join(lines) + "\n" + "".join(measured[1:])


def _errors_page(names: dict[str, str]) -> str:
    lines = [
        "# Error messages and warnings",
        "",
        "What PyTorch says, the rules that find its cause, and the remedy. `trainlint rule --error TEXT` looks a message up",
        "here. Where several pieces of text stand in a row, one of them suffices; `*` stands for anything in between.",
        "",
        "| message | rule | remedy |",
        "|---|---|---|",
    ]
    lines += [_error_row(error, names) for error in known_errors()]
    return "\n".join(lines) + "\n"


def _error_row(error: KnownError, names: dict[str, str]) -> str:
    texts = "<br>".join(_cell(_code(text)) for text in error.texts)
    rules = "<br>".join(f"[{c}](rules/{c}.md) {names[c]}" if c in names else c for c in error.codes)
    return f"| {texts} | {rules} | {_cell(error.remedy)} |"


def _code(text: str) -> str:
    """Text as a Markdown code span, whatever backticks are in it."""
    text = " ".join(text.split())
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence, space = "`" * (longest + 1), " " if longest else ""
    return f"{fence}{space}{text}{space}{fence}"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _group(rule: Rule) -> str:
    return type(rule).__module__.split(".")[-2]


def _read(path: Path) -> str | None:
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return file.read()
    except FileNotFoundError:
        return None


def _left_over(folder: Path, expected: dict[str, str]) -> list[str]:
    there = (f"rules/{path.name}" for path in (folder / "rules").glob("*.md"))
    return [name for name in there if name not in expected]


if __name__ == "__main__":
    for changed in write():
        print(f"docs/{changed}")

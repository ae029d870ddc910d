"""`trainlint rule`"""

from __future__ import annotations

import sys
from typing import Any

import click

from trainlint.cli.failure import Failure
from trainlint.report.style import Style, printable, wants_color
from trainlint.rules.registry import index, load
from trainlint.rules.rule import Rule


@click.command("rule")
@click.argument("code", required=False)
@click.option("--all", "everything", is_flag=True, help="All rules: a table, or with JSON their whole pages.")
@click.option(
    "--error", "message", metavar="TEXT", help="The rules that find the cause of an error message ('-': read it)."
)
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
def command(code: str | None, everything: bool, message: str | None, output_format: str) -> None:
    """Explain the rule CODE (TL101, or its name), list all rules, or find those behind an error message."""
    if (code is not None) + everything + (message is not None) != 1:
        raise Failure("name one rule, such as `trainlint rule TL101`, or all of them: `trainlint rule --all`")
    style = Style(wants_color(sys.stdout))
    if message is not None:
        output = _of_error(sys.stdin.read() if message == "-" else message, style, output_format)
    elif code is not None:
        rule = load(_resolve(code))
        output = _as_json(_as_object(rule)) if output_format == "json" else _page(rule, style)
    elif output_format == "json":
        output = _as_json([_as_object(load(known)) for known in index()])
    else:
        output = _table(style)
    click.echo(printable(output, sys.stdout), color=style.colored)


def _resolve(text: str) -> str:
    rules = index()
    if text.upper() in rules:
        return text.upper()
    for code, entry in rules.items():
        if entry.name == text.lower():
            return code
    import difflib

    names = {entry.name: entry.code for entry in rules.values()} | {code: code for code in rules}
    close = difflib.get_close_matches(text, names, n=1) or difflib.get_close_matches(text.upper(), names, n=1)
    if close:
        code = names[close[0]]
        hint = f"did you mean {code} ({rules[code].name})?"
    else:
        hint = "`trainlint rule --all` lists them"
    raise Failure(f"there is no rule {text!r}; {hint}")


def _of_error(message: str, style: Style, output_format: str) -> str:
    """The rules that find the cause of an error message, with the remedy."""
    from trainlint.rules.errors import find

    found = find(message)
    if output_format == "json":
        return _as_json([{"codes": list(e.codes), "remedy": e.remedy} for e in found])
    if not found:
        raise Failure("no rule is known for this message; pass the line that names the error, without the traceback")
    rules = index()
    lines: list[str] = []
    for error in found:
        lines.append(error.remedy)
        for code in error.codes:
            name = f"  {rules[code].name}" if code in rules else ""
            lines.append(f"  {style.bold(code)}{name}")
    codes = list(dict.fromkeys(code for error in found for code in error.codes))
    preview = " --preview" if any(rules[code].preview for code in codes if code in rules) else ""
    lines += ["", f"find the place: trainlint check{preview} --select {','.join(codes)}"]
    return "\n".join(lines)


def _facts(rule: Rule) -> str:
    facts = f"level: {rule.level.label}, claim: {rule.claim.value}"
    return f"{facts}, preview: looked for with --preview only" if rule.preview else facts


def _page(rule: Rule, style: Style) -> str:
    """The rule's docstring, with its headings and code set off."""
    import inspect

    lines = [style.bold(f"{rule.code} {rule.name}"), _facts(rule), ""]
    fenced = False
    for line in inspect.cleandoc(rule.__doc__ or "").splitlines():
        if line.startswith("```"):
            fenced = not fenced
            continue
        if fenced:
            lines.append(f"    {style.code(line)}" if line else "")
        elif line.startswith("## "):
            lines.append(style.bold(line[3:]))
        else:
            lines.append(line)
    return "\n".join(lines)


def _table(style: Style) -> str:
    rules = index().values()
    width = max(len(rule.name) for rule in rules)
    rows = []
    for rule in rules:
        level = style.level(rule.level, f"{rule.level.label:<7}")
        rows.append(
            f"{style.bold(rule.code)}  {rule.name:<{width}}  {level}  {rule.claim.value}{'  preview' if rule.preview else ''}"
        )
    return "\n".join(rows)


def _as_object(rule: Rule) -> dict[str, Any]:
    import inspect

    page = inspect.cleandoc(rule.__doc__ or "")
    return {
        "code": rule.code,
        "name": rule.name,
        "level": rule.level.label,
        "claim": rule.claim.value,
        "summary": page.partition("\n")[0],
        "message": rule.message,
        "why": rule.why,
        "help": rule.help,
        "explanation": page,
        "preview": rule.preview,
    }


def _as_json(value: Any) -> str:
    import json

    return json.dumps(value, indent=2)

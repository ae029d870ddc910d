"""The lines that a candidate would change, from where the script makes and calls its parts. Pure but for reading."""

from __future__ import annotations

import ast
from typing import Any

from runtime_check.compare.fixes import read_text
from runtime_check.what_if.records import Edit

Site = list[Any]  # [file, line, function]


def call_with(site: Site, names: tuple[str, ...], keywords: dict[str, str]) -> tuple[Edit, ...]:
    """The call of one of `names` on the site's line, with keywords added or replaced; just the keywords where the call
    is not found (a wrapper of the user's makes it).
    """
    file, line = str(site[0]), int(site[1])
    added = ", ".join(f"{name}={value}" for name, value in keywords.items())
    text = read_text(file)
    call = _call(text, line, names)
    if text is None or call is None:
        return (Edit(file, line, None, added),) if line else ()
    now = ast.get_source_segment(text, call) or ""
    instead = now
    given = {keyword.arg: ast.get_source_segment(text, keyword) or "" for keyword in call.keywords}
    for name, value in keywords.items():
        if given.get(name):
            instead = instead.replace(given[name], f"{name}={value}", 1)
        else:
            body = instead[:-1].rstrip().rstrip(",")
            instead = f"{body}{'' if body.endswith('(') else ', '}{name}={value})"
    return (Edit(file, call.lineno, _one_line(now), _one_line(instead)),)


def called(site: Site) -> str:
    """The name that the site's line calls a model by ("model" of `model(x)`); "model" where that is not clear."""
    text = read_text(str(site[0]))
    names = [
        ast.unparse(call.func)
        for call in _calls(text, int(site[1]))
        if isinstance(call.func, (ast.Name, ast.Attribute)) and not ast.unparse(call.func).startswith(_NOT_MODELS)
    ]
    return names[-1] if len(names) == 1 or (names and len(set(names)) == 1) else "model"


_NOT_MODELS = ("torch.", "nn.", "F.", "print", "len", "loss", "criterion")


def before(site: Site, statement: str) -> tuple[Edit, ...]:
    return (Edit(str(site[0]), int(site[1]), None, statement),) if site[1] else ()


def _call(text: str | None, line: int, names: tuple[str, ...]) -> ast.Call | None:
    for call in _calls(text, line):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", None)
        if name in names:
            return call
    return None


def _calls(text: str | None, line: int) -> list[ast.Call]:
    """Calls that stand on the line, the outermost first."""
    try:
        tree = ast.parse(text or "")
    except (SyntaxError, ValueError, RecursionError):
        return []
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("( ", "(").replace(" )", ")")

"""Glob patterns of `exclude` and `per-file-ignores`."""

from __future__ import annotations

import os
import re
from functools import cache


def matches(pattern: str, path: str, root: str) -> bool:
    """Whether the absolute `path`, or a folder that it lies in, is what `pattern` names.

    A pattern without a slash is compared with each part of the path below `root`; one with a slash with the path
    relative to `root`. `*` and `?` stay within one part, `**` spans any number of them. A leading `!` turns the answer
    round.
    """
    if pattern.startswith("!"):
        return not matches(pattern[1:], path, root)
    relative = _relative(path, root)
    parts = relative.split("/")
    bare = pattern.replace(os.sep, "/").rstrip("/")
    if "/" not in bare:
        compiled = _compiled(bare)
        return any(compiled.fullmatch(part) for part in parts)
    if os.path.isabs(pattern):
        bare = _relative(os.path.normpath(pattern), root)
    compiled = _compiled(bare.removeprefix("./").lstrip("/"))
    return any(compiled.fullmatch("/".join(parts[:end])) for end in range(1, len(parts) + 1))


def _relative(path: str, root: str) -> str:
    try:
        relative = os.path.relpath(path, root)
    except ValueError:  # another drive
        relative = path
    return relative.replace(os.sep, "/")


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    out: list[str] = []
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if pattern.startswith("**/", at):
            out.append("(?:[^/]+/)*")
            at += 3
        elif pattern.startswith("**", at):
            out.append(".*")
            at += 2
        elif char == "*":
            out.append("[^/]*")
            at += 1
        elif char == "?":
            out.append("[^/]")
            at += 1
        elif char == "[" and (end := pattern.find("]", at + 2)) > 0:
            inside = pattern[at + 1 : end]
            negated = inside[0] in "!^"
            inside = (inside[1:] if negated else inside).replace("\\", "\\\\").replace("[", "\\[")
            out.append(f"[{'^' if negated else ''}{inside}]")
            at = end + 1
        else:
            out.append(re.escape(char))
            at += 1
    try:
        return re.compile("".join(out), re.DOTALL)
    except re.error:  # a bracket that is no set
        return re.compile(re.escape(pattern))

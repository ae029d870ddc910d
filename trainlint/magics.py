"""What IPython adds to Python in a notebook's cell, masked by text of the same length so that all columns hold.

A mask is a name made of underscores: it is valid as a statement and as a value, it names nothing, and so no rule can
say anything about it.
"""

from __future__ import annotations

import re

# Cell magics whose body is Python of the notebook's own namespace. All others hold another language, or a file.
_PYTHON_CELLS = frozenset(
    ("%%capture", "%%debug", "%%ipytest", "%%prun", "%%pypy", "%%python", "%%python3", "%%time", "%%timeit")
)
_CANDIDATE = re.compile(r"^\s*[%!?]|\?\s*$|=\s*[%!]", re.MULTILINE)
_COMMAND = re.compile(r"^(\s*)([%!?].*)$", re.DOTALL)
_ASSIGNED = re.compile(r"^(\s*[\w.,\s\[\]'\"*()]+?=\s*)([%!].*)$", re.DOTALL)
_HELP = re.compile(r"^(\s*)(%{0,2}[A-Za-z_*][\w*]*(?:\.[A-Za-z_*][\w*]*|\[-?\d+\])*\?\??\s*)$")


def mask(cell: str) -> tuple[str, dict[int, str]]:
    """(text to parse, {0-based row: what the user wrote there}) of one code cell, with LF newlines."""
    if not _CANDIDATE.search(cell):
        return cell, {}
    lines = cell.split("\n")
    masked: dict[int, str] = {}
    first = next((i for i, line in enumerate(lines) if line.strip()), 0)
    words = lines[first].split()
    if words and words[0].startswith("%%"):
        end = first + 1 if words[0] in _PYTHON_CELLS else len(lines)
        for row in range(first, end):
            _replace(lines, masked, row, "", lines[row])
        if end == len(lines):
            return "\n".join(lines), masked
    state = _State()
    row = first
    while row < len(lines):
        line = lines[row]
        if row not in masked and state.at_statement:
            match = _HELP.match(line) or _COMMAND.match(line) or _ASSIGNED.match(line)
            if match:
                _replace(lines, masked, row, match[1], match[2])
                indent = line[: len(line) - len(line.lstrip())]
                # A command that ends in a backslash goes on in the next line.
                while masked[row].rstrip().endswith("\\") and row + 1 < len(lines):
                    row += 1
                    _replace(lines, masked, row, indent, lines[row][len(indent) :])
                row += 1
                continue
        if row not in masked:
            state.feed(line)
        row += 1
    return "\n".join(lines), masked


def _replace(lines: list[str], masked: dict[int, str], row: int, kept: str, text: str) -> None:
    masked[row] = lines[row]
    lines[row] = kept + "_" * len(text.rstrip()) + " " * (len(text) - len(text.rstrip()))


class _State:
    """Whether a line starts a statement, or goes on inside brackets, a triple-quoted string or after a backslash."""

    _TOKEN = re.compile(r"\"\"\"|'''|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|#.*|[\[({]|[\])}]|\\.", re.DOTALL)

    def __init__(self) -> None:
        self.depth = 0
        self.quote = ""
        self.continued = False

    @property
    def at_statement(self) -> bool:
        return not (self.depth or self.quote or self.continued)

    def feed(self, line: str) -> None:
        at = 0
        self.continued = False
        while at < len(line):
            if self.quote:
                end = line.find(self.quote, at)
                if end < 0:
                    return
                at = end + 3
                self.quote = ""
                continue
            match = self._TOKEN.search(line, at)
            if match is None:
                break
            token = match[0]
            at = match.end()
            if token in ('"""', "'''"):
                self.quote = token
            elif token in "([{":
                self.depth += 1
            elif token in ")]}":
                self.depth = max(0, self.depth - 1)
            elif token[0] == "#":
                return
        self.continued = line.endswith("\\")

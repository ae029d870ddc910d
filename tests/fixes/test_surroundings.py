"""A fix changes its own bytes and nothing around them, whatever that is."""

from __future__ import annotations

import ast
import re
import tempfile
from pathlib import Path

import pytest
from fix_files import Case, cases
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainlint.discovery import discover
from trainlint.fixing import fix
from trainlint.settings import Configuration

COMMENTS = st.sampled_from(["", "# a note", "# été 漢字 😀", "#\ttab", "# 'quoted\" text", "# form\x0cfeed"])
STATEMENTS = st.sampled_from(
    [
        "value = 'single'",
        'text = """several\nrows \\\n  of text"""',
        "x = [1,\n     2,  # two\n     3,]",
        "if  x:\n\tpass",
        "def other( a,b ) : return a;",
        "@property\ndef  spaced(self):\n  return {'a':1,'b' : 2}",
        "class  Odd :\n    y: int=3; z = 4",
        "total = 1 + \\\n    2",
        "",
        "\x0c",
        "lambda_ = lambda *a, **k: (a, k)",
    ]
)
BLOCK = st.lists(st.tuples(STATEMENTS, COMMENTS), max_size=5)
NEWLINES = st.sampled_from(["\n", "\r\n"])

PY = [c for c in cases() if c.before.suffix == ".py" and c.after != c.before.read_bytes()]
# Before the classes of a fixture: they say nothing that the fixes depend on.
DECORATORS = st.lists(
    st.sampled_from(["@typing.final", "@typing.final  # été", "@ typing . final", "@(typing.final)"]), max_size=2
)
# fixes of what stands at module level: in a block it would be another case
FLAT = ("TL301", "at_module_level", "steps_of_other_blocks")
INDENTS = st.sampled_from(["", "", " ", "    ", "\t"])


def written(block: list[tuple[str, str]]) -> str:
    return "".join(f"{statement}\n{comment}\n" for statement, comment in block)


@pytest.mark.parametrize("case", PY, ids=lambda c: f"{c.code}-{c.before.stem}{'-unsafe' if c.unsafe else ''}")
@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    above=COMMENTS,
    below=BLOCK,
    comment=COMMENTS,
    newline=NEWLINES,
    bom=st.booleans(),
    cut=st.booleans(),
    nested=INDENTS,
    decorators=DECORATORS,
    tabs=st.booleans(),
)
def test_surroundings_survive(
    case: Case,
    above: str,
    below: list[tuple[str, str]],
    comment: str,
    newline: str,
    bom: bool,
    cut: bool,
    nested: str,
    decorators: list[str],
    tabs: bool,
) -> None:
    before, after = case.before.read_bytes().decode(), case.after.decode()

    def around(text: str) -> bytes:
        if decorators:
            text = re.sub(r"^(?=class )", "".join(f"{row}\n" for row in decorators), text, flags=re.MULTILINE)
        if tabs and "\t" not in before:
            text = re.sub(r"^(?:    )+", lambda found: "\t" * (len(found[0]) // 4), text, flags=re.MULTILINE)
        head, gap, rest = text.partition("\n\n\n")  # imports stay where they are: in a `try` they would be a fallback
        if nested and rest and not any(part in str(case.before) for part in FLAT):
            rows = "\n".join(f"{nested}{row}" if row.strip() else row for row in rest.split("\n"))
            text = f"{head}{gap}try:\n{rows}\nfinally:\n{nested}pass"
        full = f"{above}\n{text}\n{comment}\n{written(below)}"
        full = full.rstrip("\n \t") if cut else full
        return (b"\xef\xbb\xbf" if bom else b"") + full.replace("\n", newline).encode()

    if before.split("\n", 1)[0] != after.split("\n", 1)[0]:
        above = (
            ""  # the first row goes, and the blank row behind it only where nothing stands above: a fixture has that
        )
    if case.code == "TL301":
        below = []  # would go under the guard with the rest: see test_main_guard.py
    ast.parse(around(before))
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / ".git").mkdir()
        toml = f'select = ["{case.select}"]\npreview = true\n{case.settings()}\n'
        (root / "trainlint.toml").write_text(toml, encoding="utf-8")
        path = root / "train.py"
        path.write_bytes(around(before))
        targets = discover([str(path)], Configuration())
        done = fix(targets, unsafe=case.unsafe, write=True, progress=lambda results, _: results)
        assert not done.dropped and not done.problems
        assert path.read_bytes() == around(after)

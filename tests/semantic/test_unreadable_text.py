"""What cannot be read is refused with a reason and a place, and never ends the process."""

from __future__ import annotations

import _thread
import ast
import subprocess
import sys
import warnings

import pytest
from front_ends import difference

from trainlint.semantic import from_ast, from_libcst
from trainlint.semantic.deep_stack import run_in_deep_stack
from trainlint.semantic.syntax import MAX_DEPTH, ParseError, TooDeep

NOT_PYTHON = {
    "Python 2": ("x = 1\nprint 'a'\n", 2),
    "Python 2 exec": ("exec 'a' in b\n", 1),
    "backticks": ("x = `a`\n", 1),
    "null byte": ("x = 1\ny\0\n", 2),
    "null byte in a string": ("x = 1\ny = '\0'\n", 2),
    "merge conflict": ("x = 1\n<<<<<<< HEAD\ny = 2\n=======\n", 2),
    "mixed tabs": ("if a:\n\tx\n        y\n", 3),
    "dedent": ("if a:\n    b\n  c\n", 3),
    "notebook magic": ("x = 1\n%matplotlib inline\n", 2),
    "open string": ("x = '''abc\n", 1),
    "open bracket": ("x = (1\n", 1),
    "lone surrogate": ("x = '\ud800'\n", 1),
    "string and bytes": ("x = 'a' b'b'\n", 1),
    "backslash at the end": ("x = \\", 1),
}

TOO_DEEP = {
    "brackets": "(" * 2000 + ")" * 2000,
    "lists": "[" * 5000 + "]" * 5000,
    "open brackets": "(" * 100_000,
    "indentation": "".join(" " * level + "if a:\n" for level in range(120)) + " " * 120 + "pass",
    "attributes": "a" + ".b" * 5000,
    "calls": "a" + "()" * 5000,
    "sum": "x = " + " + ".join("1" * 10_000),
    "negations": "not " * 5000 + "x",
    "signs": "-" * 5000 + "x",
    "lambdas": "lambda: " * 5000 + "x",
    "conditions": "a if b else " * 5000 + "c",
    "boolean": "x = " + " and ".join("a" * 10_000),
}


@pytest.mark.parametrize("name", NOT_PYTHON)
def test_not_python(name: str) -> None:
    text, row = NOT_PYTHON[name]
    with pytest.raises(ParseError) as raised:
        from_ast.parse(text, "test.py")
    assert raised.value.reason
    assert (raised.value.row, raised.value.column >= 1) == (row, True)
    with pytest.raises(ParseError) as raised:
        from_libcst.parse(text)
    assert raised.value.reason
    assert raised.value.row >= 1
    assert raised.value.column >= 1


@pytest.mark.parametrize("name", TOO_DEEP)
def test_too_deep(name: str) -> None:
    with pytest.raises(TooDeep):
        from_ast.parse(TOO_DEEP[name], "test.py")
    with pytest.raises(ParseError):
        from_libcst.parse(TOO_DEEP[name])


@pytest.mark.parametrize(
    "text",
    [
        "x = " + "(" * 150 + "1" + ")" * 150,
        "x = " + "[" * 90 + "]" * 90,
        "x = " + " + ".join("a" * (MAX_DEPTH - 20)),
        "x = " + " and ".join("a" * (MAX_DEPTH - 20)),
        "x = " + "not " * 300 + "a",
        "x = a" + ".b(c)[d]" * 100,
        "x = a" + ".b()" * 120,
        "x = " + "lambda: " * 100 + "a",
        "x = " + "a if b else " * 100 + "c",
        "if a: b\n" + "elif c: d\n" * 500,
        "x = " + " ".join(["'a'"] * 400),
        "x = f(" + ", ".join(["a.b + c"] * 3000) + ")",
        "".join(" " * level + "if a:\n" for level in range(90)) + " " * 90 + "pass",
    ],
    ids=lambda text: text[:30],
)
def test_deep_enough(text: str) -> None:
    """Within the bound both front ends read it, at Python's usual recursion limit and no stack to spare."""
    assert difference(text) is None


def test_many_elifs_do_not_overflow() -> None:
    text = "if a: b\n" + "elif c: d\n" * 3000
    try:
        assert from_ast.lower(from_ast.parse(text, "test.py"))
    except TooDeep:
        pass  # for this Python's own parser
    assert from_libcst.lower(from_libcst.parse(text))


def test_a_deep_call_stack_leaves_room() -> None:
    def deeper(levels: int) -> str | None:
        return deeper(levels - 1) if levels else difference("x = " + "not " * 300 + "a")

    assert deeper(500) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "# comment",
        "\f",
        "\ufeff",
        "x = 1\r",
        "if a:\r  b\r",
        "\fx = 1\n\f\ny = 2",
        "x = 1\n\f",
        "x = 1\n    # comment",
        "x = 1\n\\\n\n",
        "\\\nx = 1",
        "# -*- coding: latin-1 -*-\nx = 'é'\n",
        "# -*- coding: no-such-codec -*-\nx = 'é'\n",
    ],
)
def test_odd_but_python(text: str) -> None:
    assert difference(text) is None


def test_warnings_of_the_checked_code_stay_silent() -> None:
    text = "x = '\\d' 'a'; y = 1 is 1; assert (x, 'message')\n"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert difference(text) is None


def test_literals_that_only_libcst_accepts() -> None:
    for text in ("x = b'é'", "x = '\\N{no such name}'", "x = '\\x4'"):
        with pytest.raises(SyntaxError):
            ast.parse(text)
        with pytest.raises(ParseError):
            from_libcst.lower(from_libcst.parse(text))


def test_long_flat_code_is_not_deep() -> None:
    text = "x = [" + "1, " * 20_000 + "]\ny = {" + "'a': b.c + d, " * 5000 + "}\n"
    assert from_ast.lower(from_ast.parse(text, "test.py"))


def test_errors_cross_the_thread() -> None:
    def fail() -> None:
        raise KeyError("inside")

    limit = sys.getrecursionlimit()
    with pytest.raises(KeyError, match="inside"):
        run_in_deep_stack(fail)
    assert run_in_deep_stack(lambda: 1) == 1
    assert sys.getrecursionlimit() == limit


def test_the_screen_does_not_import_libcst() -> None:
    code = "import sys, trainlint.semantic.from_ast, trainlint.semantic.positions; print('libcst' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


def test_without_a_deep_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_thread, "start_new_thread", refuse)
    assert run_in_deep_stack(lambda: 1) == 1


def test_no_thread_is_begun_on_another_ones_fresh_stack() -> None:
    def one_inside() -> tuple[int, int]:
        return _thread.get_ident(), run_in_deep_stack(_thread.get_ident)

    outer, inner = run_in_deep_stack(one_inside)
    assert outer == inner != _thread.get_ident()


def test_deep_inside_a_stack_there_is_another_one() -> None:
    def inside(depth: int) -> int:
        return inside(depth - 1) if depth else run_in_deep_stack(_thread.get_ident)

    def outside() -> bool:
        return inside(2_000) == _thread.get_ident()

    assert not run_in_deep_stack(outside)

"""Glob patterns of `exclude` and `per-file-ignores`."""

from __future__ import annotations

import pytest

from trainlint.patterns import matches


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("build", "build/x.py", True),
        ("build", "a/build/x.py", True),
        ("build", "a/building/x.py", False),
        ("build/", "a/build/x.py", True),
        ("*.py", "a/x.py", True),
        ("test_*.py", "a/test_x.py", True),
        ("test_*.py", "a/my_test_x.py", False),
        ("a/*.py", "a/x.py", True),
        ("a/*.py", "a/b/x.py", False),
        ("a/*.py", "b/a/x.py", False),
        ("a/**/*.py", "a/x.py", True),
        ("a/**/*.py", "a/b/c/x.py", True),
        ("a/**", "a/b/c/x.py", True),
        ("**/b/x.py", "a/b/x.py", True),
        ("**/b/x.py", "b/x.py", True),
        ("a/b", "a/b/c/x.py", True),
        ("./a/b", "a/b/x.py", True),
        ("/root/a", "a/x.py", True),
        ("/other/a", "a/x.py", False),
        ("x?.py", "x1.py", True),
        ("x?.py", "x.py", False),
        ("[ab].py", "a.py", True),
        ("[!ab].py", "c.py", True),
        ("[!ab].py", "a.py", False),
        ("a+b.py", "a+b.py", True),
        ("!a/*.py", "b/x.py", True),
        ("!a/*.py", "a/x.py", False),
        ("[x.py", "[x.py", True),
    ],
)
def test_matches(pattern: str, path: str, expected: bool) -> None:
    assert matches(pattern, f"/root/{path}", "/root") is expected

"""Whatever a file holds: one clear message about it, and the other files are checked."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

GOOD = "import torch\nDataParallel(1)\n"

BROKEN = {
    "syntax.py": (b"import torch\nx = (\n", "2:5: TL000 syntax error: '(' was never closed"),
    "python2.py": (
        b'import torch\nprint "loss", loss\n',
        "2:1: TL000 syntax error: Missing parentheses in call to 'print'. Did you mean print(...)?",
    ),
    "latin.py": (
        b"import torch\n# caf\xe9\n",
        "2:6: TL000 byte 0xe9 is not UTF-8; save the file as UTF-8, or name its",
    ),
    "cookie.py": (b"# -*- coding: klingon -*-\nimport torch\n", "1:15: TL000 names an unknown encoding: 'klingon'"),
    "punycode.py": (
        b"# coding: punycode\nimport torch\n",
        "1:11: TL000 names an encoding that Python source cannot have: 'punycode'",
    ),
    "undefined.py": (
        b"# coding: undefined\nimport torch\n",
        "1:11: TL000 names an encoding that Python source cannot have: 'undefined'",
    ),
    "digits.ipynb": (b'{"torch": ' + b"1" * 5000 + b"}", "1:1: TL000 is not a notebook: "),
    "rot13.py": (b"# coding: rot13\nimport torch\n", "1:11: TL000 names an encoding that Python source cannot have"),
    "utf16.py": ("import torch".encode("utf-16"), "1:1: TL000 is saved as UTF-16, which Python cannot read"),
    "nul.py": (b"import torch\nx = '\0'\n", "2:6: TL000 has a NUL byte, which Python source cannot hold"),
    "deep.py": (
        b"import torch\nx = " + b"(" * 5000 + b")" * 5000 + b"\n",
        "2:205: TL000 syntax error: too many nested parentheses",
    ),
    "cut.ipynb": (b'{"cells": ["torch"', "1:19: TL000 is not a notebook: not valid JSON (Expecting ',' delimiter)"),
    "text.ipynb": (b'"torch"', "1:1: TL000 is not a notebook: not a JSON object"),
    "nocells.ipynb": (b'{"torch": 1}', "1:1: TL000 is not a notebook: it has no list of cells"),
    "latin.ipynb": (b'{"cells": "torch\n\xe9"}', "2:1: TL000 is not a notebook: not UTF-8"),
    "nested.ipynb": (b'{"torch":' + b"[" * 100_000, "1:1: TL000 is not a notebook: nested too deeply"),
    "numbers.ipynb": (
        b'{"cells": [{"cell_type": "code", "source": 3}], "torch": 1}',
        "1:1: TL000 is not a notebook: a code cell holds something other than text",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_file_is_reported_and_the_next_one_checked(lint: Any, project: Path, name: str) -> None:
    data, message = BROKEN[name]
    (project / name).write_bytes(data)
    (project / "zz.py").write_text(GOOD)
    result = lint("check", "--output-format", "concise", "-q")
    first, second = result.stdout.splitlines()
    assert first.startswith(f"{name}:{message}")
    assert second.startswith("zz.py:2:1: TL501")
    assert result.exit_code == 1
    assert result.stderr == ""


def test_the_line_of_a_syntax_error_is_shown(lint: Any, project: Path) -> None:
    (project / "train.py").write_text("import torch\nfor batch in loader\n    pass\n")
    output = lint("check").stdout
    assert output.startswith("error[TL000] not-checked: syntax error: expected ':'\n --> train.py:2:20\n")
    assert "\n2 | for batch in loader\n  |                    ^\n" in output


def test_links_that_lead_back_to_themselves(lint: Any, project: Path) -> None:
    (project / "loop.py").symlink_to("loop.py")
    (project / "a.py").symlink_to("b.py")
    (project / "b.py").symlink_to("a.py")
    (project / "folder").mkdir()
    (project / "folder" / "again").symlink_to("..", target_is_directory=True)
    (project / "folder" / "train.py").write_text(GOOD)
    result = lint("check", "--output-format", "concise", "-q")
    reason = "1:1: TL000 cannot be read: it is a symbolic link that leads back to itself"
    assert result.stdout.splitlines() == [
        f"a.py:{reason}",
        f"b.py:{reason}",
        "folder/train.py:2:1: TL501 `DataParallel` copies the model to every GPU on each step",
        f"loop.py:{reason}",
    ]
    named = lint("check", "--output-format", "concise", "-q", "loop.py")
    assert named.stdout == f"loop.py:{reason}\n"
    assert named.exit_code == 1


def test_a_link_to_nowhere_is_reported_but_not_the_lock_of_an_editor(lint: Any, project: Path) -> None:
    (project / "gone.py").symlink_to("elsewhere.py")
    (project / ".#train.py").symlink_to("user@host.1234")
    result = lint("check", "--output-format", "concise", "-q")
    assert result.stdout == "gone.py:1:1: TL000 cannot be read: no such file (a broken symbolic link?)\n"


def test_a_file_that_may_not_be_read(lint: Any, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "secret.py").write_text(GOOD)
    (project / "train.py").write_text(GOOD)
    import builtins

    real = builtins.open

    def refuse(path: Any, *arguments: Any, **options: Any) -> Any:
        if str(path).endswith("secret.py"):
            raise PermissionError(13, "Permission denied")
        return real(path, *arguments, **options)

    monkeypatch.setattr(builtins, "open", refuse)
    monkeypatch.setattr(os, "access", lambda path, mode, **options: not str(path).endswith("secret.py"))
    for named in ((), ("secret.py", "train.py")):
        result = lint("check", "--output-format", "concise", "-q", *named)
        assert result.stdout.startswith("secret.py:1:1: TL000 cannot be read: permission denied\ntrain.py:2:1: TL501")


def test_a_folder_that_may_not_be_read(lint: Any, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "closed").mkdir()
    (project / "train.py").write_text(GOOD)
    real = os.scandir

    def refuse(path: Any) -> Any:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "scandir", refuse)
    result = lint("check", "--output-format", "concise", "-q")
    assert result.stdout.startswith("closed:1:1: TL000 cannot be read: permission denied\ntrain.py:2:1: TL501")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_among_the_files_is_passed_over(lint: Any, project: Path) -> None:
    os.mkfifo(project / "pipe.py")
    assert lint("check").exit_code == 0


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_a_pipe_is_never_opened_be_it_named_or_a_neighbour(command: Any, tmp_path: Path) -> None:
    for name in ("pipe.py", "trainlint.toml", "requirements.txt", ".gitignore"):
        os.mkfifo(tmp_path / name)
    (tmp_path / "train.py").write_text("import torch\nimport pipe\nfrom torch import nn\nnn.DataParallel(pipe.x)\n")
    run = command("check", "--no-cache", "-q", "--output-format", "concise", "train.py", "pipe.py", cwd=tmp_path)
    pipe, train = run.stdout.splitlines()
    assert pipe.startswith("pipe.py:1:1: TL000 cannot be read: it is no regular file")
    assert train.startswith("train.py:4:1: TL501")
    assert run.stderr == ""


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="since 3.14 this names two errors")
def test_python_2_except_is_not_taken_for_newer_syntax(command: Any, tmp_path: Path) -> None:
    (tmp_path / "old.py").write_text("import torch\ntry:\n    pass\nexcept ValueError, e:\n    pass\n")
    (tmp_path / "new.py").write_text("import torch\ntry:\n    pass\nexcept ValueError, OSError:\n    pass\n")
    run = command("check", "--isolated", "-q", "--output-format", "concise", cwd=tmp_path)
    assert run.stdout.startswith("old.py:4:8: TL000 syntax error: multiple exception types must be parenthesized")
    assert "new.py" not in run.stdout


def test_a_chain_of_a_thousand_classes(command: Any, tmp_path: Path) -> None:
    chain = "".join(f"class A{i}(A{i - 1}): pass\n" for i in range(1, 1000))
    (tmp_path / "chain.py").write_text(f"import torch\nclass A0(torch.nn.Module): pass\n{chain}A999().item()\n")
    run = command("check", "--isolated", "-q", cwd=tmp_path)
    assert (run.stdout, run.stderr, run.returncode) == ("", "", 0)


def test_fifty_thousand_lines(lint: Any, project: Path) -> None:
    (project / "long.py").write_text("import torch\n" + "x = 1\n" * 50_000 + "DataParallel(1)\n")
    result = lint("check", "--output-format", "concise", "-q")
    assert result.stdout.startswith("long.py:50002:1: TL501")


@pytest.mark.parametrize(
    "data",
    [
        b"\xef\xbb\xbfimport torch\r\nDataParallel(1)  # caf\xc3\xa9\r\n",
        b"# -*- coding: latin-1 -*-\nDataParallel('torch \xe9')\n",
        b"#!/usr/bin/env python\n# vim: set fileencoding=cp1252 :\nimport torch;\\\nDataParallel('\x80')\n",
        b"import torch\rDataParallel(1)\r",
        b"import torch\r\n\x0cDataParallel(1)",
    ],
)
def test_encodings_and_line_ends_that_python_reads(lint: Any, project: Path, data: bytes) -> None:
    (project / "train.py").write_bytes(data)
    result = lint("check", "--output-format", "concise", "-q")
    assert "TL501" in result.stdout
    assert "TL000" not in result.stdout


def test_rows_and_columns_with_crlf(lint: Any, project: Path) -> None:
    (project / "train.py").write_bytes(b"import torch\r\n\r\nx = DataParallel(\r\n    1)\r\n")
    output = lint("check").stdout
    assert " --> train.py:3:5\n" in output
    assert "3 | x = DataParallel(\n  |     ^^^^^^^^^^^^^\n4 |     1)\n  |     ^^\n" in output


def test_not_checked_can_be_switched_off(lint: Any, project: Path) -> None:
    (project / "broken.py").write_text("import torch\nx = (\n")
    assert lint("check", "--select", "TL1").exit_code == 1
    assert lint("check", "--ignore", "TL000").exit_code == 0
    (project / "trainlint.toml").write_text('[per-file-ignores]\n"broken.py" = ["TL000"]\n')
    assert lint("check").exit_code == 0


@pytest.mark.parametrize(
    "code",
    [
        "(" * 5000 + ")" * 5000,
        "-" * 100_000 + "1",
        "a" + ".b()" * 5000,
        "lambda: " * 3000 + "1",
        "+".join("a" * 20_000),
    ],
    ids=["brackets", "signs", "calls", "lambdas", "sums"],
)
def test_what_is_nested_too_deeply_for_the_real_analysis(command: Any, tmp_path: Path, code: str) -> None:
    (tmp_path / "deep.py").write_text(f"import torch\nx = {code}\n")
    (tmp_path / "python2.py").write_text('import torch\nprint "loss", loss\n')
    run = command("check", "--isolated", "-q", "--output-format", "concise", cwd=tmp_path)
    deep, python2 = run.stdout.splitlines()
    assert deep.startswith("deep.py:")
    assert "TL000" in deep
    assert "nested" in deep
    assert python2.startswith("python2.py:2:1: TL000 ")
    assert python2.endswith("(Python 2 code?)")
    assert run.returncode == 1
    assert run.stderr == ""

"""Comments that silence findings, and TL001 for those that silence nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def found(lint: Any, project: Path) -> Any:
    """The `row:column code` of what is found in a text."""

    def run(text: str, *arguments: str) -> list[str]:
        (project / "train.py").write_bytes(text.encode())
        result = lint("check", "-q", "--output-format", "concise", *arguments)
        places = [line.split(":", 3)[1:] for line in result.stdout.splitlines()]
        return [f"{row}:{column} {message.split()[0]}" for row, column, message in places]

    return run


@pytest.mark.parametrize(
    "comment",
    [
        "# trainlint: ignore[TL501]",
        "# trainlint: ignore[TL101, TL501] why it is fine here",
        "# trainlint:ignore [tl501]",
        "# trainlint: ignore",
        "# trainlint: ignore  # noqa: E501",
        "# type: ignore  # trainlint: ignore[TL501]",
        "# trainlint: ignore TL501",
        "# trainlint: ignore[TL5]",
        "# noqa: TL501",
        "# noqa: E501, TL501",
        "# NOQA:TL501",
        "# noqa: E501,TL501 because",
    ],
)
def test_forms(found: Any, comment: str) -> None:
    assert found(f"import torch\nDataParallel(1)  {comment}\n", "--select", "TL501") == []


@pytest.mark.parametrize(
    "comment",
    [
        "# noqa",
        "# noqa: E501",
        "# trainlint: ignore[TL101]",
        "# ignore[TL501]",
        "# trainlint: ignored",
        "# noqa: TLX501",
    ],
)
def test_what_does_not_silence(found: Any, comment: str) -> None:
    assert found(f"import torch\nDataParallel(1)  {comment}\n", "--select", "TL501") == ["2:1 TL501"]


def test_only_comments_count(found: Any) -> None:
    assert found('import torch\nDataParallel("# trainlint: ignore[TL501]")\n') == ["2:1 TL501"]
    assert found('import torch\n"""\n# trainlint: skip-file\n"""\nDataParallel(1)\n') == ["5:1 TL501"]


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_first_and_last_line_of_the_statement(found: Any, newline: str) -> None:
    lines = ["import torch", "DataParallel(", "    1,", ")", ""]
    for row in (1, 3):
        text = [line + "  # trainlint: ignore[TL501]" * (at == row) for at, line in enumerate(lines)]
        assert found(newline.join(text)) == []
    text = [line + "  # trainlint: ignore[TL501]" * (at == 2) for at, line in enumerate(lines)]
    assert found(newline.join(text)) == ["2:1 TL501", "3:9 TL001"]


def test_skip_file(found: Any) -> None:
    assert found("# trainlint: skip-file\nimport torch\nDataParallel(1)\n") == []
    assert found("# trainlint: skip-file\nimport torch\nx = (\n") == []


def test_unused(found: Any) -> None:
    assert found("import torch  # trainlint: ignore[TL501]\n") == ["1:15 TL001"]
    assert found("import torch  # noqa: TL501\n") == ["1:15 TL001"]
    assert found("import torch  # trainlint: ignore\n") == ["1:15 TL001"]
    assert found("import torch  # trainlint: ignore[TL999]\n") == ["1:15 TL001"]
    assert found("import torch  # trainlint: ignore[]\n") == ["1:15 TL001"]


def test_unused_is_silent_about_what_this_run_does_not_look_for(found: Any) -> None:
    text = "import torch  # trainlint: ignore[TL501]\nx = 1  # trainlint: ignore\n"
    assert found(text, "--select", "TL001,TL1") == []
    assert found(text, "--ignore", "TL501") == []
    assert found(text, "--ignore", "TL001") == []


def test_a_suppression_of_hidden_advice_is_used(found: Any) -> None:
    assert found("import torch\npersistent()  # trainlint: ignore[TL305]\n") == []


def test_per_file_ignored_codes_make_no_suppression_unused(found: Any, project: Path) -> None:
    (project / "trainlint.toml").write_text('[per-file-ignores]\n"train.py" = ["TL501"]\n')
    assert found("import torch\nDataParallel(1)  # trainlint: ignore[TL501]\n") == []


def test_unused_can_itself_be_suppressed(found: Any) -> None:
    assert found("import torch  # trainlint: ignore[TL501, TL001]\n") == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x = 1  # trainlint: ignore[TL101]", "x = 1"),
        ("x = 1  # trainlint: ignore[TL101] of old", "x = 1"),
        ("x = 1  # trainlint: ignore[TL101]  # noqa: E501", "x = 1  # noqa: E501"),
        ("x = 1  # a loss  # trainlint: ignore[TL101]", "x = 1  # a loss"),
        ("x = 1  # noqa: TL101, E501", "x = 1  # noqa: E501"),
        ("DataParallel(1)  # noqa: TL101, TL501", "DataParallel(1)  # noqa: TL501"),
        ("DataParallel(1)  # trainlint: ignore[TL101, TL501] why", "DataParallel(1)  # trainlint: ignore[TL501] why"),
        ("# trainlint: ignore[TL101]\nx = 1", "x = 1"),
        ("x = 1\n# trainlint: ignore[TL101]", "x = 1\n"),
    ],
)
def test_the_fix_removes_what_is_unused(lint: Any, project: Path, before: str, after: str) -> None:
    head = "import torch\n"
    (project / "train.py").write_text(head + before)
    result = lint("check", "--output-format", "json")
    (found,) = json.loads(result.stdout)
    assert found["code"] == "TL001"
    assert found["fix"]["applicability"] == "safe"
    (edit,) = found["fix"]["edits"]
    rows = (head + before).splitlines(keepends=True)
    starts = [0]
    for row in rows:
        starts.append(starts[-1] + len(row))
    begin = starts[edit["location"]["row"] - 1] + edit["location"]["column"] - 1
    end = starts[edit["end_location"]["row"] - 1] + edit["end_location"]["column"] - 1
    text = head + before
    assert text[:begin] + edit["content"] + text[end:] == head + after

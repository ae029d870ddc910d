"""Notebooks: cells in order, rows within their cell, and what IPython adds to Python."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


def notebook(*cells: str, language: str = "python") -> str:
    """Code cells, with text between them."""
    written: list[dict[str, Any]] = []
    for cell in cells:
        written.append({"cell_type": "markdown", "metadata": {}, "source": ["some *text*"]})
        written.append({"cell_type": "code", "metadata": {}, "outputs": [], "source": cell.splitlines(keepends=True)})
    metadata = {"language_info": {"name": language}}
    return json.dumps({"cells": written, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5})


@pytest.fixture
def found(lint: Any, project: Path) -> Any:
    def run(*cells: str, language: str = "python") -> list[str]:
        (project / "train.ipynb").write_text(notebook(*cells, language=language))
        result = lint("check", "-q", "--output-format", "concise")
        return [line.split(" `")[0].split(" [*]")[0] for line in result.stdout.splitlines()]

    return run


def test_places_are_those_of_the_cell(lint: Any, project: Path) -> None:
    (project / "train.ipynb").write_text(notebook("import torch\n", "", "x = 1\nfor b in loader:\n    b.item()"))
    (found,) = json.loads(lint("check", "--output-format", "json").stdout)
    assert (found["cell"], found["location"], found["noqa_row"]) == (3, {"row": 3, "column": 5}, 3)
    assert found["related"][0]["cell"] == 3
    assert found["related"][0]["location"] == {"row": 2, "column": 1}
    assert found["fix"]["edits"][0]["cell"] == 3
    text = lint("check").stdout
    assert " --> train.ipynb:cell 3:3:5\n" in text
    assert "\n3 |     b.item()\n" in text
    assert "import torch" not in text


def test_a_syntax_error_is_placed_in_its_cell(found: Any) -> None:
    assert found("import torch", "x = 1\ny = (") == ["train.ipynb:cell 2:2:5: TL000 syntax error: '(' was never closed"]


@pytest.mark.parametrize(
    "line",
    [
        "%matplotlib inline",
        "!pip install torch",
        "!!ls",
        "%%time",
        "?DataParallel",
        "DataParallel?",
        "torch.nn.DataParallel??",
        "files = !ls *.pt",
        "t = %timeit -o f()",
        "!pip install \\\n    torch \\\n    timm",
        "if True:\n    !nvidia-smi\n",
        "%%capture out\n",
    ],
)
def test_magics_are_masked_and_what_follows_keeps_its_place(found: Any, line: str) -> None:
    rows = len(line.splitlines()) + 1
    assert found(f"{line.rstrip()}\nx = DataParallel(1)", "import torch") == [f"train.ipynb:cell 1:{rows}:5: TL501"]


@pytest.mark.parametrize("magic", ["%%bash", "%%javascript", "%%html", "%%writefile train.py", "%%sql x"])
def test_cells_of_another_language_are_masked_whole(found: Any, magic: str) -> None:
    assert found(f"\n{magic}\nfor f in *; do (\nDataParallel(1)\n", "import torch") == []


def test_what_only_looks_like_a_magic_is_left_alone(found: Any) -> None:
    cell = 'import torch\nx = (a\n%b)\ny = """\n!ls\n"""\nz = a \\\n% DataParallel(1)\n# why?\n'
    assert found(cell) == ["train.ipynb:cell 1:8:3: TL501"]


def test_the_report_shows_the_magic_as_it_was_written(lint: Any, project: Path) -> None:
    (project / "train.ipynb").write_text(notebook("import torch\n%matplotlib inline\nDataParallel(1)"))
    assert "\n2 | %matplotlib inline\n" in lint("check").stdout


def test_suppressions_work_in_cells(found: Any) -> None:
    assert found("import torch", "%time\nDataParallel(1)  # trainlint: ignore[TL501]") == []


def test_other_languages_are_passed_over(found: Any) -> None:
    assert found("library(torch)\nx <- (", language="R") == []


def test_old_format_with_worksheets(lint: Any, project: Path) -> None:
    cells = [{"cell_type": "code", "language": "python", "input": ["import torch\n", "DataParallel(1)"]}]
    (project / "old.ipynb").write_text(json.dumps({"worksheets": [{"cells": cells}], "nbformat": 3}))
    assert "old.ipynb:cell 1:2:1: TL501" in lint("check", "--output-format", "concise").stdout


def test_stdin_with_the_name_of_a_notebook(lint: Any, project: Path) -> None:
    text = notebook("import torch\nDataParallel(1)")
    result = lint("check", "-", "--stdin-filename", "x.ipynb", "--output-format", "concise", stdin=text)
    assert result.stdout.startswith("x.ipynb:cell 1:2:1: TL501")


def test_why_takes_the_cell(lint: Any, project: Path) -> None:
    (project / "train.ipynb").write_text(notebook("import torch\n", "x = 1\ny = 2"))
    assert lint("check", "--why", "train.ipynb:2:2").stdout == "line 3: y = 2\n"
    assert "has 2 code cells, not 3" in lint("check", "--why", "train.ipynb:3:1").stderr

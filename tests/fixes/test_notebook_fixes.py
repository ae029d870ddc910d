"""A fix in a notebook's cell: whatever its line ends and however its lines are split, nothing else in the JSON changes."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainlint.discovery import discover
from trainlint.fixing import fix
from trainlint.settings import Configuration

CELL = [
    "import torch",
    "from torch.utils.data import DataLoader",
    "# a note",
    "",
    "text = '''a",
    "  b'''",
    "def train(dataset, model):",
    "    loader = DataLoader(dataset, num_workers=2, pin_memory=True)",
    "    for images in loader:",
    "        images = images.to('cuda')",
    "        model.forward(images).sum().backward()",
    "        torch.cuda.empty_cache()",
    "        model.zero_grad()",
]
GONE = "        torch.cuda.empty_cache()"
NEWLINES = st.sampled_from(["\n", "\r\n", "\r"])


def fixed(tmp_path: Path, data: bytes, select: str = "TL106,TL707,TL105") -> bytes:
    (tmp_path / ".git").mkdir(exist_ok=True)
    codes = ", ".join(f'"{code}"' for code in select.split(","))
    (tmp_path / "trainlint.toml").write_text(f'select = [{codes}]\ntorch-version = "2.5"\n')
    path = tmp_path / "train.ipynb"
    path.write_bytes(data)
    done = fix(discover([str(path)], Configuration()), unsafe=True, write=True, progress=lambda results, _: results)
    assert not done.dropped and not done.problems and not done.unsettled
    return path.read_bytes()


def notebook(source: object, indent: int | None = 1) -> bytes:
    cells = [
        {"cell_type": "markdown", "metadata": {}, "source": "# Title\r\n\u2028caf\u00e9"},
        {"cell_type": "code", "metadata": {}, "execution_count": 7, "outputs": [], "source": source},
    ]
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=indent).encode()


def repaired(lines: list[str]) -> list[str]:
    return [
        line.replace(".to('cuda')", ".to('cuda', non_blocking=True)").replace("model.forward(", "model(")
        for line in lines
    ]


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    ends=st.lists(NEWLINES, min_size=len(CELL), max_size=len(CELL)),
    last=st.booleans(),
    cuts=st.sets(st.integers(1, 400)),
    shape=st.sampled_from(["text", "lines", "pieces"]),
)
def test_any_line_ends_and_any_splitting(
    tmp_path_factory: pytest.TempPathFactory, ends: list[str], last: bool, cuts: set[int], shape: str
) -> None:
    ends = ends[:-1] + ([ends[-1]] if last else [""])
    lines = [line + end for line, end in zip(CELL, ends, strict=True)]
    text = "".join(lines)
    expected = "".join(line for line in repaired(lines) if not line.startswith(GONE))
    source: object = text
    if shape == "lines":
        source = re.findall("[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", text)
    elif shape == "pieces":
        edges = [0, *sorted(cut for cut in cuts if cut < len(text)), len(text)]
        source = [text[a:b] for a, b in pairwise(edges)]
    after = json.loads(fixed(tmp_path_factory.mktemp("book"), notebook(source)))
    before = json.loads(notebook(source))
    written = after["cells"][1].pop("source")
    before["cells"][1].pop("source")
    assert after == before
    assert ("".join(written) if isinstance(written, list) else written) == expected
    assert type(written) is type(source)


def test_a_line_that_a_fix_adds_ends_as_the_cell_does(tmp_path: Path) -> None:
    lines = [
        "import torch\r",
        "from torch.utils.data import DataLoader\r",
        "from torchvision import datasets, models, transforms\r",
        "pictures = datasets.ImageFolder('train', transforms.ToTensor())\r",
        "loader = DataLoader(pictures, batch_size=32, shuffle=True, pin_memory=True)\r",
        "model = models.resnet18().cuda()\r",
        "for x, y in loader:\r",
        "    model(x.cuda()).sum().backward()",
    ]
    after = json.loads(fixed(tmp_path, notebook(lines), "TL303"))["cells"][1]["source"]
    assert after[:3] == ["import os\r", "\r", "import torch\r"]
    assert after[6] == lines[4].replace("=True)\r", "=True, num_workers=min(8, os.cpu_count() or 1))\r")
    assert after[3:6] + after[7:] == lines[1:4] + lines[5:]

"""Fixes of files whose syntax only newer Pythons know: made and checked on libcst's tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainlint.discovery import discover
from trainlint.edits import is_clean
from trainlint.fixing import Fixed, fix
from trainlint.settings import Configuration

# Python 3.10 to 3.13 refuse t-strings and `except` without parentheses.
NEWER = """\
import torch
from torch.utils.data import DataLoader
from torchvision import datasets, transforms


def train(model, opt, folder):
    images = datasets.ImageFolder(folder, transforms.ToTensor())
    loader = DataLoader(images, batch_size=32, shuffle=True, pin_memory=True)
    model.cuda()
    for x, y in loader:
        opt.zero_grad()
        model.forward(x.cuda(non_blocking=True)).sum().backward()
        opt.step()
        torch.no_grad()
        shown = model(x.cuda(non_blocking=True))
        text = '''
  {shown.shape}'''
    try:
        return t"{folder} {text}"
    except ValueError, OSError:
        return None
"""


def fixed(tmp_path: Path, text: str, *codes: str) -> tuple[str, Fixed]:
    (tmp_path / ".git").mkdir(exist_ok=True)
    select = ", ".join(f'"{code}"' for code in codes)
    (tmp_path / "trainlint.toml").write_text(f"select = [{select}]\n")
    path = tmp_path / "train.py"
    path.write_bytes(text.encode())
    done = fix(discover([str(path)], Configuration()), unsafe=True, write=True, progress=lambda results, _: results)
    return path.read_bytes().decode(), done


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_it_is_fixed_as_any_other_file(tmp_path: Path, newline: str) -> None:
    after, done = fixed(tmp_path, NEWER.replace("\n", newline), "TL303", "TL707", "TL106")
    assert not done.dropped and not done.problems
    expected = NEWER.replace("import torch\n", "import os\n\nimport torch\n", 1)
    expected = expected.replace("pin_memory=True)", "pin_memory=True, num_workers=min(8, os.cpu_count() or 1))")
    assert after == expected.replace("model.forward(", "model(").replace("\n", newline)


def test_what_needs_python_s_own_tokens_is_left_alone_where_it_cannot_read_them(tmp_path: Path) -> None:
    after, done = fixed(tmp_path, NEWER, "TL207")
    assert not done.dropped and not done.problems
    put_under = NEWER.replace("torch.no_grad()\n        shown", "with torch.no_grad():\n            shown").replace(
        "\n        text = ", "\n            text = "
    )
    assert after in (NEWER, put_under)


def test_a_change_beyond_its_statement_is_seen() -> None:
    text = "a = t'{b}'\nfor c in d:\n    e(1)  # one\nelse:\n    f()\n"
    at = text.index("1")
    assert is_clean(text, text.replace("e(1)", "e(2)"), [(at, at + 1, "2")])
    assert not is_clean(text, text.replace("e(1)", "e(2)").replace("f()", "g()"), [(at, at + 1, "2")])
    assert not is_clean(text, text.replace("e(1)", "e("), [(at, at + 2, "")])
    assert not is_clean(text, text.replace("c in d", "c in b").replace("e(1)", "e(2)"), [(at, at + 1, "2")])

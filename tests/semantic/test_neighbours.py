"""Who imports a file is read off the bytes of the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainlint.leftover_imports import _text
from trainlint.semantic.project import Project


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"], ids=["plain", "marked"])
@pytest.mark.parametrize("newline", [b"\n", b"\r\n"], ids=["lf", "crlf"])
def test_an_import_in_the_first_row_counts(tmp_path: Path, mark: bytes, newline: bytes) -> None:
    package = tmp_path / "saving"
    package.mkdir()
    handler, init, script = package / "handler.py", package / "__init__.py", tmp_path / "train.py"
    handler.write_bytes(mark + newline.join((b"import torch", b"", b"def save(net): torch.save(net, 'net.pt')", b"")))
    init.write_bytes(mark + newline.join((b"from .handler import (", b"\tsave,", b")", b"")))
    script.write_bytes(
        mark + newline.join((b"from saving import save", b"import torch", b"save(torch.nn.ReLU())", b""))
    )
    neighbours = Project(str(tmp_path), _text).neighbours
    assert set(neighbours.family(str(handler))) == {str(handler), str(init), str(script)}

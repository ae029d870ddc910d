"""What a statement costs does not grow with its findings times its length."""

from __future__ import annotations

from pathlib import Path

import libcst as cst
import pytest
from click.testing import CliRunner

from trainlint.cli.group import cli


def _generations(folder: Path, findings: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """How often the code of the module is written out while that many calls in one function are told of."""
    rows = ["import torch", "", "", "def f(x, kind):"]
    for number in range(findings):
        rows += [f"    {'elif' if number else 'if'} kind == {number}:", "        x = torch.qr(x)"]
    file = folder / f"chain_{findings}.py"
    file.write_text("\n".join(rows) + "\n", encoding="utf-8")
    count = 0
    real = cst.Module._codegen_impl

    def counted(self: cst.Module, *given: object) -> None:
        nonlocal count
        count += 1
        real(self, *given)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(cst.Module, "_codegen_impl", counted)
        found = CliRunner().invoke(cli, ["check", "--isolated", "--no-cache", "--select", "TL902", str(file)])
    assert found.output.count("TL902") >= findings
    return count


def test_a_chain_of_branches_is_written_out_as_often_with_many_findings_as_with_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _generations(tmp_path, 30, monkeypatch) == _generations(tmp_path, 3, monkeypatch) > 0

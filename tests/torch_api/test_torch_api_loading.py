"""What asking costs: nothing of torch is imported, and the files stay small."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from trainlint import torch_api

FOLDER = Path(torch_api.__file__).parent


def modules_after(code: str) -> set[str]:
    script = f"import sys\n{code}\nprint(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_asking_imports_neither_torch_nor_packaging() -> None:
    loaded = modules_after(
        "from trainlint import torch_api as t\n"
        "t.lookup('torch.compile'), t.keyword('torch.load', 'mmap'), t.changes_of('torch.qr'), t.inventions()\n"
        "t.resolve_range(None, (2, 5), t.versions())"
    )
    assert loaded.isdisjoint({"torch", "torchvision", "packaging", "numpy", "ast"})
    assert "trainlint.torch_api.table" in loaded
    assert not any(name.startswith("trainlint.torch_api.extraction") for name in loaded)


def test_importing_reads_no_table() -> None:
    code = (
        "import sys\n"
        "def refuse(event, args):\n"
        "    if event == 'open' and str(args[0]).endswith(('.txt', '.json')): raise AssertionError(args[0])\n"
        "sys.addaudithook(refuse)\n"
        "import trainlint.torch_api"
    )
    assert "trainlint.torch_api" in modules_after(code)


@pytest.mark.parametrize(
    ("file", "kilobytes"), [("names.txt", 560), ("parameters.txt", 360), ("changes.json", 130), ("inventions.json", 70)]
)
def test_the_files_are_small(file: str, kilobytes: int) -> None:
    assert (FOLDER / file).stat().st_size < kilobytes * 1000


@pytest.mark.parametrize("file", ["names.txt", "parameters.txt"])
def test_the_tables_are_sorted_and_end_their_lines_alike(file: str) -> None:
    raw = (FOLDER / file).read_bytes()
    assert b"\r" not in raw and raw.endswith(b"\n")
    names = [line.partition(" ")[0] for line in raw.decode("ascii").splitlines() if line[0] not in "#@"]
    assert len(set(names)) == len(names)
    for project in ("functorch", "torch", "torchvision"):
        own = [name for name in names if name.partition(".")[0] == project]
        assert own or (file, project) == ("parameters.txt", "functorch")
        assert file == "names.txt" or own == sorted(own)  # there modules come first, then classes

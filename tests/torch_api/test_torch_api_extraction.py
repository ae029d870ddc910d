"""Reading a wheel: what binds a name, what hides one, and what the table says of it afterwards."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from trainlint.torch_api import regenerate, table
from trainlint.torch_api.extraction.align import align
from trainlint.torch_api.extraction.encode import encode_names, encode_parameters
from trainlint.torch_api.extraction.library import Library
from trainlint.torch_api.extraction.snapshot import Snapshot, take
from trainlint.torch_api.extraction.wheels import WheelNotFound, read_wheel, wheel


def wheel_of(folder: Path, files: dict[str, str], name: str = "torch-2.0.0-cp311-none-any.whl") -> Path:
    path = folder / name
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)
    return path


@pytest.fixture
def library(tmp_path: Path) -> Library:
    files = {
        "torch/__init__.py": "from torch import nn as nn\n",
        "torch/nn/__init__.py": (
            "import math\n"
            "from typing import TYPE_CHECKING\n"
            "from .functional import *\n"
            "from .modules import Linear, Conv as Conv2d\n"
            "from . import init\n"
            "from torch import _missing\n"
            "if TYPE_CHECKING:\n    from .functional import hidden\n"
            "try:\n    from .modules import fast\nexcept ImportError:\n    fast = None\n"
            "helper = 1\ndel helper\n"
            "a = b = lambda x, y: x\n"
            "old = init.normal_\n"
        ),
        "torch/nn/functional.py": (
            "__all__ = ['relu']\n__all__ += ['gelu']\n__all__.append('made_at_run_time')\n"
            "def relu(input, inplace=False): ...\n"
            "def gelu(input, *, approximate='none', **other): ...\n"
            "def hidden(): ...\n"
            "def _private(): ...\n"
        ),
        "torch/nn/modules.py": (
            "class Module:\n"
            "    def __init__(self, *args): self.training = True\n"
            "    def forward(self): ...\n"
            "class Linear(Module):\n"
            "    bias: int\n"
            "    def __init__(self, rows, columns, bias=True): self.weight = rows\n"
            "class Conv(Linear): ...\n"
            "class Odd(some.unknown.Base): ...\n"
            "def fast(): ...\n"
        ),
        "torch/nn/init.py": "def normal_(tensor, mean=0.0): ...\nimport os as _os\n",
        "torch/loops.py": "for name in ('one', 'two'):\n    globals()[name] = print\n",
        "torch/dynamic.py": "def fill():\n    for name in names():\n        globals()[name] = 1\n",
        "torch/lazy.py": "def __getattr__(name): ...\n",
        "torch/outer.py": "from multiprocessing import *\n",
        "torch/replaced.py": (
            "import sys\nclass PropModule: ...\n"
            "class Flags(PropModule):\n    enabled = property()\n"
            "sys.modules[__name__] = Flags()\n"
        ),
        "torch/_C/__init__.pyi": "class Tensor:\n    def item(self): ...\n",
        "torch/data/readme.txt": "no module",
        "other/__init__.py": "x = 1\n",
    }
    return read_wheel(wheel_of(tmp_path, files))


def names(library: Library, module: str) -> set[str]:
    return set(library.names(module))


def test_imports_assignments_and_definitions_bind(library: Library) -> None:
    found = library.names("torch.nn")
    assert {
        "relu",
        "gelu",
        "made_at_run_time",
        "Linear",
        "Conv2d",
        "init",
        "functional",
        "fast",
        "a",
        "b",
        "old",
    } <= set(found)
    assert found["Conv2d"].origin == "torch.nn.modules.Conv"
    assert found["old"].origin == "torch.nn.init.normal_"
    assert found["init"].kind == "module"
    assert found["fast"].kind == "function"
    assert found["math"].kind == "external"
    assert found["_missing"].kind == "value"  # an import that cannot be followed still binds


def test_what_is_deleted_private_or_for_type_checkers_does_not(library: Library) -> None:
    assert names(library, "torch.nn").isdisjoint({"helper", "hidden", "_private"})


def test_modules_that_add_names_unseen_are_open(library: Library) -> None:
    spaces = {leaf: library.namespace(f"torch.{leaf}").open for leaf in ("dynamic", "lazy", "outer", "nn")}
    assert spaces == {"dynamic": True, "lazy": True, "outer": True, "nn": False}


def test_a_loop_over_literals_binds_what_it_lists(library: Library) -> None:
    assert {"one", "two"} <= names(library, "torch.loops")


def test_a_module_that_is_replaced_by_an_object_has_its_members(library: Library) -> None:
    assert {"enabled", "m"} <= names(library, "torch.replaced")


def test_only_the_library_itself_is_read(library: Library) -> None:
    assert "other" not in library.modules
    assert library.is_package("torch.nn") and not library.is_package("torch.nn.init")
    assert library.is_stub("torch._C")


def test_a_snapshot_has_members_and_parameters(library: Library) -> None:
    snapshot = take(library)
    linear = snapshot.classes["torch.nn.modules.Linear"]
    assert linear.members == ("bias", "weight")
    assert linear.bases == ("torch.nn.modules.Module",)
    assert not linear.open and snapshot.classes["torch.nn.modules.Odd"].open
    assert snapshot.parameters["torch.nn.modules.Linear"] == "rows columns bias"
    assert snapshot.parameters["torch.nn.modules.Conv"] == "rows columns bias"  # inherited
    assert snapshot.parameters["torch.nn.functional.gelu"] == "input * approximate **"
    assert "math" in snapshot.externals


def test_overloads_of_a_stub_are_merged(tmp_path: Path) -> None:
    stub = (
        "from typing import overload\n"
        "@overload\ndef std(input, dim, *, keepdim=False): ...\n"
        "@overload\ndef std(input, unbiased=True): ...\n"
        "@overload\ndef cat(tensors, dim=0): ...\n"
        "@overload\ndef cat(tensors, dim=0, *, out=None): ...\n"
    )
    files = {"torch/__init__.py": "", "torch/_C/__init__.pyi": "", "torch/_C/_VariableFunctions.pyi": stub}
    snapshot = take(read_wheel(wheel_of(tmp_path, files)))
    assert snapshot.modules["torch"].names["std"].origin == "torch._C._VariableFunctions.std"
    # They disagree about the second position, so that no position means anything.
    assert snapshot.parameters["torch._C._VariableFunctions.std"] == "* input dim keepdim unbiased"
    assert snapshot.parameters["torch._C._VariableFunctions.cat"] == "tensors dim * out"


def releases(tmp_path: Path, *sources: dict[str, str]) -> list[Snapshot]:
    return [
        take(read_wheel(wheel_of(tmp_path, files, f"torch-2.{index}.0-cp311-none-any.whl")))
        for index, files in enumerate(sources)
    ]


def test_releases_are_merged_into_lines(tmp_path: Path) -> None:
    old = {
        "torch/__init__.py": "from torch.tensor import Tensor\ndef gone(a): ...\ndef kept(a): ...\n",
        "torch/tensor.py": "class Tensor:\n    def item(self): ...\n    def old(self): ...\n",
    }
    new = {
        "torch/__init__.py": "from torch._tensor import Tensor\nimport math\ndef kept(a, b): ...\ndef came(): ...\n",
        "torch/_tensor.py": "class Tensor:\n    def item(self): ...\n    def new(self): ...\n",
    }
    snapshots = align(releases(tmp_path, old, new))
    lines = dict(line.split(" ", 1) for line in encode_names(snapshots))
    head = lines["torch"]
    assert head.startswith("m01 ")
    assert {"gone~00", "kept", "came~11", "!math~11"} <= set(head.split())
    assert "@torch._tensor +Tensor" in head
    # The class moved to another file; its members are on one line all the same.
    assert lines["torch._tensor.Tensor"] == "c01 - item new~11 old~00"
    assert "torch.tensor.Tensor" not in lines
    assert list(encode_parameters(snapshots)) == ["torch.came 11:", "torch.gone 00:a", "torch.kept 00:a|11:a b"]


def test_what_is_written_is_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = {"2.0.0": "0.15.0", "2.1.0": "0.16.0"}
    monkeypatch.setattr(regenerate, "PAIRS", pairs)
    old = {
        "torch/__init__.py": "import math\nfrom torch import nn\ndef gone(a): ...\n",
        "torch/nn.py": "class Odd(dict): ...\n",
    }
    new = {"torch/__init__.py": "import math\nfrom torch import nn\n", "torch/nn.py": "class Linear: ...\n"}
    for (number, vision), files in zip(pairs.items(), (old, new), strict=True):
        wheel_of(tmp_path, files, f"torch-{number}-cp311-none-any.whl")
        wheel_of(tmp_path, {"torchvision/__init__.py": "x = 1\n"}, f"torchvision-{vision}-cp311-none-any.whl")
    first = regenerate.build(list(pairs), tmp_path)
    assert regenerate.build(list(pairs), tmp_path) == first  # the same bytes each time
    text, parameters = first
    assert "gone 00:a" in parameters
    read = table._Table(text)
    assert read.releases == {"torch": ["2.0.0", "2.1.0"], "torchvision": ["0.15.0", "0.16.0"]}
    assert read.members("torch")["gone"].span == (0, 0)
    assert read.members("torch")["math"].kind == "external"
    assert read.is_open("torch.nn.Odd") and not read.is_open("torch.nn.Linear")
    assert read.span("torch.nn.Linear") == (1, 1)


def test_a_release_that_cannot_be_had_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "false")
    with pytest.raises(WheelNotFound, match=r"torch 0\.0\.1"):
        wheel("torch", "0.0.1", tmp_path)


def test_an_unknown_release_is_a_usage_error(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as stopped:
        regenerate.main(["--versions", "0.0.1", "--cache", str(tmp_path)])
    assert stopped.value.code == 2
    assert "PAIRS" in capsys.readouterr().err

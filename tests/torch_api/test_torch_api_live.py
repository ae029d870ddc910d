"""The tables against an installed torch: what it has is not called missing, what it has not is not called there."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trainlint import torch_api
from trainlint.torch_api import lookup, table, version

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

HERE = version(str(torch.__version__))

# The table is right about these, and this machine's torch lacks them: no CUDA, another platform, packages that are not
# installed, a script's variables, a module that hides its own names behind an object.
ELSEWHERE = (
    "torch.GreenContext",
    "torch.cuda.",
    "torch.backends.python_native.",
    "torch.backends.xeon.run_cpu.",
    "torch.distributed.ProcessGroup",
    "torch.distributed.distributed_c10d.ProcessGroup",
    "torch.distributed.checkpoint.format_utils.",
    "torch.distributed.elastic.rendezvous.etcd",
    "torch.distributed.rpc.",
    "torch.fx.experimental.",
    "torch.utils.benchmark.examples.",
    "torch.utils.benchmark.utils.compile.",
    "torch.utils.data.datapipes.gen_pyi.",
    "torch.utils.tensorboard.",
)
# `__all__` of these names what the module does not have.
PROMISED = (
    "torch.sparse.solve",
    "torch.ao.quantization.",
    "torch.quantization.WeightObserver",
)


def listed() -> Iterator[str]:
    """The names that the table gives to this release, module by module."""
    read = table._table()
    for owner in read.lines:
        if read.is_class(owner) or owner.startswith("torchvision") or torch_api.lookup(owner).at(HERE) is not True:
            continue
        for leaf, entry in read.members(owner).items():
            if entry.kind in ("class", "function", "value") and not leaf.startswith("_"):
                name = f"{owner}.{leaf}"
                if lookup(name).at(HERE) is True:
                    yield name


@pytest.fixture(scope="module")
def live() -> dict[str, Any]:
    script = Path(__file__).parent / "live_names.py"
    asked = "\n".join(listed())
    done = subprocess.run([sys.executable, str(script)], input=asked, capture_output=True, text=True, check=True)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def test_the_installed_release_is_in_the_table() -> None:
    assert torch_api.is_known(HERE)


def test_no_public_name_is_called_missing(live: dict[str, Any]) -> None:
    names = [f"{module}.{name}" for module, names in live["names"].items() for name in names]
    assert len(names) > 10_000
    assert [name for name in names if lookup(name).at(HERE) is False] == []


def test_no_public_member_is_called_missing(live: dict[str, Any]) -> None:
    members = [f"{owner}.{member}" for owner, members in live["members"].items() for member in members]
    assert len(members) > 100_000
    assert [name for name in members if lookup(name).at(HERE) is False] == []


def test_hardly_a_name_is_called_there_that_is_not(live: dict[str, Any]) -> None:
    wrong = [name for name in live["missing"] if not name.startswith((*ELSEWHERE, *PROMISED))]
    assert wrong == []


def test_what_is_called_a_module_is_one(live: dict[str, Any]) -> None:
    wrong = [
        f"{module}.{name}"
        for module, names in live["names"].items()
        for name, kind in names.items()
        if lookup(f"{module}.{name}").kind == "module" and kind != "module"
    ]
    assert wrong == []

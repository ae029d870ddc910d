"""What one file costs, beside what Python and the libraries cost that any such program needs."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from benchmarks.rounds import Contenders, Measured, alternate
from benchmarks.running import Cost, measure
from benchmarks.tools import ROOT, Installed

BARE = "`python -c pass`"
CLICK = "`import click`"
CLICK_LIBCST = "`import click, libcst`"
CACHED = "trainlint, a script with findings, cached"
CLEAN = "trainlint, a script without findings"
IDLE = "trainlint, a file that is not about training"
FINDINGS = "trainlint, a script with findings"

_CLEAN = """\
import torch
import torch.nn.functional as F


def train(model, loader, optimizer, device):
    model.train()
    for images, labels in loader:
        images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
"""


def start_up(
    trainlint: Installed, ruff: Installed | None, scratch: Path, rounds: int, say: Callable[[str], None]
) -> Measured:
    folder = scratch / "start-up"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "pyproject.toml").write_text('[project]\nname = "start-up"\n', "utf-8")
    (folder / "idle.py").write_text("print('nothing to see')\n", "utf-8")
    (folder / "clean.py").write_text(_CLEAN, "utf-8")
    shutil.copyfile(ROOT / "fixtures" / "scripts" / "train_cifar_like.py", folder / "train.py")

    def python(code: str) -> Callable[[], Cost]:
        return lambda: measure([str(trainlint.python), "-c", code], folder)

    def check(tool: Installed, file: str, *arguments: str, code: int = 0) -> Callable[[], Cost]:
        command = tool.command(file, arguments=arguments)
        return lambda: measure(command, folder, (code,))

    cold = ("check", "--no-cache")
    contenders: dict[str, Callable[[], Cost]] = {
        BARE: python("pass"),
        CLICK: python("import click"),
        "`import libcst`": python("import libcst"),
        CLICK_LIBCST: python("import click, libcst"),
        IDLE: check(trainlint, "idle.py", *cold),
        CLEAN: check(trainlint, "clean.py", *cold),
        CACHED: check(trainlint, "train.py", "check", code=1),
        FINDINGS: check(trainlint, "train.py", *cold, code=1),
    }
    if ruff is not None:
        contenders["Ruff F, the same script"] = check(ruff, "train.py", *ruff.tool.arguments)
    warm_up(contenders)
    return alternate(contenders, rounds, say)


def warm_up(contenders: Contenders) -> None:
    """Once each, so that bytecode, caches and the disk are as they are from the second time on."""
    for run in contenders.values():
        run()

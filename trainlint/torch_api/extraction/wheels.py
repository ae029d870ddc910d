"""Wheels of torch and torchvision: fetched through pip, read as archives, never installed or imported."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

from trainlint.torch_api.extraction.library import Library
from trainlint.torch_api.extraction.runtime_names import add_runtime_names
from trainlint.torch_api.versions import version

# The wheels for macOS hold the same .py and .pyi files as those for Linux and are a tenth of the size. Each release is
# asked for with the first pair that has it: 1.12 and 1.13 have none for Python 3.11, older ones none for arm64.
_PLATFORMS = (
    ("3.11", ("macosx_11_0_arm64", "macosx_12_0_arm64", "macosx_14_0_arm64")),
    ("3.10", ("macosx_11_0_arm64",)),
    ("3.8", ("macosx_10_9_x86_64",)),
)
_ROOTS = {"torch": ("torch", "functorch"), "torchvision": ("torchvision",)}


class WheelNotFound(Exception):
    """No wheel of the asked release could be had."""


def wheel(project: str, version: str, cache: Path) -> Path:
    """The wheel of `project` at `version`, from the cache folder or fetched into it.

    Raises:
        WheelNotFound: pip finds no wheel for any of the platforms.
    """
    for found in sorted(cache.glob(f"{project}-{version}-*.whl")):
        return found
    said = ""
    for python, platforms in _PLATFORMS:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        command += ["--python-version", python, "--dest", str(cache), f"{project}=={version}"]
        for platform in platforms:
            command += ["--platform", platform]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        for found in sorted(cache.glob(f"{project}-{version}-*.whl")):
            return found
        said = done.stderr
    raise WheelNotFound(f"no wheel of {project} {version}: {said.strip()}")


def read_wheel(path: Path) -> Library:
    """The modules in a wheel. A `.pyi` file counts only where there is no `.py` file beside it."""
    archive = zipfile.ZipFile(path)
    project, number = path.name.split("-")[:2]
    sources: dict[str, Callable[[], str]] = {}
    packages: set[str] = set()
    stubs: set[str] = set()
    files = [name for name in archive.namelist() if name.endswith((".py", ".pyi"))]
    for name in sorted(files):
        if name.partition("/")[0] not in _ROOTS[project]:
            continue
        parts = name.rpartition(".")[0].split("/")
        if parts[-1] == "__init__":
            parts.pop()
            packages.add(".".join(parts))
        packages.update(".".join(parts[:depth]) for depth in range(1, len(parts)))
        module = ".".join(parts)
        if name.endswith(".pyi"):
            if module in sources:
                continue
            stubs.add(module)
        sources[module] = _reader(archive, name)
    added = add_runtime_names if project == "torch" else None
    return Library(sources, packages, stubs, added, lambda: _extension(archive), version(number))


def _extension(archive: zipfile.ZipFile) -> bytes:
    """The library that holds the names which torch's C++ code shows to Python."""
    names = [name for name in archive.namelist() if name.rpartition("/")[2].startswith("libtorch_python.")]
    return b"".join(archive.read(name) for name in names)


def _reader(archive: zipfile.ZipFile, name: str) -> Callable[[], str]:
    return lambda: archive.read(name).decode("utf-8")

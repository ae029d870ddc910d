"""The files that the linters are timed on: packages from PyPI, and trees made of some of their files."""

from __future__ import annotations

import hashlib
import random
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

PINS = Path(__file__).with_name("corpus.txt")
_PIN = re.compile(r"^([\w.-]+)==(\S+) --hash=sha256:([0-9a-f]{64})$", re.MULTILINE)


@dataclass(frozen=True)
class Tree:
    """A folder of Python files."""

    folder: Path
    files: int
    lines: int

    @property
    def kilolines(self) -> float:
        return self.lines / 1000


def pins() -> list[tuple[str, str, str]]:
    """(package, version, SHA-256 of its wheel)"""
    return [(name, version, digest) for name, version, digest in _PIN.findall(PINS.read_text(encoding="utf-8"))]


def fetch(cache: Path, names: Sequence[str] = ()) -> Path:
    """The folder that holds the packages (or those named), each as a project of its own. Downloads what is not there."""
    wanted = [pin for pin in pins() if not names or pin[0] in names]
    folder = cache / ("corpus-" + hashlib.sha256(repr(wanted).encode()).hexdigest()[:12])
    if folder.is_dir():
        return folder
    wheels = cache / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    chosen = wheels / "wanted.txt"
    chosen.write_text("".join(f"{n}=={v} --hash=sha256:{d}\n" for n, v, d in wanted), encoding="utf-8")
    options = ("--quiet", "--no-deps", "--only-binary=:all:", "--require-hashes", "--dest", str(wheels))
    subprocess.run([sys.executable, "-m", "pip", "download", *options, "-r", str(chosen)], check=True)
    partial = folder.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    for name, version, _ in wanted:
        (wheel,) = wheels.glob(f"{name.replace('-', '_')}-{version}-*.whl")
        unpack(wheel, partial / name)
        (partial / name / "pyproject.toml").write_text(f'[project]\nname = "{name}"\nversion = "{version}"\n', "utf-8")
    partial.rename(folder)
    return folder


def unpack(wheel: Path, folder: Path) -> None:
    """The Python files of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if name.endswith(".py")])


def tree(folder: Path) -> Tree:
    files = python_files(folder)
    return Tree(folder, len(files), sum(file.read_bytes().count(b"\n") for file in files))


def python_files(folder: Path) -> list[Path]:
    """In the order of their paths, which is the same on every machine."""
    return sorted(folder.rglob("*.py"), key=lambda file: file.relative_to(folder).as_posix())


def sample(files: Sequence[Path], count: int, seed: int = 0) -> list[Path]:
    """`count` of the files, the same ones on every machine; all of them if there are no more."""
    if count >= len(files):
        return list(files)
    return sorted(random.Random(seed).sample(list(files), count))


def copy(files: Iterable[Path], origin: Path, folder: Path) -> Tree:
    """A new tree of some files of `origin`, with the pyproject.toml of their packages."""
    shutil.rmtree(folder, ignore_errors=True)
    for file in files:
        place = folder / file.relative_to(origin)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, place)
    for project in origin.glob("*/pyproject.toml"):
        place = folder / project.relative_to(origin)
        if place.parent.is_dir():
            shutil.copyfile(project, place)
    return tree(folder)


def repeat(origin: Path, times: int, folder: Path) -> Tree:
    """One project that holds the same files `times` over, each time as a package of another name."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "pyproject.toml").write_text('[project]\nname = "growth"\n', "utf-8")
    for number in range(1, times + 1):
        shutil.copytree(origin, folder / f"part_{number}", ignore=shutil.ignore_patterns("pyproject.toml"))
    return tree(folder)

"""Runs trainlint and its peers, and reads what they print."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.truth.matching import Said
from benchmarks.truth.peers import Peer

ROOT = Path(__file__).parents[2]
SECONDS = 900  # for one run
OPTIONS = ("--select", "ALL", "--torch-version", "2.5")


class Failed(Exception):
    """A linter did not end in time, or printed something else than findings."""


class Installed(NamedTuple):
    """A peer that is here."""

    peer: Peer
    executable: str
    version: str

    def findings(self, root: Path, files: Sequence[str]) -> tuple[list[Said], int]:
        """What it says of files under `root`, and how many findings are of no kind that trainlint looks for.

        Findings of one kind on one line are one.
        """
        said: list[Said] = []
        others = 0
        for path, line, code, message in _READERS[self.peer.name](self, root, files):
            meaning = self.peer.meaning(code, message)
            if meaning.rules:
                end = sys.maxsize if meaning.whole_file else line
                said.append(Said(path, meaning.rules, (0, line), (0, end), advice=False))
            else:
                others += 1
        return list(dict.fromkeys(said)), others


Row = tuple[str, int, str, str]  # path, line, code, message


def find(peer: Peer, folders: Sequence[Path]) -> Installed | None:
    """The peer in one of these folders of executables, None where it is not."""
    executable = shutil.which(peer.command, path=os.pathsep.join(str(folder.resolve()) for folder in folders))
    if executable is None:
        return None
    ask = f"from importlib.metadata import version; print(version({peer.name!r}))"
    done = subprocess.run(
        [str(Path(executable).parent / "python"), "-c", ask], capture_output=True, text=True, check=False
    )
    return Installed(peer, executable, done.stdout.strip() or "unknown")


def trainlint(root: Path, paths: Sequence[str] = (".",)) -> list[Said]:
    """What trainlint says of a project. Raises Failed."""
    command = [sys.executable, "-m", "trainlint", "check", *OPTIONS, "--output-format", "json", "--no-cache", *paths]
    found = []
    for item in _json(_run(command, root)):
        path, cell = Path(item["filename"]), item.get("cell") or 0
        name = (path.relative_to(root.resolve()) if path.is_absolute() else path).as_posix()
        start, end = (cell, item["location"]["row"]), (cell, item["end_location"]["row"])
        found.append(Said(name, (item["code"],), start, end, item["level"] == "advice"))
    return found


def _torch_preflight(tool: Installed, root: Path, files: Sequence[str]) -> list[Row]:
    printed = _json(_run([tool.executable, "check", "--format", "json", "--jobs", "1", *files], root))
    return [(d["path"], d["line"], d["code"], d["message"]) for d in printed["diagnostics"]]


def _hotpath(tool: Installed, root: Path, files: Sequence[str]) -> list[Row]:
    rows = []
    for file in files:
        printed = _json(_run([tool.executable, "analyze", "--format", "json", tool.peer.options, file], root))
        for item in printed["files"]:
            rows += [(file, f["line"], f["rule_id"], f["message"]) for f in item["findings"]]
    return rows


def _torchfix(tool: Installed, root: Path, files: Sequence[str]) -> list[Row]:
    printed = _run([tool.executable, tool.peer.options, "--jobs", "1", *files], root)
    found = re.findall(r"^(.+?):(\d+):\d+: (TOR\d+) (.*)$", printed, re.MULTILINE)
    return [(path, int(line), code, message) for path, line, code, message in found]


_READERS: dict[str, Callable[[Installed, Path, Sequence[str]], list[Row]]] = {
    "torch-preflight": _torch_preflight,
    "hotpath-ai": _hotpath,
    "TorchFix": _torchfix,
}


def _run(command: list[str], folder: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8", "NO_COLOR": "1"}
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, encoding="utf-8", timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"{Path(command[0]).name} in {folder.name}: not done after {SECONDS} s") from None
    if done.returncode not in (0, 1):
        raise Failed(f"{Path(command[0]).name} in {folder.name}: exit {done.returncode}: {done.stderr[-300:]}")
    return done.stdout


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise Failed(f"no JSON: {error}: {text[:200]}") from None

"""What was asked for, in one record."""

from __future__ import annotations

import re
import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path

UNITS = ("auto", "optimizer", "backward", "batch")
WRITES = ("redirect", "deny", "allow")


@dataclass(frozen=True)
class Options:
    """`script` with `arguments`, or a whole `command`. Times are in seconds, sizes in steps or batches."""

    script: str | None = None
    arguments: tuple[str, ...] = ()
    command: str | None = None  # a whole command line, in place of script and arguments
    python: str = sys.executable
    launcher: str | None = None  # "torchrun --nproc_per_node=2"
    bootstrap: bool = False
    steps: int = 20
    warmup: int = 5
    unit: str = "auto"
    timeout_s: float = 900.0  # the whole of verify
    deadline_s: float = 300.0  # one launch
    limit_train_batches: int | None = None  # None: as many as warm-up and steps need
    limit_eval_batches: int = 8
    evaluate: bool = True
    device: str = "auto"  # "cpu" hides the GPUs
    shim: bool = True
    threads: int | None = None
    seed: int | None = 0
    writes: str = "redirect"
    offline: bool = False
    environment: tuple[tuple[str, str], ...] = ()
    only: tuple[str, ...] = ()  # codes, or path:line
    min_effect: float | None = None
    budget_s: float = 0.0  # for comparisons; 0: only observe
    repeat: int = 1  # processes of the timing pass: what a later --baseline is compared by
    candidates: tuple[str, ...] = ()  # what-if: names of `--try`
    find_batch_size: bool = False
    memory_limit: int | None = None  # bytes, for the search of a batch size
    headroom: float = 0.1  # share of the limit that stays free
    predict: bool = False  # on fake tensors; nothing else is run
    gpu: str | None = None  # the card that the prediction is compared with
    keep_run_dir: bool = False
    cwd: Path = field(default_factory=Path.cwd)

    def command_line(self) -> list[str]:
        """The user's command, exactly: no wrapper, no edit."""
        if self.command is not None:
            words = shlex.split(self.command)
            return with_runner(words) if self.bootstrap else words
        assert self.script is not None
        runner = [RUNNER] if self.bootstrap else []
        start = self._launcher(self.launcher) if self.launcher else [self.python]
        return [*start, *runner, self.script, *self.arguments]

    def _launcher(self, launcher: str) -> list[str]:
        """A launcher of the environment whose Python was named: `torchrun` lies beside it."""
        first, *rest = shlex.split(launcher)
        beside = Path(self.python).parent / first
        return [str(beside) if "/" not in first and beside.exists() else first, *rest]

    @property
    def several_nodes(self) -> bool:
        """Each node makes its own launches then, and must make the same ones as the others."""
        nodes = re.search(r"--nnodes[= ](\S+)", self.launcher or self.command or "")
        return nodes is not None and nodes[1] not in ("1", "1:1")

    def script_path(self) -> Path | None:
        """The script as a path: named, or the first `.py` of a whole command."""
        words = [self.script] if self.script is not None else shlex.split(self.command or "")
        for word in words:
            if word.endswith(".py") or word == self.script:
                return (self.cwd / word).absolute()
        return None

    def name(self) -> str:
        """How messages call the script."""
        path = self.script_path()
        return path.name if path is not None else (self.command or "the command").split()[0]

    def project_roots(self) -> tuple[str, ...]:
        """Folders that are the user's project: the script's project (its nearest folder with a marker, or its own),
        and where it is run.
        """
        roots: list[Path] = []
        path = self.script_path()
        if path is not None:
            folder = path.parent
            marked = (up for up in (folder, *folder.parents) if any((up / mark).exists() for mark in _PROJECT_MARKS))
            roots.append(next(marked, folder))
        roots.append(self.cwd.absolute())
        kept: list[Path] = []
        for root in (root.resolve() for root in roots):
            if root not in kept and root != Path(root.anchor):
                kept.append(root)
        return tuple(str(root).rstrip("/") + "/" for root in kept)


def after_interpreter(words: list[str]) -> int | None:
    """Where the options of the first Python in a command begin. None: the command names none."""
    return next((at + 1 for at, word in enumerate(words) if _INTERPRETER.fullmatch(Path(word).name)), None)


def ignoring_flag(words: list[str]) -> str | None:
    """The option of the interpreter that keeps `sitecustomize` out: -I and -E ignore PYTHONPATH, -S runs none."""
    at = after_interpreter(words)
    for word in words[at:] if at is not None else ():
        if not word.startswith("-") or word.startswith("--") or word[1:2] in ("m", "c", "W", "X"):
            return None
        for letter in "IES":
            if letter in word:
                return "-" + letter
    return None


def with_runner(words: list[str]) -> list[str]:
    """The same command with the runner between the interpreter with its options and the script."""
    at = after_interpreter(words)
    if at is None:
        return words
    while at < len(words) and words[at].startswith("-"):
        word = words[at]
        if not word.startswith("--") and word[-1:] in ("m", "c"):  # -m, -c, and -um for -u -m
            own = [word[:-1]] if len(word) > 2 else []
            return [*words[:at], *own, RUNNER, "-" + word[-1], *words[at + 1 :]]
        at += 2 if word in ("-W", "-X") else 1
    return [*words[:at], RUNNER, *words[at:]]


RUNNER = str(Path(__file__).with_name("bootstrap.py"))
_INTERPRETER = re.compile(r"(python|pypy)[0-9.]*(\.exe)?")
_PROJECT_MARKS = ("pyproject.toml", "trainlint.toml", "setup.py", ".git")

"""What was asked for, in one record."""

from __future__ import annotations

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
    keep_run_dir: bool = False
    cwd: Path = field(default_factory=Path.cwd)

    def command_line(self) -> list[str]:
        """The user's command, exactly: no wrapper, no edit."""
        if self.command is not None:
            return shlex.split(self.command)
        assert self.script is not None
        if self.bootstrap:
            runner = [self.python, str(Path(__file__).with_name("bootstrap.py"))]
            return [*runner, self.script, *self.arguments]
        if self.launcher:
            return [*self._launcher(self.launcher), self.script, *self.arguments]
        return [self.python, self.script, *self.arguments]

    def _launcher(self, launcher: str) -> list[str]:
        """A launcher of the environment whose Python was named: `torchrun` lies beside it."""
        first, *rest = shlex.split(launcher)
        beside = Path(self.python).parent / first
        return [str(beside) if "/" not in first and beside.exists() else first, *rest]

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


_PROJECT_MARKS = ("pyproject.toml", "trainlint.toml", "setup.py", ".git")

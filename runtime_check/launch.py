"""One launch of the user's own command with the probe injected: environment, session, deadline, what it left."""

from __future__ import annotations

import itertools
import json
import math
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from runtime_check.keeper import become_subreaper, descendants, end_all, put_back
from runtime_check.options import Options
from runtime_check.overlaying import with_stub, write_overlay

_HERE = Path(__file__).resolve().parent
_LONGEST_TEMPDIR = 48  # characters: multiprocessing puts sockets below it, and their paths end at 108

#: Loggers that would write to a service or to the project: off, or into the run's folder.
_LOGGERS_OFF = {
    "WANDB_MODE": "disabled",
    "WANDB_SILENT": "true",
    "COMET_MODE": "disabled",
    "NEPTUNE_MODE": "offline",
    "CLEARML_OFFLINE_MODE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "DISABLE_TELEMETRY": "1",
}
_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "WANDB_MODE": "offline"}


FEW_STEPS_S = 90.0  # for a pass of one step: a script that fails there may stay, held by a thread of its own


@dataclass(frozen=True)
class Pass:
    """What one launch is for. `instruments`: of syncs, memory, behaviours, breakdown, lines; none: the timing pass."""

    name: str
    instruments: tuple[str, ...] = ()
    until_eval: bool = False
    start_method: str | None = None  # of multiprocessing; None: the platform's own
    few_steps: bool = False  # one step is enough
    extra: Mapping[str, Any] = field(default_factory=dict)  # what a comparison adds to the probe's configuration
    overlay: Mapping[str, str] = field(default_factory=dict)  # path -> text that is served in its place
    launcher: str | None = None  # in place of the user's, for an arm with another number of ranks


@dataclass(frozen=True)
class Outcome:
    """What a launch left: results by rank, how it ended, its last words."""

    run: Pass
    results: list[dict[str, Any]]
    exit_code: int | None
    why: str  # "script" (ended by itself), "results" (all ranks reported), "deadline", "interrupted"
    wall_s: float
    log_tail: str
    hellos: list[dict[str, Any]] = field(default_factory=list)  # processes that loaded the probe
    torches: list[dict[str, Any]] = field(default_factory=list)  # processes in which torch was hooked
    errors: list[dict[str, Any]] = field(default_factory=list)  # uncaught errors of the script's processes
    waiting_for_input: list[dict[str, Any]] = field(default_factory=list)
    probe_errors: list[str] = field(default_factory=list)
    journal: list[list[str]] = field(default_factory=list)
    left: dict[str, list[Any]] = field(default_factory=dict)
    killed: list[str] = field(default_factory=list)
    fault: str | None = None
    folder: str | None = None  # kept only when asked to

    @property
    def stepped(self) -> bool:
        return any(result["boundaries_ns"] for result in self.results)


class Session:
    """All launches of one `verify`: one temporary folder, removed at the end on every path."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.begun = time.monotonic()
        usual = tempfile.gettempdir()
        parent = usual if len(usual) <= _LONGEST_TEMPDIR else "/tmp"
        remove_stale_folders(Path(parent))
        self.folder = Path(tempfile.mkdtemp(prefix="trainlint-", dir=parent))
        (self.folder / "owner").write_text(str(os.getpid()), encoding="ascii")
        self.shim = False
        self.cancelled = threading.Event()  # ends the launches of other threads (the two arms of a pair)
        self._numbers = itertools.count(1)
        self.lines: dict[str, list[int]] = {}  # path -> lines whose runs the instrument "lines" counts

    def close(self) -> None:
        if self.options.keep_run_dir:
            (self.folder / "owner").unlink(missing_ok=True)  # without an owner, no later run takes it for a stale one
        else:
            shutil.rmtree(self.folder, ignore_errors=True)

    def left_s(self) -> float:
        """Seconds left of the whole run's timeout."""
        return self.options.timeout_s - (time.monotonic() - self.begun)

    def launch(self, run: Pass, progress: Callable[[int], None] | None = None) -> Outcome:
        """Run the command once. Nothing of it is left when this returns or raises."""
        run_dir = self.folder / f"{next(self._numbers)}"
        run_dir.mkdir()
        (run_dir / "files").mkdir()
        (run_dir / "tmp").mkdir()
        deadline = max(1.0, min(self.options.deadline_s, self.left_s(), FEW_STEPS_S if run.few_steps else math.inf))
        try:
            with _lifeline(run_dir) as address:
                config = self._config(run, run_dir, address, deadline)
                config_path = run_dir / "config.json"
                config_path.write_text(json.dumps(config), encoding="utf-8")
                return self._hold(run, run_dir, config_path, deadline, progress)
        finally:
            if not self.options.keep_run_dir:
                shutil.rmtree(run_dir, ignore_errors=True)

    def _config(self, run: Pass, run_dir: Path, address: str | None, deadline: float) -> dict[str, Any]:
        options = self.options
        limit = options.limit_train_batches
        return {
            "protocol": 1,
            "run_dir": str(run_dir),
            "session_dir": str(self.folder),
            "pass": run.name,
            "instruments": list(run.instruments),
            "project": list(options.project_roots()),
            "steps": 1 if run.few_steps else options.steps,
            "warmup": 1 if run.few_steps else options.warmup,
            "start_method": run.start_method,
            "unit": options.unit,
            "deadline_s": deadline,
            "grace_s": 10.0,
            "lifeline": address,
            "until_eval": run.until_eval and options.evaluate,
            # Micro-batches are not known yet; the loader ends training turns by the step count once enough were seen.
            "limit_train_batches": limit if run.until_eval and limit else (2**31 if run.until_eval else None),
            "limit_eval_batches": options.limit_eval_batches if run.until_eval or not options.evaluate else None,
            "cut_evaluations": not options.evaluate,
            "seed": options.seed,
            "shim": self.shim,
            "writes": options.writes,
            "overlay": write_overlay(run.overlay, run_dir),
            **run.extra,
            "lines": self.lines if "lines" in run.instruments else {},
        }

    def environment(self, config_path: Path, run_dir: Path) -> dict[str, str]:
        """The user's environment, plus what injection and safety need."""
        options = self.options
        env = dict(os.environ)
        env["TRAINLINT_PROBE"] = str(config_path)
        inject = str(_HERE / "inject")
        env["PYTHONPATH"] = inject + (os.pathsep + env["PYTHONPATH"] if env.get("PYTHONPATH") else "")
        env["PYTHONUNBUFFERED"] = "1"
        env["PYTHONDONTWRITEBYTECODE"] = "1"
        cache = Path(tempfile.gettempdir()) / f"torchinductor_{_user_name()}"
        env.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache if cache.is_dir() else self.folder / "inductor"))
        env["TMPDIR"] = str(run_dir / "tmp")  # what a killed process leaves behind goes with the run's folder
        env.update(_LOGGERS_OFF)
        env["MLFLOW_TRACKING_URI"] = (run_dir / "files" / "mlruns").as_uri()
        if options.offline:
            env.update(_OFFLINE)
        if options.device == "cpu":
            env["CUDA_VISIBLE_DEVICES"] = ""
        elif options.device.startswith("cuda:"):
            env["CUDA_VISIBLE_DEVICES"] = options.device.removeprefix("cuda:")
        if options.threads:
            env["OMP_NUM_THREADS"] = env["MKL_NUM_THREADS"] = str(options.threads)
        env.update(options.environment)
        return env

    def _started_by(self, run: Pass) -> Options:
        return replace(self.options, launcher=run.launcher) if run.launcher is not None else self.options

    def _hold(
        self, run: Pass, run_dir: Path, config_path: Path, deadline: float, progress: Callable[[int], None] | None
    ) -> Outcome:
        log, ended = run_dir / "log.txt", run_dir / "ended.json"
        order = {
            "command": with_stub(run.overlay, run_dir, self._started_by(run)),
            "cwd": str(self.options.cwd),
            "env": self.environment(config_path, run_dir),
            "log": str(log),
            "ended": str(ended),
            "run_dir": str(run_dir),
            "session_dir": str(self.folder),
            "project": list(self.options.project_roots()),
        }
        order_path = run_dir / "order.json"
        order_path.write_text(json.dumps(order), encoding="utf-8")
        order_path.chmod(0o600)  # it holds the environment
        become_subreaper()  # should the keeper be killed, what it held comes to this process
        strangers = frozenset(descendants(os.getpid()))
        keeper = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_HERE / "keeper.py"), str(order_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        why, waiting = "interrupted", list[dict[str, Any]]()
        try:
            why, waiting = _watch(keeper, run_dir, deadline, progress, self.cancelled.is_set)
        finally:
            complaint = _end(keeper)
            if not ended.exists():
                _keep_in_its_place(run_dir, strangers, self.options)
        return _collect(run, run_dir, why, waiting, complaint, self.options.keep_run_dir)


def _keep_in_its_place(run_dir: Path, strangers: frozenset[int], options: Options) -> None:
    """The keeper was killed: do its work."""
    end_all(strangers)
    left = put_back(str(run_dir), list(options.project_roots()))
    ended: dict[str, Any] = {"code": None, "asked": "keeper", "fault": None, "wall_s": 0.0, "killed": [], "left": left}
    (run_dir / "ended.json").write_text(json.dumps(ended), encoding="utf-8")


def remove_stale_folders(parent: Path) -> None:
    """Folders of runs whose process was killed between two launches, when no keeper was there to remove them."""
    for owner in parent.glob("trainlint-*/owner"):
        try:
            os.kill(int(owner.read_text(encoding="ascii")), 0)
        except ProcessLookupError:
            shutil.rmtree(owner.parent, ignore_errors=True)
        except (OSError, ValueError):
            continue


def _user_name() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return "user"


@contextmanager
def _lifeline(run_dir: Path) -> Iterator[str | None]:
    """A socket that lives as long as this process: its end makes every probe exit. Nobody needs to accept on it."""
    if not hasattr(socket, "AF_UNIX"):
        yield None
        return
    address = str(run_dir / "lifeline")
    with socket.socket(socket.AF_UNIX) as server:
        try:
            server.bind(address)
        except OSError:  # a temporary folder with too long a name
            yield None
            return
        server.listen(1024)
        yield address


def _watch(
    keeper: subprocess.Popen[bytes],
    run_dir: Path,
    deadline: float,
    progress: Callable[[int], None] | None,
    cancelled: Callable[[], bool],
) -> tuple[str, list[dict[str, Any]]]:
    """Until the command has ended, all ranks have reported, or the deadline is past."""
    begun = time.monotonic()
    complete_since: float | None = None
    shown = -1
    while keeper.poll() is None:
        time.sleep(0.03)
        if (run_dir / "ended.json").exists():
            return "script", []
        if cancelled():
            return "interrupted", []
        elapsed = time.monotonic() - begun
        if progress is not None:
            steps = _progress(run_dir)
            if steps != shown:
                shown = steps
                progress(steps)
        if complete_since is None and _all_ranks_reported(run_dir):
            complete_since = elapsed
        if complete_since is not None and elapsed - complete_since > 5.0:
            return "results", []  # e.g. the parent of mp.spawn went on with something else
        if elapsed > deadline + 3.0:  # the probe's own deadline comes first, and leaves a partial result
            return "deadline", _read_all(run_dir, "input-*.json")
    return "script", []


def _progress(run_dir: Path) -> int:
    counts = []
    for path in run_dir.glob("progress-*"):
        try:
            counts.append(int(path.read_text() or 0))
        except (OSError, ValueError):
            continue
    return max(counts, default=0)


def _all_ranks_reported(run_dir: Path) -> bool:
    results = list(run_dir.glob("result-rank*-pid*.json"))
    if not results:
        return False
    try:
        world = int(json.loads(results[0].read_text(encoding="utf-8"))["world"])
    except (OSError, ValueError, KeyError):
        return False
    return len(results) >= world


def _end(keeper: subprocess.Popen[bytes]) -> str:
    """Ask the keeper for the end, and wait: it kills what is left and puts the tree back. Survives a second Ctrl-C."""
    assert keeper.stdin is not None
    assert keeper.stderr is not None
    interrupted = False
    try:
        keeper.stdin.write(b"stop\n")
        keeper.stdin.flush()
    except (BrokenPipeError, OSError):
        pass
    for _ in range(2400):
        try:
            keeper.wait(0.05)
            break
        except subprocess.TimeoutExpired:
            continue
        except KeyboardInterrupt:
            interrupted = True
    else:
        keeper.kill()
        keeper.wait()
    complaint = keeper.stderr.read().decode(errors="replace")
    for pipe in (keeper.stdin, keeper.stderr):
        try:
            pipe.close()
        except OSError:
            pass
    if interrupted:
        raise KeyboardInterrupt
    return complaint


def _collect(run: Pass, run_dir: Path, why: str, waiting: list[dict[str, Any]], complaint: str, keep: bool) -> Outcome:
    try:
        ended = json.loads((run_dir / "ended.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        ended = {"code": None, "wall_s": 0.0, "killed": [], "left": {}, "fault": complaint or "the keeper was killed"}
    results = sorted(_read_all(run_dir, "result-rank*-pid*.json"), key=lambda result: (result["rank"], result["pid"]))
    return Outcome(
        run=run,
        results=results,
        exit_code=ended["code"],
        why=why,
        wall_s=ended["wall_s"],
        log_tail=_tail(run_dir / "log.txt"),
        hellos=_read_all(run_dir, "hello-*.json"),
        torches=_read_all(run_dir, "torch-*.json"),
        errors=sorted(_read_all(run_dir, "error-*.json"), key=lambda error: int(error.get("at_ns", 0))),
        waiting_for_input=waiting,
        probe_errors=[path.read_text(encoding="utf-8") for path in sorted(run_dir.glob("probe-error-*.txt"))],
        journal=_journal(run_dir),
        left=ended["left"],
        killed=ended["killed"],
        fault=ended.get("fault"),
        folder=str(run_dir) if keep else None,
    )


def _read_all(folder: Path, pattern: str) -> list[dict[str, Any]]:
    found = []
    for path in sorted(folder.glob(pattern)):
        try:
            found.append(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError):
            continue  # taken away or not yet whole
    return found


def _journal(run_dir: Path) -> list[list[str]]:
    try:
        lines = (run_dir / "files" / "journal").read_bytes().split(b"\n")
    except OSError:
        return []
    return [json.loads(line) for line in lines if line]


def _tail(log: Path, limit: int = 6000) -> str:
    try:
        with log.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - limit))
            return file.read().decode(errors="replace").replace("\r\n", "\n")
    except OSError:
        return ""

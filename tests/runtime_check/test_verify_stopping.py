"""The run stops cleanly, and nothing that the user's script does can undo it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from verify_runs import ROOT, SCRIPTS

pytestmark = pytest.mark.torch


def processes_of(marker: str) -> list[str]:
    """Command lines of live processes whose environment holds the marker."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environment = (entry / "environ").read_bytes()
            state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
            text = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if marker.encode() in environment and state != "Z":
            found.append(text)
    return found


def test_workers_threads_and_exit_handlers_do_not_keep_it(launch: Any) -> None:
    outcome = launch("hard_to_leave.py", environment=(("MARK", f"hard-to-leave-{os.getpid()}"),))
    assert outcome.results[0]["why"] == "steps"
    assert outcome.exit_code == 0
    assert "goodbye" not in outcome.log_tail
    assert processes_of(f"MARK=hard-to-leave-{os.getpid()}") == []


def test_bare_except_and_finally_do_not_get_hold_of_it(launch: Any) -> None:
    outcome = launch("swallows_everything.py")
    assert outcome.results[0]["why"] == "steps"
    assert "going on" not in outcome.log_tail
    assert "saved before leaving" not in outcome.log_tail
    assert not any("emergency.pt" in line[1] for line in outcome.journal)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds orphans by the subreaper of Linux")
def test_what_the_script_left_running_is_ended(launch: Any) -> None:
    outcome = launch("orphans.py", environment=(("MARK", f"orphans-{os.getpid()}"),))
    assert outcome.results[0]["why"] == "steps"
    assert sum("time.sleep(600)" in text for text in outcome.killed) >= 2
    assert processes_of(f"MARK=orphans-{os.getpid()}") == []


def start(script: str, folder: Path, mark: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "MARK": mark, "TMPDIR": str(folder), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "runtime_check", str(SCRIPTS / script), "--steps", "1000000"]
    work = folder / "work"
    work.mkdir(exist_ok=True)
    return subprocess.Popen(
        command,
        cwd=work,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        # A shell's background job ignores Ctrl-C, and so do its children: the tests may run in one.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def wait_until(true: Any, seconds: float = 300.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if true():
            return True
        time.sleep(0.05)
    return False


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A temporary folder short enough to be taken for the run's (sockets lie below it)."""
    with tempfile.TemporaryDirectory(prefix="tl", dir="/tmp") as folder:
        yield Path(folder)


def shared_memory() -> set[str]:
    """Segments that nobody holds any more: torch names them by the process that made them, `torch_PID_...`."""
    names = [name for name in os.listdir("/dev/shm") if name.startswith(("torch_", "psm_"))]
    return {name for name in names if not Path("/proc", name.split("_")[1]).exists()}


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc and /dev/shm")
@pytest.mark.parametrize(
    "kill", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=["ctrl-c", "terminated", "killed"]
)
def test_nothing_is_left_when_verify_itself_is_ended(short_path: Path, kill: signal.Signals) -> None:
    end_and_look(short_path, "hard_to_leave.py", kill, f"left-{kill.name}-{os.getpid()}", after=None)


def end_and_look(folder: Path, script: str, kill: signal.Signals, mark: str, after: float | None) -> None:
    before = shared_memory()
    verify = start(script, folder, mark)
    try:
        if after is None:
            assert wait_until(lambda: len(processes_of(f"MARK={mark}")) >= 4)  # verify, keeper, script, a worker
        else:
            time.sleep(after)
        verify.send_signal(kill)
        verify.wait(300)
        assert wait_until(lambda: not processes_of(f"MARK={mark}")), processes_of(f"MARK={mark}")
        assert wait_until(lambda: [path.name for path in folder.iterdir()] == ["work"]), list(folder.iterdir())
        assert list((folder / "work").iterdir()) == []
        assert wait_until(lambda: shared_memory() <= before)
    finally:
        if verify.poll() is None:
            verify.kill()


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc and /dev/shm")
def test_fifty_runs_ended_at_random_leave_nothing(short_path: Path) -> None:
    import random

    chance = random.Random(6)
    kinds = [signal.SIGINT, signal.SIGTERM, signal.SIGKILL]
    for number in range(50):
        folder = short_path / str(number)
        folder.mkdir()
        script = chance.choice(["hard_to_leave.py", "orphans.py", "swallows_everything.py"])
        end_and_look(folder, script, chance.choice(kinds), f"random-{number}", chance.uniform(0.1, 6.0))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="finds the keeper in /proc")
def test_a_killed_keeper_is_stood_in_for(short_path: Path) -> None:
    mark = f"keeper-killed-{os.getpid()}"
    verify = start("orphans.py", short_path, mark)
    try:
        assert wait_until(lambda: sum("time.sleep(600)" in text for text in processes_of(f"MARK={mark}")) >= 2)
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and is_keeper_of(entry, short_path):
                os.kill(int(entry.name), signal.SIGKILL)
        verify.wait(300)
        assert wait_until(lambda: not processes_of(f"MARK={mark}")), processes_of(f"MARK={mark}")
        assert [path.name for path in short_path.iterdir()] == ["work"]
    finally:
        if verify.poll() is None:
            verify.kill()


def is_keeper_of(process: Path, folder: Path) -> bool:
    try:
        text = (process / "cmdline").read_bytes().decode()
    except OSError:
        return False
    return "keeper.py" in text and str(folder) in text


def test_a_deadline_gives_what_was_measured_until_then(launch: Any) -> None:
    for deadline in (15.0, 60.0, 240.0):  # a busy machine may come to no step in the first
        outcome = launch("slow_loader.py", steps=100000, deadline_s=deadline)
        if outcome.results:
            break
    (result,) = outcome.results
    assert result["why"] == "deadline"
    assert result["boundaries_ns"]


def test_the_probe_ends_when_the_run_is_nobodys(tmp_path: Path) -> None:
    """Keeper and parent both gone: the socket's end is what tells the script's process."""
    import json
    import socket

    address = tmp_path / "lifeline"
    config = {
        "protocol": 1,
        "run_dir": str(tmp_path),
        "project": [str(tmp_path)],
        "steps": 10**9,
        "warmup": 1,
        "unit": "auto",
        "lifeline": str(address),
    }
    (tmp_path / "files").mkdir()
    (tmp_path / "config.json").write_text(json.dumps(config))
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "runtime_check" / "inject"),
        "TRAINLINT_PROBE": str(tmp_path / "config.json"),
    }
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(address))
        server.listen(8)
        script = subprocess.Popen([sys.executable, str(SCRIPTS / "two_optimizers.py")], env=environment)
        assert wait_until(lambda: list(tmp_path.glob("torch-*.json")))
    assert script.wait(300) == 0

"""Holds one launch of the user's command and leaves nothing behind, whatever happens to the process that asked for it.

Run as a program of its own (`python -I -S keeper.py order.json`), standard library only. It is the subreaper of
everything that the command starts, so it also finds what a daemon of the script's left behind. Its standard input is
a pipe from the parent: a line on it asks for the end, and its end, which comes even when the parent is killed, means
the same and that the run's folder is nobody's.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from typing import Any

PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
TRACKER_GRACE_S = (
    2.0  # resource trackers end by themselves once their processes are gone, and unlink shared memory then
)
_TRACKERS = (b"multiprocessing.resource_tracker", b"torch_shm_manager")


def main(order_path: str) -> int:
    with open(order_path, encoding="utf-8") as file:
        order: dict[str, Any] = json.load(file)
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)  # only the parent decides when this process ends
    become_subreaper()
    terminal = open_idle_terminal()
    begun = time.monotonic()
    code: int | None = None
    asked = "script"
    fault = None
    try:
        with open(order["log"], "ab") as log:
            child = subprocess.Popen(
                order["command"],
                cwd=order["cwd"],
                env=order["env"],
                stdin=terminal[1] if terminal else subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=_default_signals,
            )
        asked = wait(child)
        code = child.poll()
    except OSError as error:
        fault = f"{type(error).__name__}: {error}"
    killed = end_all()
    if asked == "orphaned":
        code = None
    left = put_back(order["run_dir"], order["project"])
    ended = {
        "code": code,
        "asked": asked,
        "fault": fault,
        "wall_s": time.monotonic() - begun,
        "killed": killed,
        "left": left,
    }
    if asked == "orphaned":
        shutil.rmtree(order["session_dir"], ignore_errors=True)
        return 1
    temporary = order["ended"] + ".part"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(ended, file)
    os.replace(temporary, order["ended"])
    return 0


def _default_signals() -> None:
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_DFL)


def become_subreaper() -> bool:
    """Orphans of the command come to this process instead of init (Linux)."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        return bool(ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


def open_idle_terminal() -> tuple[int, int] | None:
    """A pseudo-terminal of 24 by 80 on which nothing is ever typed: scripts ask it for its size."""
    try:
        import fcntl
        import pty
        import struct
        import termios

        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        return master, slave
    except (ImportError, OSError):
        return None


def wait(child: subprocess.Popen[bytes]) -> str:
    """Until the command ends ("script"), the parent asks for the end ("stop"), or the parent is gone ("orphaned")."""
    while child.poll() is None:
        readable, _, _ = select.select([sys.stdin.fileno()], [], [], 0.05)
        if readable:
            return "stop" if os.read(sys.stdin.fileno(), 64) else "orphaned"
        reap(frozenset((child.pid,)))
    return "script"


def reap(spared: frozenset[int]) -> None:
    """Take the exit codes of adopted orphans. The command's own is left to `subprocess`."""
    for pid in children_of(os.getpid()):
        if pid not in spared:
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                pass


def process_table() -> dict[int, int]:
    """Process id -> parent's id."""
    table: dict[int, int] = {}
    if os.path.isdir("/proc/self"):
        for name in os.listdir("/proc"):
            if name.isdigit():
                try:
                    with open(f"/proc/{name}/stat", "rb") as file:
                        table[int(name)] = int(file.read().rsplit(b")", 1)[1].split()[1])
                except (OSError, IndexError, ValueError):
                    continue
        return table
    listing = subprocess.run(["ps", "-axo", "pid=,ppid="], capture_output=True, text=True, check=False).stdout
    for line in listing.splitlines():
        pid, parent = line.split()
        table[int(pid)] = int(parent)
    return table


def children_of(parent: int) -> list[int]:
    return [pid for pid, its_parent in process_table().items() if its_parent == parent]


def descendants(root: int) -> list[int]:
    table = process_table()
    found: list[int] = []
    level = [root]
    while level:
        level = [pid for pid, parent in table.items() if parent in level]
        found.extend(level)
    return found


def command_line(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read()
    except OSError:
        return b""


def end_all(spared: frozenset[int] = frozenset()) -> list[str]:
    """Kill every descendant, trackers last, and take their exit codes.

    Gives the command lines of what had to be killed.
    """
    killed: dict[int, str] = {}
    spared_until = time.monotonic() + TRACKER_GRACE_S
    for _ in range(2000):
        reap(spared)
        alive = [pid for pid in descendants(os.getpid()) if pid not in spared]
        if not alive:
            break
        trackers = [pid for pid in alive if any(name in command_line(pid) for name in _TRACKERS)]
        targets = [pid for pid in alive if pid not in trackers]
        if not targets and time.monotonic() > spared_until:
            targets = alive
        for pid in targets:
            text = command_line(pid).replace(b"\0", b" ").decode(errors="replace").strip()
            if text:
                killed.setdefault(pid, text[:200])
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.01)
    remove_shared_memory(set(killed))
    return list(killed.values())


def remove_shared_memory(pids: set[int]) -> None:
    """Segments that torch named after processes which were killed before they could unlink them (torch_<pid>_...)."""
    try:
        names = os.listdir("/dev/shm")
    except OSError:
        return
    for name in names:
        parts = name.split("_")
        if len(parts) >= 3 and parts[0] == "torch" and parts[1].isdigit() and int(parts[1]) in pids:
            try:
                os.unlink(f"/dev/shm/{name}")
            except OSError:
                pass


def put_back(run_dir: str, project: list[str]) -> dict[str, list[Any]]:
    """Move what the launch made in the project into the run's folder, so that the next launch meets the same tree.

    Returns moved paths and their bytes, and what was made outside the project and stays there.
    """
    created: dict[str, None] = {}
    for what, path, _ in read_journal(run_dir):
        if what == "create":
            created[path] = None
        elif what == "forget":
            created.pop(path, None)
    roots = [os.path.realpath(root) for root in project]
    moved: list[Any] = []
    elsewhere: list[Any] = []
    outside: list[str] = []
    for path in sorted(created):
        if not os.path.lexists(path):
            continue
        if not any(path.startswith(root.rstrip(os.sep) + os.sep) for root in roots):
            outside.append(path)
            continue
        size = total_bytes(path)
        target = os.path.join(run_dir, "files", "left", path.lstrip("/\\").replace(":", ""))
        os.makedirs(os.path.dirname(target), exist_ok=True)
        try:
            shutil.move(path, target)
            moved.append([path, size])
        except OSError as error:
            elsewhere.append(f"{path} ({error})")
    kept = [path for path in reversed(outside) if not _remove_if_empty_folder(path)]  # what is inside comes first
    elsewhere += sorted(path for path in kept if os.path.dirname(path) not in created)
    return {"moved": moved, "elsewhere": elsewhere}


def _remove_if_empty_folder(path: str) -> bool:
    try:
        os.rmdir(path)  # fails for anything else
    except OSError:
        return False
    return True


def read_journal(run_dir: str) -> list[list[str]]:
    try:
        with open(os.path.join(run_dir, "files", "journal"), "rb") as file:
            data = file.read()
    except OSError:
        return []
    return [json.loads(line) for line in data.split(b"\n")[:-1] if line]


def total_bytes(path: str) -> int:
    if not os.path.isdir(path) or os.path.islink(path):
        return os.lstat(path).st_size
    return sum(os.lstat(os.path.join(folder, name)).st_size for folder, _, names in os.walk(path) for name in names)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

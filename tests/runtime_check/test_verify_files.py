"""The writes promise, to the letter: the user's tree is as before, and the script saw what it would have seen."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from verify_runs import BASE, ROOT, SCRIPTS, Pass, Session

from runtime_check.launch import remove_stale_folders

pytestmark = pytest.mark.torch


def lay_out(folder: Path) -> Path:
    """A folder as an earlier run left it."""
    for name in ("output/old", "checkpoints", "data"):
        (folder / name).mkdir(parents=True)
    files = {
        "train.log": "".join(f"old line {i} of an earlier run\n" for i in (1, 2, 3)),
        "train.log.1": "older\n",
        "output/old/weights.bin": "weights\n",
        "checkpoints/epoch_1.pt": "one\n",
        "checkpoints/epoch_2.pt": "two\n",
        "checkpoints/latest.pt": "latest\n",
        "config.txt": "lr = 0.1\n",
        "notes.txt": "first\n",
        "best.txt": "0.9\n",
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def tree(folder: Path) -> dict[str, Any]:
    """Every path below: its kind, mode, content and time of change."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        facts = path.lstat()
        content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[str(path.relative_to(folder))] = (facts.st_mode, content, facts.st_mtime_ns if path.is_file() else 0)
    return found


def plain_output(folder: Path, script: str = "housekeeper.py", **more: str) -> str:
    """What the script prints without verify, errors and warnings included."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", **more}
    command = [sys.executable, str(SCRIPTS / script)]
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.run(command, cwd=folder, env=environment, **both, text=True, check=True).stdout


def test_the_script_goes_on_and_the_tree_is_as_before(launch: Any, tmp_path: Path) -> None:
    expected = plain_output(lay_out(tmp_path / "plain"))
    folder = lay_out(tmp_path / "verified")
    before = tree(folder)
    outcome = launch("housekeeper.py", cwd=folder, steps=100)
    assert outcome.log_tail == expected
    assert tree(folder) == before
    kept = {(os.path.basename(path), how) for what, path, how in outcome.journal if what == "hide"}
    assert ("output", "rmtree") in kept
    assert ("epoch_1.pt", "delete") in kept
    assert {os.path.basename(path) for path, _ in outcome.left["moved"]} >= {"best_before.txt", "train.log.2"}


def lay_out_caches(home: Path) -> Path:
    (home / ".cache" / "torch").mkdir(parents=True)
    (home / "hub").mkdir()
    files = {".cache/torch/trusted_list": "a_b\n", ".cache/torch/stale.json": "{}", "hub/weights.pt": "old weights"}
    for name, text in {**files, ".cache/torch/download.lock": ""}.items():
        (home / name).write_text(text)
    return home


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="locks by flock")
def test_caches_may_grow_and_keep_what_they_had(launch: Any, tmp_path: Path) -> None:
    plain = lay_out_caches(tmp_path / "plain")
    expected = plain_output(plain, "uses_caches.py", HOME=str(plain), TORCH_HOME=str(plain / "hub"))
    assert "another program gets the lock: False" in expected
    home = lay_out_caches(tmp_path / "home")
    before = tree(home)
    environment = (("HOME", str(home)), ("TORCH_HOME", str(home / "hub")))
    outcome = launch("uses_caches.py", steps=100, environment=environment)
    assert outcome.log_tail == expected
    after = tree(home)
    assert {name: after[name] for name in before} == before
    new = home / ".cache" / "torch" / "downloaded.bin"
    assert set(after) - set(before) == {str(new.relative_to(home))}
    assert outcome.left["elsewhere"] == [str(new)]


WRITES_IN_CPP = """
import torch, sys
torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), "model.pt")
print(torch.jit.load("model.pt")(torch.zeros(1, 2)).shape)
import safetensors
safetensors.serialize_file({}, "model.safetensors")
print(safetensors.safe_open("model.safetensors", framework="pt"))
"""
SAFETENSORS = """
import posix
def serialize_file(tensors, filename, metadata=None):
    # As C++ or Rust would, out of Python's sight: by another program.
    posix.posix_spawn("/bin/sh", ["sh", "-c", f"echo new > '{filename}'"], {})
    posix.wait()
def safe_open(filename, framework):
    return "new" if "new" in open(filename).read() else "old"
"""


def test_writers_that_bypass_python_are_redirected_where_they_are_known(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "safetensors.py").write_text(SAFETENSORS)
    (project / "script.py").write_text(WRITES_IN_CPP)
    for name in ("model.pt", "model.safetensors"):
        (project / name).write_text("of the last real run")
    before = tree(project)
    path = (("PYTHONPATH", f"{ROOT}/runtime_check/inject:{tmp_path}/packages"),)
    session = Session(replace(BASE, script="script.py", cwd=project, environment=path))
    try:
        outcome = session.launch(Pass("test"))
    finally:
        session.close()
    assert outcome.probe_errors == []
    assert outcome.log_tail.splitlines()[-2:] == ["torch.Size([1, 2])", "new"]
    assert tree(project) == before


TENSORBOARD = """
import os
class EventFileWriter:
    def __init__(self, logdir):
        self._logdir = logdir
        with open(os.path.join(logdir, "events.out"), "w") as file:
            file.write("events")
"""
WRITES_EVENTS = """
import sys
from tensorboard.summary.writer.event_file_writer import EventFileWriter
import tensorboard.compat.notf
for folder in sys.argv[1:]:
    assert EventFileWriter(folder)._logdir == folder
"""


def test_tensorboard_writes_to_the_runs_folder(tmp_path: Path) -> None:
    """Also where its folder lies outside the project."""
    for package in ("tensorboard/summary/writer", "tensorboard/compat"):
        (tmp_path / "packages" / package).mkdir(parents=True)
    for name in ("", "summary/", "summary/writer/", "compat/"):
        (tmp_path / "packages" / "tensorboard" / f"{name}__init__.py").write_text("")
    (tmp_path / "packages/tensorboard/summary/writer/event_file_writer.py").write_text(TENSORBOARD)
    project = tmp_path / "project"
    project.mkdir()
    (project / "script.py").write_text(WRITES_EVENTS)
    (project / "runs").mkdir()
    elsewhere = tmp_path / "elsewhere"
    before = tree(tmp_path)
    path = f"{ROOT}/runtime_check/inject:{tmp_path}/packages"
    options = replace(BASE, script="script.py", cwd=project, arguments=("runs", str(elsewhere)))
    session = Session(replace(options, environment=(("PYTHONPATH", path),), keep_run_dir=True))
    outcome = session.launch(Pass("test"))
    try:
        assert (outcome.exit_code, outcome.log_tail, outcome.probe_errors) == (0, "", [])
        assert tree(tmp_path) == before
        kept = {path.relative_to(str(outcome.folder)).parts[1] for path in session.folder.rglob("events.out")}
        assert kept == {"left", "tensorboard"}
    finally:
        shutil.rmtree(session.folder)


def test_a_folder_that_is_kept_is_not_taken_for_a_stale_one(tmp_path: Path) -> None:
    """Nor is one whose owner lives; one whose owner is gone is."""
    kept = Session(replace(BASE, keep_run_dir=True))
    kept.close()
    try:
        assert list(kept.folder.iterdir()) == []  # nobody owns it any more
    finally:
        shutil.rmtree(kept.folder)
    owners = {"alive": str(os.getpid()), "stale": str(2**22 + 1)}  # beyond the largest process id of Linux
    for name, owner in owners.items():
        (tmp_path / f"trainlint-{name}").mkdir()
        (tmp_path / f"trainlint-{name}" / "owner").write_text(owner)
    (tmp_path / "trainlint-kept").mkdir()
    remove_stale_folders(tmp_path)
    assert {folder.name for folder in tmp_path.iterdir()} == {"trainlint-alive", "trainlint-kept"}


@pytest.mark.slow
def test_twenty_launches_leave_the_tree_bit_for_bit(launch: Any, tmp_path: Path) -> None:
    expected = plain_output(lay_out(tmp_path / "plain"))
    folder = lay_out(tmp_path / "verified")
    before = tree(folder)
    for turn in range(20):
        outcome = launch("housekeeper.py", cwd=folder, steps=100, environment=(("TURN", f"slow {turn}"),))
        assert outcome.log_tail == expected
        assert tree(folder) == before


def test_deny_refuses_and_says_what_helps(launch: Any, tmp_path: Path) -> None:
    from runtime_check.messages import ended_before_a_step

    folder = lay_out(tmp_path / "denied")
    before = tree(folder)
    outcome = launch("housekeeper.py", cwd=folder, writes="deny")
    assert tree(folder) == before
    assert "PermissionError" in outcome.log_tail
    message = ended_before_a_step(launch.options("housekeeper.py"), outcome)
    assert str(folder / "train.log") in message
    assert "--writes=allow" in message


def test_allow_lets_the_script_do_as_it_does(launch: Any, tmp_path: Path) -> None:
    folder = lay_out(tmp_path / "allowed")
    launch("housekeeper.py", cwd=folder, writes="allow", steps=100)
    assert not (folder / "best.txt").exists()
    assert (folder / "output" / "step_11.pt").exists()


def test_saving_over_a_checkpoint_leaves_it(launch: Any, tmp_path: Path) -> None:
    folder = tmp_path / "saving"
    folder.mkdir()
    (folder / "last.pt").write_text("from the last real run")
    outcome = launch("slow_loader.py", "memory", until_eval=True, cwd=folder)
    assert (folder / "last.pt").read_text() == "from the last real run"
    (save,) = outcome.results[0]["saves"]
    assert save["path"] == str(folder / "last.pt")
    assert save["bytes"] > 1000
    assert [path.name for path in folder.iterdir()] == ["last.pt"]


RAW = """
import os, io, pathlib, shutil, sys, tempfile
failures = []
def tried(what, do):
    try:
        do()
    except PermissionError:
        pass
    except OSError as error:
        failures.append(f"{what}: {error!r}")
{body}
print(failures)
"""

WAYS = {
    "FileIO": 'io.FileIO("kept.txt", "w").write(b"no")',
    "open for update": 'f = open("kept.txt", "r+"); f.write("no"); f.close()',
    "os.open": 'fd = os.open("kept.txt", os.O_WRONLY | os.O_TRUNC); os.write(fd, b"no"); os.close(fd)',
    "os.open below a folder": (
        'd = os.open(".", os.O_RDONLY); fd = os.open("kept.txt", os.O_WRONLY, dir_fd=d); '
        'os.write(fd, b"no"); os.close(fd)'
    ),
    "truncate": 'os.truncate("kept.txt", 0)',
    "pathlib": 'pathlib.Path("kept.txt").write_text("no")',
    "unlink below a folder": 'd = os.open(".", os.O_RDONLY); os.unlink("kept.txt", dir_fd=d)',
    "posix": 'import posix; posix.unlink("kept.txt")',
    "posix.rename": 'import posix; posix.rename("kept.txt", "other.txt")',
    "replace": 'open("new.txt", "w").write("no"); os.replace("new.txt", "kept.txt")',
    "move": 'open("new.txt", "w").write("no"); shutil.move("new.txt", "kept.txt")',
    "copy": 'open("new.txt", "w").write("no"); shutil.copyfile("new.txt", "kept.txt")',
    "through a link": 'open("link.txt", "w").write("no")',
    "through a link's folder": 'shutil.rmtree("linked")',
    "hard link": 'os.link("kept.txt", "second.txt"); open("second.txt", "w").write("no")',
    "mode": 'os.chmod("kept.txt", 0o777); os.utime("kept.txt", (1, 1))',
    "rename of a folder": 'os.rename("folder", "elsewhere")',
    "rmdir": 'os.remove("folder/inside.txt"); os.rmdir("folder")',
    "another folder's": 'os.chdir("folder"); open("inside.txt", "a").write("no"); open("../kept.txt", "a").write("no")',
    "a sub-process": "import subprocess; subprocess.run([sys.executable, \"-c\", \"open('kept.txt', 'w')\"])",
}


@pytest.mark.parametrize("way", WAYS)
def test_no_way_of_pythons_changes_what_was_there(tmp_path: Path, way: str) -> None:
    folder = tmp_path / "project"
    (folder / "folder").mkdir(parents=True)
    (folder / "kept.txt").write_text("as it was\n")
    (folder / "folder" / "inside.txt").write_text("inside\n")
    (folder / "link.txt").symlink_to("kept.txt")
    (folder / "linked").symlink_to("folder")
    script = folder / "script.py"
    script.write_text(RAW.replace("{body}", f"def do():\n    {WAYS[way]}\ntried({way!r}, do)"))
    before = tree(folder)
    session = Session(replace(BASE, script=str(script), cwd=folder))
    try:
        outcome = session.launch(Pass("test"))
    finally:
        session.close()
    assert outcome.probe_errors == []
    assert tree(folder) == before
    if way == "through a link's folder":
        assert "symbolic link" in outcome.log_tail
    else:
        assert "[]" in outcome.log_tail


def test_a_file_whose_place_another_one_took_is_told_as_worked_on_in_a_copy() -> None:
    """`torch.save` to a name of its own, then `os.replace`: the checkpoint that was there has to be named."""
    from runtime_check.launch import Outcome
    from runtime_check.report.side_effects import gather

    journal = [["hide", "/p/last.pt", "overwrite"], ["shadow", "/p/log.txt", ""], ["hide", "/p/old.pt", "remove"]]
    told = gather((Outcome(Pass("timing"), [], 0, "script", 1.0, "", journal=journal),))
    assert told.redirected == ("/p/last.pt", "/p/log.txt")
    assert told.kept == (("/p/old.pt", "remove"),)

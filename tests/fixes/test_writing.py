"""Files are replaced in one step, or not at all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trainlint.writing import NotWritten, replace_file

ROOT = Path(__file__).resolve().parents[2]

BEFORE = (
    "import torch\nfrom torch.utils.data import DataLoader\n\n\ndef train(dataset, model):\n"
    "    loader = DataLoader(dataset, num_workers=2, pin_memory=True)\n"
    "    for images in loader:\n        images = images.to('cuda')\n        model(images).sum().backward()\n"
    + "# padding\n"
    * 400
).encode()
AFTER = BEFORE.replace(b"to('cuda')", b"to('cuda', non_blocking=True)")


def test_mode_and_links_stay(tmp_path: Path) -> None:
    target = tmp_path / "real.py"
    target.write_bytes(b"a")
    target.chmod(0o751)
    link = tmp_path / "link.py"
    link.symlink_to(target.name)
    replace_file(str(link), b"a", b"b")
    assert link.is_symlink()
    assert target.read_bytes() == b"b"
    assert target.stat().st_mode & 0o777 == 0o751
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link.py", "real.py"]


def test_a_file_that_changed_meanwhile_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(b"edited by somebody")
    with pytest.raises(NotWritten, match="has changed"):
        replace_file(str(path), b"as it was read", b"fixed")
    assert path.read_bytes() == b"edited by somebody"
    assert [p.name for p in tmp_path.iterdir()] == ["a.py"]


def test_a_kill_at_any_moment_leaves_whole_files(tmp_path: Path) -> None:
    """Each file holds what it held before or what it is to hold, whenever the process dies."""
    (tmp_path / ".git").mkdir()
    paths = [tmp_path / f"train_{i:03}.py" for i in range(60)]
    command = [sys.executable, "-c", _WRITER, *map(str, paths)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    halfway = 0
    for turn in range(25):
        for path in paths:
            path.write_bytes(BEFORE)
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stdin=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.flush()
        deadline = time.monotonic() + turn * 0.0008  # another moment on each turn
        while time.monotonic() < deadline:
            pass
        process.send_signal(signal.SIGKILL if os.name != "nt" else signal.SIGTERM)
        process.wait()
        process.stdout.close()
        process.stdin.close()
        contents = [path.read_bytes() for path in paths]
        assert set(contents) <= {BEFORE, AFTER}
        halfway += len(set(contents)) == 2
    assert halfway  # else no kill came in the middle


_WRITER = f"""
import sys
from trainlint.writing import replace_file
before = {BEFORE!r}
after = {AFTER!r}
print("ready", flush=True)
sys.stdin.readline()
for path in sys.argv[1:]:
    replace_file(path, before, after)
"""

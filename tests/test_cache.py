"""What is remembered, when it holds, and what becomes of it when it is damaged or two runs meet."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

ENGINE = """\
import torch


def one_step(model, batch):
    loss = model(batch).sum()
    print(loss.item())
    return loss
"""
HOT = """\
from torch import nn, optim
from torch.utils.data import DataLoader

from engine import one_step


def train(dataset):
    model = nn.Linear(4, 4).cuda()
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    for batch in DataLoader(dataset, batch_size=4):
        optimizer.zero_grad()
        one_step(model, batch.cuda()).backward()
        optimizer.step()
"""
COLD = HOT.replace("one_step(model, batch.cuda())", "model(batch.cuda()).sum()") + "    one_step(model, batch.cuda())\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\n')
    write(tmp_path / "engine.py", ENGINE)
    write(tmp_path / "train.py", HOT)
    write(tmp_path / "other" / "alone.py", ENGINE.replace("one_step", "two_step"))
    return tmp_path


def write(path: Path, text: str) -> None:
    """As written some time ago: what has just been written is looked at again."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    past = time.time() - 60 - write.count  # type: ignore[attr-defined]
    write.count += 1  # type: ignore[attr-defined]
    os.utime(path, (past, past))


write.count = 0  # type: ignore[attr-defined]


def run(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "trainlint", "check", "--output-format", "json", *arguments],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def codes(done: subprocess.CompletedProcess[str]) -> list[tuple[str, str]]:
    return [(Path(found["filename"]).name, found["code"]) for found in json.loads(done.stdout)]


def analysed(project: Path, *arguments: str) -> set[str]:
    """The files that a run has really looked at."""
    probe = (
        "import sys, trainlint.engine as engine\nfrom trainlint.cli import run\n"
        "inner = engine.check_targets\n"
        "def spy(targets, **more):\n"
        "    targets = list(targets)\n"
        "    print(*(t.path for t in targets), sep='\\n', file=sys.stderr)\n"
        "    return inner(targets, **more)\n"
        "engine.check_targets = spy\nrun()"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe, "check", "--exit-zero", *arguments],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {Path(line).name for line in done.stderr.split() if line.endswith(".py")}


def test_the_second_run_says_the_same_and_looks_at_nothing(project: Path) -> None:
    first = run(project)
    assert ("engine.py", "TL101") in codes(first)
    assert analysed(project) == set()
    assert run(project).stdout == first.stdout == run(project, "--no-cache").stdout
    (store,) = (project / ".trainlint_cache").glob("*.json")
    assert (project / ".trainlint_cache" / ".gitignore").read_text().endswith("*\n")
    assert (
        (project / ".trainlint_cache" / "CACHEDIR.TAG")
        .read_text()
        .startswith("Signature: 8a477f597d28d172789f06886806bc55")
    )
    assert store.stat().st_size > 0


def test_text_and_json_after_each_other_come_from_the_same_entries(project: Path) -> None:
    first = run(project, "--output-format", "text").stdout
    assert first and run(project, "--output-format", "text").stdout == first


def test_a_caller_that_changes_refreshes_what_it_calls(project: Path) -> None:
    assert ("engine.py", "TL101") in codes(run(project))
    write(project / "train.py", COLD)
    assert analysed(project) == {"train.py", "engine.py"}
    assert ("engine.py", "TL101") not in codes(run(project))
    write(project / "train.py", HOT)
    assert ("engine.py", "TL101") in codes(run(project, "engine.py"))


def test_a_new_caller_refreshes_what_it_calls(project: Path) -> None:
    write(project / "train.py", "import torch\n")
    assert ("engine.py", "TL101") not in codes(run(project, "engine.py"))
    write(project / "more.py", HOT)
    assert ("engine.py", "TL101") in codes(run(project, "engine.py"))
    (project / "more.py").unlink()
    assert ("engine.py", "TL101") not in codes(run(project, "engine.py"))


def test_a_file_that_was_only_touched_is_not_looked_at(project: Path) -> None:
    run(project)
    os.utime(project / "engine.py", (time.time() - 30, time.time() - 30))
    assert analysed(project) == set()


def test_a_file_that_changes_right_after_it_was_read_is_looked_at(project: Path) -> None:
    (project / "engine.py").write_text(ENGINE)  # now
    run(project)
    status = (project / "engine.py").stat()
    (project / "engine.py").write_text(ENGINE.replace("loss.item()", "float(loss)"))
    assert (project / "engine.py").stat().st_size == status.st_size
    os.utime(project / "engine.py", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert ("engine.py", "TL103") in codes(run(project))


def test_settings_and_requirements_are_part_of_the_key(project: Path) -> None:
    run(project)
    assert analysed(project, "--select", "TL1") == {"train.py", "engine.py", "alone.py"}
    (project / "pyproject.toml").write_text('[project]\nname = "x"\ndependencies = ["torch<2.1"]\n')
    assert analysed(project) == {"train.py", "engine.py", "alone.py"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"format": 1}',
        '{"format": 99, "files": {}, "results": {}}',
        '{"format": 1, "files": [], "results": 3}',
    ],
)
def test_damage_costs_time_only(project: Path, text: str) -> None:
    first = run(project)
    (store,) = (project / ".trainlint_cache").glob("*.json")
    store.write_text(text)
    again = run(project, "-v")
    assert again.stdout == first.stdout and "Traceback" not in again.stderr
    assert str(store) in again.stderr
    assert analysed(project) == set()


def test_an_entry_that_makes_no_sense_is_asked_anew(project: Path) -> None:
    first = run(project)
    (store,) = (project / ".trainlint_cache").glob("*.json")
    held = json.loads(store.read_text())
    for entry in held["results"].values():
        entry[1] = [[["x"]], 3]
    store.write_text(json.dumps(held))
    assert run(project).stdout == first.stdout


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_no_trouble(project: Path) -> None:
    project.chmod(0o555)
    try:
        done = run(project, "-v")
        assert done.returncode == 1 and "nothing can be remembered" in done.stderr
    finally:
        project.chmod(0o755)


def test_a_file_in_the_place_of_the_folder_is_no_trouble(project: Path) -> None:
    (project / ".trainlint_cache").write_text("mine")
    done = run(project, "-v")
    assert done.returncode == 1 and "nothing can be remembered" in done.stderr
    assert (project / ".trainlint_cache").read_text() == "mine"


def test_many_runs_at_once(project: Path) -> None:
    expected = run(project, "--no-cache").stdout
    command = [sys.executable, "-m", "trainlint", "check", "--output-format", "json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for _ in range(2):
        runs = [
            subprocess.Popen(command, cwd=project, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(4)
        ]
        assert [process.communicate()[0] for process in runs] == [expected] * 4
    assert not list((project / ".trainlint_cache").glob("*.tmp"))


def test_no_cache_leaves_nothing_behind(project: Path) -> None:
    run(project, "--no-cache")
    assert not (project / ".trainlint_cache").exists()


def test_fixes_come_from_what_is_remembered(project: Path) -> None:
    script = HOT.replace(
        "DataLoader(dataset, batch_size=4)", "DataLoader(dataset, batch_size=4, num_workers=2, pin_memory=True)"
    )
    write(project / "train.py", script)
    run(project, "--select", "TL106")
    assert analysed(project, "--select", "TL106") == set()
    run(project, "--select", "TL106", "--fix")
    assert "batch.cuda(non_blocking=True)" in (project / "train.py").read_text()


def test_clean(project: Path) -> None:
    run(project)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "trainlint", "clean"]
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "deleted" in done.stderr
    assert not (project / ".trainlint_cache").exists()
    (project / ".trainlint_cache").mkdir()
    (project / ".trainlint_cache" / "mine").write_text("")
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    assert "there is none" in done.stderr and (project / ".trainlint_cache" / "mine").exists()

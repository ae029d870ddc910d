"""`trainlint check --jobs N`: the same as on one process, and none of the processes is left behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from trainlint import crew, parallel
from trainlint.cli.check import DEFAULTS, check, report
from trainlint.discovery import Target, discover
from trainlint.engine import check_targets
from trainlint.parallel import check_parallel, processors
from trainlint.result import FileResult
from trainlint.settings import Configuration, Overrides, SettingsError

ROOT = Path(__file__).resolve().parents[2]

T = TypeVar("T")

needs_signals = pytest.mark.skipif(sys.platform == "win32", reason="signals are otherwise there")

FINDING = "import torch\nmodel = torch.nn.DataParallel(model)\n"
LARGE = FINDING + "# as large as what one process is given at once\n" * 250


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Training scripts of two projects with findings of many kinds, broken files and files about something else."""
    top = tmp_path_factory.mktemp("tree")
    chosen = ("TL101/bad_[a-f]*", "TL401/bad_[a-h]*", "TL607/bad_[a-f]*", "scripts/train_c*")
    for number, pattern in enumerate(chosen):
        for path in sorted((ROOT / "fixtures").glob(pattern)):
            to = top / ("one" if number % 2 else "two") / path.relative_to(ROOT / "fixtures")
            to.parent.mkdir(parents=True, exist_ok=True)
            if path.is_dir():
                shutil.copytree(path, to)
            else:
                shutil.copy(path, to)
    (top / "one" / "trainlint.toml").write_text('fail-on = "error"\n[levels]\nTL101 = "advice"\n')
    (top / "two" / "setup.py").write_text("")
    (top / "two" / "broken.py").write_text("import torch\nx = (\n")
    (top / "two" / "silent.py").write_text(FINDING.rstrip() + "  # trainlint: ignore[TL501]\n")
    (top / "two" / "idle.py").write_text("import torch\nx = 1  # trainlint: ignore[TL101]\n")
    (top / "two" / "book.ipynb").write_text(
        json.dumps({"cells": [{"cell_type": "code", "source": "%matplotlib\n" + FINDING}], "nbformat": 4})
    )
    (top / "other.py").write_text("print('nothing to see')\n")
    return top


@pytest.fixture(scope="module")
def both(tree: Path) -> tuple[list[FileResult], list[FileResult]]:
    """(on one process, on three)"""
    targets = discover([str(tree)], Configuration(Overrides(pedantic=True)))
    return list(check_targets(targets)), list(check_parallel(targets, 3))


@pytest.fixture
def scripts(tmp_path: Path) -> Path:
    """Eight files with one finding each, which do not all go to one process."""
    (tmp_path / "trainlint.toml").write_text("")
    for number in range(8):
        (tmp_path / f"train{number}.py").write_text(LARGE)
    return tmp_path


@pytest.mark.parametrize(
    "options",
    [
        {"output_format": "text"},
        {"output_format": "text", "verbose": True},
        {"output_format": "concise"},
        {"output_format": "json"},
        {"statistics": True},
        {"statistics": True, "output_format": "json"},
    ],
    ids=str,
)
def test_what_is_said_is_the_same(
    both: tuple[list[FileResult], list[FileResult]], capsys: pytest.CaptureFixture[str], options: dict[str, Any]
) -> None:
    said = []
    for results in both:
        report(results, {**DEFAULTS, **options})
        said.append(capsys.readouterr())
    assert said[0] == said[1]
    assert said[0].out.count("\n") > 5


def test_results_are_the_same(both: tuple[list[FileResult], list[FileResult]]) -> None:
    one, three = both
    assert [result._replace(source=None) for result in three] == [result._replace(source=None) for result in one]
    assert all(ours.settings is theirs.settings for ours, theirs in zip(three, one, strict=True))
    assert len({finding.code for result in one for finding in result.findings}) > 5
    assert any(result.suppressed for result in one)
    assert any(result.source is not None and result.source.masked for result in one)
    for ours, theirs in zip(three, one, strict=True):
        assert (ours.source is None) == (theirs.source is None)
        if ours.source is not None and theirs.source is not None:
            assert ours.source.__reduce__() == theirs.source.__reduce__()


def test_the_command_says_the_same(command: Any, tree: Path) -> None:
    one = command("check", "--jobs", "1", "-v", "--no-cache", cwd=tree)
    two = command("check", "--jobs", "2", "-v", cwd=tree)
    remembered = command("check", "--jobs", "1", "-v", cwd=tree)
    assert (two.stdout, two.stderr, two.returncode) == (one.stdout, one.stderr, 1)
    assert (remembered.stdout, remembered.stderr) == (one.stdout, one.stderr)
    assert "TL401" in one.stdout


def test_a_wrong_selector_is_the_same_error(command: Any, scripts: Path) -> None:
    (scripts / "trainlint.toml").write_text('select = ["TL999"]\n')
    one = command("check", "--jobs", "1", cwd=scripts)
    two = command("check", "--jobs", "2", cwd=scripts)
    assert one.returncode == two.returncode == 2
    assert one.stderr == two.stderr
    targets = discover([str(scripts)], Configuration())
    with pytest.raises(SettingsError, match="TL999"):
        list(check_parallel(targets, 2))


@pytest.mark.parametrize("value", ["-1", "many", "", "2.5"])
def test_what_is_no_number(command: Any, scripts: Path, value: str) -> None:
    run = command("check", f"--jobs={value}", cwd=scripts)
    assert run.returncode == 2
    assert "is no number of processes" in run.stderr


# ------------------------------------------------------------------------------------------------- how many, and who


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the crews that were asked for."""
    asked: list[int] = []
    real = crew.Crew

    def noted(size: int, *rest: Any) -> crew.Crew:
        asked.append(size)
        return real(size, *rest)

    monkeypatch.setattr(crew, "Crew", noted)
    monkeypatch.setattr(parallel, "processors", lambda: 4)
    monkeypatch.setattr(parallel, "memory", lambda: 8 * 2**30)
    return asked


def test_by_itself_it_takes_several_where_that_pays(
    scripts: Path, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    targets = discover([str(scripts)], Configuration())
    few = list(check_parallel(targets))
    assert sizes == []
    monkeypatch.setattr(parallel, "_SHARE", 3 * len(LARGE))
    assert [result.findings for result in check_parallel(targets)] == [result.findings for result in few]
    assert sizes == [2]
    (scripts / "other.py").write_text("# nothing to see\n" * 5000)
    monkeypatch.setattr(parallel, "_SHARE", 5 * len(LARGE))
    results = list(check_parallel(discover([str(scripts)], Configuration())))
    assert sizes == [2]
    assert [bool(result.findings) for result in results] == [False] + [True] * 8


def test_where_memory_is_short_it_takes_fewer(scripts: Path, sizes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    targets = discover([str(scripts)], Configuration())
    monkeypatch.setattr(parallel, "_SHARE", len(LARGE))
    for memory in (4 * 2**30, 2**30, 0):
        monkeypatch.setattr(parallel, "memory", lambda memory=memory: memory)
        assert len(list(check_parallel(targets))) == 8
    assert sizes == [4]
    assert len(list(check_parallel(targets, 3))) == 8
    assert sizes == [4, 3]


def test_no_more_processes_than_files(scripts: Path, sizes: list[int]) -> None:
    assert len(list(check_parallel(discover([str(scripts)], Configuration()), 50))) == 8
    assert sizes == [8]


def test_little_is_checked_without_other_processes(scripts: Path) -> None:
    for script in scripts.glob("*.py"):  # without findings: libcst imports much
        script.write_text("import torch\ntorch.manual_seed(0)\n")
    probe = "import sys; from trainlint.cli import run\ntry: run()\nfinally: print(*sys.modules, file=sys.stderr)"
    names: dict[str, set[str]] = {}
    for paths in ("train0.py", "."):
        run = subprocess.run(
            [sys.executable, "-c", probe, "check", paths],
            cwd=scripts,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        names[paths] = set(run.stderr.split())
    unwanted = {"subprocess", "pickle", "multiprocessing", "concurrent", "queue", "trainlint.crew", "trainlint.worker"}
    assert names["train0.py"].isdisjoint({*unwanted, "trainlint.parallel"})
    assert "trainlint.parallel" in names["."]
    assert names["."].isdisjoint(unwanted)


def test_a_container_may_have_less(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import builtins

    limit = tmp_path / "cpu.max"
    real = builtins.open
    monkeypatch.setattr(
        builtins, "open", lambda path, *a, **k: real(limit if path == "/sys/fs/cgroup/cpu.max" else path, *a, **k)
    )
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    for text, count in (("max 100000\n", 64), ("250000 100000\n", 3), ("10000 100000\n", 1), ("9900000 100000\n", 64)):
        limit.write_text(text)
        assert processors() == count


# ------------------------------------------------------------------------------------------------- when one goes down


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The workers that this process has started. None of them may outlive the test."""
    processes: list[subprocess.Popen[bytes]] = []
    real = subprocess.Popen

    def noted(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        processes.append(real(*arguments, **options))
        return processes[-1]

    monkeypatch.setattr(subprocess, "Popen", noted)
    yield processes
    assert all(process.poll() is not None for process in processes)


def patched(path: Path, how: str) -> str:
    """The code of a worker that does something else when it reads one file, or one of a folder."""
    return (
        "import os, sys; sys.path[:] = sys.argv[1:]\n"
        "import trainlint.engine as engine\n"
        "real = engine.read_bytes\n"
        "def read(path):\n"
        f"    if path.startswith({str(path)!r}):\n        {how}\n"
        "    return real(path)\n"
        "engine.read_bytes = read\n"
        "from trainlint.worker import main; main()"
    )


def at_work(folder: Path) -> str:
    """What a worker does that leaves its number in a folder, and then is at its file for ever."""
    return f"open({str(folder) + os.sep!r} + str(os.getpid()), 'w').close()\n        while True: pass"


def numbers(folder: Path, count: int) -> list[int]:
    """The numbers of so many workers at work; empty while there are fewer."""
    found = [int(name) for name in os.listdir(folder)]
    return found if len(found) == count else []


def gone(workers: list[int]) -> bool:
    return not any(_runs(pid) for pid in workers)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    try:  # one that has ended, and whom nobody has asked how
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return True


def wait_for(seen: Callable[[], T]) -> T:
    """What `seen` gives once that is something; fails after a minute."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        found = seen()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError("waited for too long")


@needs_signals
def test_a_worker_that_is_killed_is_a_fault_of_its_file(
    scripts: Path, started: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "numbers"
    folder.mkdir()
    monkeypatch.setattr(crew, "_PROGRAM", patched(scripts / "train5.py", at_work(folder)))
    results: list[FileResult] = []
    targets = discover([str(scripts)], Configuration())
    checking = threading.Thread(target=lambda: results.extend(check_parallel(targets, 2)))
    checking.start()
    (worker,) = wait_for(lambda: numbers(folder, 1))
    os.kill(worker, signal.SIGKILL)
    checking.join()
    assert [result.fault is not None for result in results] == [number == 5 for number in range(8)]
    assert [len(result.findings) for result in results] == [1, 1, 1, 1, 1, 0, 1, 1]
    assert worker in [process.pid for process in started]


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("os._exit(7)", "ended with exit code 7"),
        ("os.abort()", "SIGABRT"),
        ("os.kill(os.getpid(), 9)", "SIGKILL; perhaps the memory ran out"),
        ("os.kill(os.getpid(), 11)", "SIGSEGV"),
    ],
    ids=["exit", "abort", "kill", "segfault"],
)
@needs_signals
def test_what_goes_down_at_a_file_is_a_fault_of_that_file(
    scripts: Path,
    started: list[subprocess.Popen[bytes]],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    how: str,
    said: str,
) -> None:
    monkeypatch.setattr(crew, "_PROGRAM", patched(scripts / "train3.py", how))
    results = list(check_parallel(discover([str(scripts)], Configuration()), 2))
    assert [result.fault is not None for result in results] == [number == 3 for number in range(8)]
    assert said in (results[3].fault or "")
    assert [len(result.findings) for result in results] == [1, 1, 1, 0, 1, 1, 1, 1]
    assert len(started) == 3
    assert "Traceback" not in capfd.readouterr().err


def test_a_fault_has_exit_code_2_and_the_rest_is_reported(
    scripts: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(scripts)
    monkeypatch.setattr(crew, "_PROGRAM", patched(scripts / "train3.py", "os._exit(7)"))
    assert check((), {**DEFAULTS, "jobs": 2, "output_format": "concise"}) == 2
    said = capsys.readouterr()
    assert said.out.count("TL501") == 7
    assert "train3.py could not be checked" in said.err
    assert "ended with exit code 7" in said.err


@pytest.mark.parametrize("program", ["import os; os._exit(1)", "print('Usage: ...')", "raise SystemExit"])
def test_where_none_can_be_started_the_files_are_checked_here(
    scripts: Path, started: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    monkeypatch.setattr(crew, "_PROGRAM", program)
    targets = discover([str(scripts)], Configuration())
    assert [r.findings for r in check_parallel(targets, 2)] == [r.findings for r in check_targets(targets)]
    assert started


def test_where_there_is_no_such_program_the_files_are_checked_here(
    scripts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(scripts / "no-such-python"))
    results = list(check_parallel(discover([str(scripts)], Configuration()), 2))
    assert [len(result.findings) for result in results] == [1] * 8


def test_a_bundled_program_is_not_started_again(
    scripts: Path, started: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert len(list(check_parallel(discover([str(scripts)], Configuration()), 2))) == 8
    assert not started


def test_who_stops_asking_leaves_nothing_running(scripts: Path, started: list[subprocess.Popen[bytes]]) -> None:
    results = check_parallel(discover([str(scripts)], Configuration()), 2)
    assert next(results).findings
    results.close()  # type: ignore[attr-defined]
    assert started


def test_what_is_printed_does_not_get_between_the_results(
    scripts: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        crew, "_PROGRAM", patched(scripts / "train3.py", "print('here', flush=True); os.write(1, b'x')")
    )
    results = list(check_parallel(discover([str(scripts)], Configuration()), 2))
    assert [len(result.findings) for result in results] == [1] * 8
    assert "here" in capfd.readouterr().err


# ------------------------------------------------------------------------------------------------- from outside


@pytest.fixture
def running(scripts: Path, tmp_path: Path) -> Iterator[Callable[..., tuple[subprocess.Popen[str], list[int]]]]:
    """Starts a check on two processes, and waits until each of them is at a file that takes for ever."""
    folder = tmp_path / "numbers"
    folder.mkdir()
    processes: list[subprocess.Popen[str]] = []

    def start(*options: str) -> tuple[subprocess.Popen[str], list[int]]:
        program = (
            f"import sys; sys.argv[0] = 'trainlint'; from trainlint import crew\n"
            f"crew._PROGRAM = {patched(scripts, at_work(folder))!r}\n"
            "from trainlint.cli import main; main()"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", program, "check", "--jobs", "2", *options],
            cwd=scripts,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            # a shell's background job ignores it, and what it starts does too
            preexec_fn=(lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)) if os.name == "posix" else None,
        )
        processes.append(process)
        return process, wait_for(lambda: numbers(folder, 2))

    yield start
    for process in processes:
        if process.poll() is None:
            process.kill()
            process.communicate()


@needs_signals
@pytest.mark.parametrize("options", [[], ["-q"]])
def test_an_interrupt_ends_all_without_a_traceback(running: Any, options: list[str]) -> None:
    process, workers = running(*options)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all of them
    out, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "Aborted!" in said
    assert "Traceback" not in said
    assert out == ""
    assert gone(workers)


@needs_signals
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_workers_do_not_outlive_the_one_that_started_them(running: Any, how: signal.Signals) -> None:
    process, workers = running()
    process.send_signal(how)
    _, said = process.communicate(timeout=60)
    assert process.returncode == -how
    assert "Traceback" not in said
    wait_for(lambda: gone(workers))


@pytest.mark.parametrize("flags", [[], ["-I"], ["-S", "-E"]], ids=["plain", "isolated", "no-site"])
def test_a_program_without_a_guard_can_run_it(scripts: Path, tmp_path: Path, flags: list[str]) -> None:
    program = tmp_path / "embedding" / "program.py"
    program.parent.mkdir()
    program.write_text(
        f"import sys\nsys.path[:0] = {[str(ROOT), *sys.path]!r}\nprint('started')\n"
        "sys.argv = ['trainlint', 'check', '--jobs', '2', '--output-format', 'concise', '-q']\n"
        "from trainlint.cli import run\nrun()\n"
    )
    run = subprocess.run(
        [sys.executable, *flags, str(program)], cwd=scripts, capture_output=True, text=True, check=False
    )
    assert run.stderr == ""
    assert run.stdout.splitlines()[0] == "started"
    assert run.stdout.count("started") == 1
    assert run.stdout.count("TL501") == 8


def test_what_came_from_standard_input_goes_along(scripts: Path) -> None:
    settings = Configuration(Overrides()).for_folder(str(scripts))
    targets = [
        Target(str(scripts / "given.py"), settings, data=FINDING.encode()),
        *discover([str(scripts)], Configuration()),
    ]
    assert [len(result.findings) for result in check_parallel(targets, 2)] == [1] * 9

"""`python -m benchmarks`: what it measures and what it says of that. Nothing here asks how long something takes."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks import corpus, parse_files
from benchmarks.comparison import OURS, Compared, quiet_tree
from benchmarks.corpus import Tree
from benchmarks.growth import Grown
from benchmarks.page import Report, render
from benchmarks.rounds import Measured, alternate, order, spread
from benchmarks.rule_times import read_table
from benchmarks.running import Cost, Failed, measure, output
from benchmarks.tools import TOOLS, find

ROOT = Path(__file__).parents[1]
_HERE = Path(__file__).parent


def _cost(cpu: float) -> Cost:
    return Cost(cpu, 2 * cpu, 40_000_000)


def _measured(**cpu: list[float]) -> Measured:
    return Measured({name: [_cost(one) for one in own] for name, own in cpu.items()}, {})


def test_what_is_measured_is_pinned_by_version_and_hash() -> None:
    lines = [line for line in corpus.PINS.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    assert len(corpus.pins()) == len(lines) >= 6


def test_a_command_costs_time_and_memory() -> None:
    cost = measure([sys.executable, "-c", "sum(range(2_000_000)); b'x' * 80_000_000"], _HERE)
    assert cost.cpu > 0
    assert cost.wall > 0
    assert cost.memory > 80_000_000


def test_the_time_of_children_counts() -> None:
    code = "import subprocess, sys, time; subprocess.run([sys.executable, '-c', '{}']); print(time.process_time())"
    busy = code.format("import time\nwhile time.process_time() < 0.3: pass".replace("\n", "\\n"))
    text, _ = output([sys.executable, "-c", busy], _HERE)
    assert measure([sys.executable, "-c", busy], _HERE).cpu > 0.3
    assert float(text) < 0.3  # its own


def test_a_command_that_breaks_down_is_no_measurement() -> None:
    with pytest.raises(Failed, match="exit 3"):
        measure([sys.executable, "-c", "raise SystemExit(3)"], _HERE, accepted=(0, 1))
    with pytest.raises(Failed, match="not done after"):
        measure([sys.executable, "-c", "import time; time.sleep(600)"], _HERE, seconds=0.1)


def test_settings_of_the_shell_do_not_slow_python_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    text, _ = output([sys.executable, "-c", "import sys; print(sys.dont_write_bytecode)"], _HERE)
    assert text.strip() == "False"


def test_every_round_has_another_order() -> None:
    rounds = [order(["a", "b", "c"], number) for number in range(4)]
    assert all(sorted(one) == ["a", "b", "c"] for one in rounds)
    assert {one[0] for one in rounds} == {"a", "b", "c"}
    followers = {pair for one in rounds for pair in pairwise(one)}
    assert len(followers) > 3
    assert order([], 0) == []


def test_contenders_take_turns_and_one_that_fails_is_left_out() -> None:
    log: list[str] = []

    def run(name: str) -> Callable[[], Cost]:
        def once() -> Cost:
            log.append(name)
            if name == "bad":
                raise Failed("bad: exit 1: /some/path/x.py")
            return _cost(1.0)

        return once

    measured = alternate({name: run(name) for name in ("a", "bad", "b")}, 3)
    assert log.count("a") == log.count("b") == 3
    assert log.count("bad") == 1
    assert sorted(measured.costs) == ["a", "b"]
    assert list(measured.failures) == ["bad"]
    assert log == ["a", "bad", "b", "a", "b", "b", "a"]  # in turn, not one after the other


def test_ratios_are_of_the_same_round() -> None:
    measured = _measured(a=[1.0, 2.0, 4.0], b=[3.0, 4.0, 16.0])
    assert measured.ratio("b", "a") == spread([3.0, 2.0, 4.0])
    assert measured.ratio("b", "a").middle == 3.0


def test_a_linter_is_not_taken_where_another_one_plugs_into_it(tmp_path: Path) -> None:
    flake8 = next(tool for tool in TOOLS if tool.name == "flake8")
    for folder, names in (("alone", ["flake8"]), ("together", ["flake8", "torchfix"])):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "python").symlink_to(sys.executable)
        for name in names:
            (tmp_path / folder / name).touch(0o755)
    assert find(flake8, [tmp_path / "together"]) is None
    found = find(flake8, [tmp_path / "together", tmp_path / "alone"])
    assert found is not None
    assert found.executable == tmp_path / "alone" / "flake8"
    assert find(flake8, [tmp_path]) is None


def test_samples_are_the_same_for_everybody() -> None:
    files = [Path(f"{number}.py") for number in range(100)]
    chosen = corpus.sample(files, 10)
    assert chosen == corpus.sample(files, 10)
    assert len(set(chosen)) == 10
    assert chosen != corpus.sample(files, 10, seed=1)
    assert corpus.sample(files, 1000) == files


def test_trees_made_of_files(tmp_path: Path) -> None:
    wheel = tmp_path / "x-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("pack/a.py", "import torch\nx = 1\n")
        archive.writestr("pack/b.py", "y = 1\n")
        archive.writestr("x-1.dist-info/METADATA", "Name: x\n")
    origin = tmp_path / "corpus"
    corpus.unpack(wheel, origin / "x")
    (origin / "x" / "pyproject.toml").write_text("[project]\n", "utf-8")
    assert corpus.tree(origin) == Tree(origin, 2, 3)
    some = corpus.copy([origin / "x" / "pack" / "a.py"], origin, tmp_path / "some")
    assert (some.files, some.lines) == (1, 2)
    assert (some.folder / "x" / "pyproject.toml").exists()
    assert quiet_tree(origin, [(origin / "x" / "pack" / "a.py").resolve()], tmp_path / "quiet").lines == 1
    four = corpus.repeat(origin / "x", 4, tmp_path / "four")
    assert (four.files, four.lines) == (8, 12)
    assert [p.name for p in four.folder.glob("*/pyproject.toml")] == []


def test_the_yardstick_parses_only_what_mentions_torch(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import torch\n", "utf-8")
    (tmp_path / "b.py").write_text("import numpy\n", "utf-8")
    probe = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "import ast; parse = ast.parse; ast.parse = lambda data: print(data) or parse(data)\n"
        f"from benchmarks.parse_files import main; main({str(tmp_path)!r})"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout == "b'import torch\\n'\n"
    parse_files.main(str(tmp_path))


def test_the_table_of_rules_is_read_as_it_is_printed(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[project]\n", "utf-8")
    (tmp_path / "train.py").write_text((ROOT / "fixtures/scripts/train_cifar_like.py").read_text("utf-8"), "utf-8")
    command = [
        sys.executable,
        "-m",
        "trainlint",
        "check",
        "--profile-rules",
        "--isolated",
        "--output-format=concise",
        ".",
    ]
    done = subprocess.run(
        command, cwd=tmp_path, env={"PYTHONPATH": str(ROOT), "PATH": ""}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stderr
    times = read_table(done.stderr)
    by_code = {rule.code: rule for rule in times.rules}
    assert by_code["TL101"].name == "item-in-hot-loop"
    assert by_code["TL101"].findings == done.stdout.count(" TL101 ") > 0
    assert by_code["TL101"].calls == 1
    assert times.rest > 0
    assert [rule.milliseconds for rule in times.rules] == sorted((r.milliseconds for r in times.rules), reverse=True)


def test_the_page_has_ratios_with_their_spread_and_no_paths(tmp_path: Path) -> None:
    report = Report(
        date="2026-01-02",
        machine="Some CPU, 2 cores, Linux, Python 3.11.7",
        packages=["timm 1.0"],
        versions=["trainlint 0.1"],
        commands=["trainlint check"],
        loads=["0.5", "2.0"],
        absent=["pylint -E"],
    )
    measured = Measured(
        {OURS: [_cost(1.0), _cost(1.0), _cost(1.0)], "other": [_cost(2.0), _cost(3.0), _cost(4.0)]},
        {"broken": f"broken: exit 1: {tmp_path}/x.py"},
    )
    tree = Tree(tmp_path, 10, 2000)
    report.compared.append(Compared("A sample", "Ten files.", tree, measured, ["slow one"]))
    report.grown = Grown("timm", [tree, Tree(tmp_path, 20, 4000)], _measured(**{"1": [1.0], "2": [2.5]}))
    page = render(report)
    assert "| **trainlint** | 1.00 | 500 | 2.00 | 40 | 1 |" in page
    assert "| other | 3.00 (2.00 to 4.00) | 1,500 | 6.00 (4.00 to 8.00) | 40 | 3.00 (2.00 to 4.00) |" in page
    assert "| 2x | 20 | 2.50 | 125 | 2.50 | 40 |" in page
    assert "Some CPU, 2 cores" in page
    assert "load average 0.5 to 2.0" in page
    assert "broken failed: exit 1" in page
    assert "slow one" in page
    assert "Not installed, and so not measured: pylint -E." in page
    assert str(tmp_path) not in page

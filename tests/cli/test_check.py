"""What `trainlint check` prints, and how it exits."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

TRAIN = """\
import torch


def train(model, loader, optimizer):
    total = 0.0
    for images in loader:
        loss = model(images).sum()
        loss.backward()
        total += loss.item()
    return total
"""

CLEAN = "import torch\n\nprint(torch.__version__)\n"


def test_text_shows_the_place_the_code_the_loop_why_and_help(lint: Any, project: Path) -> None:
    (project / "train.py").write_text(TRAIN)
    result = lint("check", "train.py")
    assert result.stdout == dedent("""\
        warning[TL101] item-in-hot-loop: `loss.item()` runs on every step of the batch loop
          --> train.py:9:18
           |
         7 |         loss = model(images).sum()
         8 |         loss.backward()
         9 |         total += loss.item()
           |                  ^^^^^^^^^^^
        10 |     return total
           |
          ::: train.py:6:5: the batch loop
           |
         6 |     for images in loader:
           |     ---------------------
           = why: the CPU waits here until the GPU has finished all work queued so far
           = help: add up on the device with `.detach()` and call `.item()` once after the loop
           = unsafe fix: Keep the value on the device

        Found 1 finding (1 warning) in 1 file.
        No safe fixes; 1 fixable with `--fix --unsafe-fixes`.
        """)
    assert result.exit_code == 1


def test_repeats_in_one_loop_are_folded_and_verbose_unfolds_them(lint: Any, project: Path) -> None:
    (project / "train.py").write_text(TRAIN.replace("    return", "        print(loss.item())\n    return"))
    folded = lint("check", "train.py").stdout
    assert folded.count("warning[TL101]") == 1
    assert "::: train.py:10:15: also here" in folded
    assert "Found 2 findings (2 warnings)" in folded
    assert lint("check", "train.py", "-v").stdout.count("warning[TL101]") == 2


def test_concise_is_one_line_per_finding(lint: Any, project: Path) -> None:
    (project / "train.py").write_text(TRAIN)
    result = lint("check", "--output-format", "concise", "-q")
    assert result.stdout == "train.py:9:18: TL101 `loss.item()` runs on every step of the batch loop\n"


def test_json_has_the_shape_of_ruff_and_more(lint: Any, project: Path) -> None:
    (project / "train.py").write_text(TRAIN)
    result = lint("check", "--output-format", "json")
    (found,) = json.loads(result.stdout)
    fingerprint = found.pop("fingerprint")
    assert len(fingerprint) == 20
    assert int(fingerprint, 16) >= 0
    assert found == {
        "cell": None,
        "code": "TL101",
        "name": "item-in-hot-loop",
        "message": "`loss.item()` runs on every step of the batch loop",
        "level": "warning",
        "severity": "warning",
        "claim": "sync",
        "why": "the CPU waits here until the GPU has finished all work queued so far",
        "help": "add up on the device with `.detach()` and call `.item()` once after the loop",
        "filename": str(project / "train.py"),
        "location": {"row": 9, "column": 18},
        "end_location": {"row": 9, "column": 29},
        "related": [
            {
                "filename": str(project / "train.py"),
                "cell": None,
                "location": {"row": 6, "column": 5},
                "end_location": {"row": 6, "column": 26},
                "message": "the batch loop",
            }
        ],
        "fix": {
            "applicability": "unsafe",
            "message": "Keep the value on the device",
            "edits": [
                {"content": "detach", "location": {"row": 9, "column": 23}, "end_location": {"row": 9, "column": 27}}
            ],
        },
        "noqa_row": 9,
        "url": None,
    }
    assert result.exit_code == 1


def test_json_of_nothing_is_an_empty_list(lint: Any, project: Path) -> None:
    (project / "clean.py").write_text(CLEAN)
    result = lint("check", "--output-format", "json")
    assert json.loads(result.stdout) == []
    assert result.exit_code == 0


def test_clean_code_passes(lint: Any, project: Path) -> None:
    (project / "clean.py").write_text(CLEAN)
    result = lint("check")
    assert result.stdout == "All checks passed!\n"
    assert result.exit_code == 0


def test_quiet_says_nothing_about_clean_code(lint: Any, project: Path) -> None:
    (project / "clean.py").write_text(CLEAN)
    assert lint("check", "-q").output == ""


def test_output_is_sorted_by_file_line_and_code(lint: Any, project: Path) -> None:
    for name in ("b.py", "a/z.py", "a.py"):
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text(TRAIN + "torch.nn.DataParallel(model)\n")
    lines = lint("check", "--output-format", "concise", "-q", "b.py", ".").stdout.splitlines()
    assert [line.split(" ")[0] + line.split(" ")[1] for line in lines] == [
        "a.py:9:18:TL101",
        "a.py:11:1:TL501",
        "a/z.py:9:18:TL101",
        "a/z.py:11:1:TL501",
        "b.py:9:18:TL101",
        "b.py:11:1:TL501",
    ]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ((), 1),
        (("--fail-on", "warning"), 1),
        (("--fail-on", "error"), 0),
        (("--exit-zero",), 0),
        (("--select", "TL5"), 0),
    ],
)
def test_exit_code(lint: Any, project: Path, arguments: tuple[str, ...], code: int) -> None:
    (project / "train.py").write_text(TRAIN)
    assert lint("check", *arguments).exit_code == code


def test_advice_fails_a_run_only_when_asked_to_and_is_then_shown(lint: Any, project: Path) -> None:
    (project / "train.py").write_text("import torch\npersistent()\n")
    usual = lint("check")
    assert usual.stdout == "All checks passed!\n1 more of level advice is not shown (--pedantic shows it).\n"
    assert usual.exit_code == 0
    assert lint("check", "--pedantic").exit_code == 0
    asked = lint("check", "--fail-on", "advice")
    assert "advice[TL305]" in asked.stdout
    assert asked.exit_code == 1


def test_statistics_count_by_code(lint: Any, project: Path) -> None:
    more = "torch.nn.DataParallel(model)\ntorch.nn.DataParallel(model)\n"
    (project / "train.py").write_text(TRAIN + more)
    result = lint("check", "--statistics", "-q")
    assert result.stdout == "2\tTL501\tdata-parallel\n1\tTL101\titem-in-hot-loop\n"
    as_json = json.loads(lint("check", "--statistics", "--output-format", "json").stdout)
    assert as_json[0] == {"code": "TL501", "name": "data-parallel", "count": 2, "fixable": False, "fixable_count": 0}


def test_show_files_lists_them_without_checking(lint: Any, project: Path) -> None:
    (project / "b.py").write_text("(")
    (project / "a.ipynb").write_text("")
    (project / "c.txt").write_text("")
    result = lint("check", "--show-files")
    assert result.stdout.splitlines() == [str(project / "a.ipynb"), str(project / "b.py")]
    assert result.exit_code == 0


def test_show_settings(lint: Any, project: Path) -> None:
    (project / "trainlint.toml").write_text('fail-on = "error"\ntorch-version = ">=2.1,<2.6"\n')
    output = lint("check", "--show-settings", "--ignore", "TL5").stdout
    assert f"configuration file   {project / 'trainlint.toml'}\n" in output
    assert "rules                TL000, TL001, TL101, TL305\n" in output
    assert "fail-on              error\n" in output
    assert "torch                2.1 to 2.5 (torch-version >=2.1,<2.6)\n" in output


def test_verbose_says_what_was_done_on_stderr(lint: Any, project: Path) -> None:
    (project / "requirements.txt").write_text("torch>=2.3\n")
    (project / "train.py").write_text(TRAIN)
    result = lint("check", "-v")
    assert "torch: requirements.txt" in result.stderr
    assert "1 file; 1 finding, 0 errors among them; 0 suppressed by comments" in result.stderr


def test_no_files_is_no_failure(lint: Any, project: Path) -> None:
    (project / "empty").mkdir()
    result = lint("check", "empty")
    assert result.exit_code == 0
    assert result.stderr == "warning: no Python files found under the given paths\n"


def test_a_path_that_does_not_exist_is_a_usage_error(lint: Any, project: Path) -> None:
    (project / "train.py").write_text(TRAIN)
    result = lint("check", "train.py", "trian.py")
    assert result.exit_code == 2
    assert result.stderr == "error: trian.py: no such file or folder\n"
    assert result.stdout == ""


def test_path_with_spaces_and_letters_beyond_ascii(lint: Any, project: Path) -> None:
    path = project / "mein Modell" / "träning.py"
    path.parent.mkdir()
    path.write_text(TRAIN)
    result = lint("check", "mein Modell/träning.py", "--output-format", "concise", "-q")
    assert result.stdout.startswith("mein Modell/träning.py:9:18: TL101 ")


def test_stdin(lint: Any, project: Path) -> None:
    result = lint("check", "-", "--output-format", "concise", "-q", stdin=TRAIN)
    assert result.stdout.startswith("-:9:18: TL101 ")
    assert result.exit_code == 1


def test_stdin_says_what_a_file_of_that_text_says(command: Any, project: Path) -> None:
    step = "def train(model, loader, opt, crit):\n    total = 0\n    for x, y in loader:\n        x, y = x.cuda(), y.cuda()\n"
    step += "        opt.zero_grad()\n        loss = crit(model(x), y)\n        loss.backward()\n        opt.step()\n"
    text = "import torch\n" + step + "        total += loss.item()\n    return total\n"
    arguments = ("check", "--output-format", "concise", "-q")
    assert command(*arguments, "-", cwd=project, stdin=text).stdout.startswith("-:10:18: TL101 ")
    assert command(*arguments, "-", "--stdin-filename", "step.txt", cwd=project, stdin=text).stdout.startswith(
        "step.txt:10:18: TL101 "
    )
    cells = [{"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": text}]
    book = json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    found = command(*arguments, "-", "--stdin-filename", "step.ipynb", cwd=project, stdin=book).stdout
    assert found.startswith("step.ipynb:cell 1:10:18: TL101 ")


def test_stdin_takes_name_and_settings_from_stdin_filename(lint: Any, project: Path) -> None:
    (project / "sub").mkdir()
    (project / "sub" / "trainlint.toml").write_text('[per-file-ignores]\n"train.py" = ["TL1"]\n')
    arguments = ("check", "-", "--output-format", "concise", "-q", "--stdin-filename")
    assert lint(*arguments, "sub/train.py", stdin=TRAIN).output == ""
    assert lint(*arguments, "sub/other.py", stdin=TRAIN).stdout.startswith("sub/other.py:9:18: TL101 ")


def test_stdin_that_is_excluded(lint: Any, project: Path) -> None:
    arguments = ("check", "-", "-q", "--stdin-filename", "build/train.py")
    assert lint(*arguments, stdin=TRAIN).exit_code == 1
    assert lint(*arguments, "--force-exclude", stdin=TRAIN).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-", "train.py"), "- (standard input) cannot be checked together with other paths"),
        (("--stdin-filename", "x.py"), "--stdin-filename names what comes from standard input: give - as the path"),
        (("--config", "a.toml", "--isolated"), "--config and --isolated contradict each other: give one of them"),
        (("--config", "a.toml"), "a.toml: cannot be read: No such file or directory"),
        (("--torch-version", "two"), "'two' is no version; write one such as \"2.5\", or a range such as"),
        (("--target-platform", "win"), "'win' is unknown; did you mean 'windows'?"),
        (("--select", "TL102"), "--select: there is no rule 'TL102'; did you mean 'TL101' (item-in-hot-loop)?"),
        (("--why", "train.py"), "'train.py' names no line; write FILE:LINE"),
    ],
)
def test_usage_errors_say_what_to_write(lint: Any, project: Path, arguments: tuple[str, ...], message: str) -> None:
    (project / "train.py").write_text(TRAIN)
    result = lint("check", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr


def test_unknown_command_is_told_the_way(lint: Any) -> None:
    assert "did you mean 'trainlint check'?" in lint("chek").stderr
    result = lint("train.py")
    assert "to check a file: trainlint check train.py" in result.stderr
    assert result.exit_code == 2


def test_why_hands_the_line_to_the_analysis(lint: Any, project: Path) -> None:
    (project / "train.py").write_text(TRAIN)
    assert lint("check", "--why", "train.py:9").stdout == "line 9: total += loss.item()\n"
    result = lint("check", "--why", "train.py:900")
    assert result.exit_code == 2
    assert "train.py has 11 lines, not 900" in result.stderr
    assert lint("check", "--why", "nowhere.py:3").exit_code == 2


def test_an_internal_fault_is_told_and_the_other_files_are_checked(lint: Any, project: Path) -> None:
    (project / "a.py").write_text("import torch  # raise an internal fault\n")
    (project / "b.py").write_text(TRAIN)
    result = lint("check", "--output-format", "concise")
    assert result.exit_code == 2
    assert f"internal fault: {project / 'a.py'} could not be checked" in result.stderr
    assert "please report it" in result.stderr
    assert "RuntimeError: a mistake in a rule" in result.stderr
    assert "b.py:9:18: TL101" in result.stdout


def test_a_file_without_a_framework_is_not_even_parsed(lint: Any, project: Path) -> None:
    (project / "broken.py").write_text("x = (\n")
    assert lint("check").exit_code == 0


@pytest.mark.parametrize("name", ["lightning", "accelerate", "fastai", "ignite", "transformers", "deepspeed", "timm"])
def test_frameworks_count_as_training_code(lint: Any, project: Path, name: str) -> None:
    (project / "train.py").write_text(f"import {name}\nDataParallel(1)\n")
    assert lint("check").exit_code == 1


def test_color_follows_the_environment(lint: Any, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "train.py").write_text(TRAIN)
    assert "\033[" not in lint("check").stdout
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\033[1;33mwarning[TL101]\033[0m" in lint("check").stdout
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\033[" not in lint("check").stdout


def test_version(lint: Any) -> None:
    from trainlint import __version__

    assert lint("--version").stdout == f"trainlint {__version__}\n"


def test_tabs_and_wide_letters_are_underlined_where_they_stand(lint: Any, project: Path) -> None:
    (project / "train.py").write_text('import torch\nif x:\n\t"値", DataParallel("模型")\n', encoding="utf-8")
    lines = lint("check").stdout.splitlines()
    at = lines.index('3 |     "値", DataParallel("模型")')
    assert lines[at + 1] == "  |           ^^^^^^^^^^^^^^^^^^^^"


def test_a_finding_over_many_lines_is_cut_in_the_middle(lint: Any, project: Path) -> None:
    arguments = "".join(f"    layer{i},\n" for i in range(40))
    (project / "train.py").write_text(f"import torch\nDataParallel(\n{arguments})\n")
    output = lint("check").stdout
    assert "layer0" in output
    assert "layer39" in output
    assert "layer20" not in output
    assert "\n...\n" in output


def test_control_characters_of_the_source_do_not_reach_the_terminal(lint: Any, project: Path) -> None:
    (project / "train.py").write_text('import torch\nDataParallel("\x1b[31m")\n')
    assert "\x1b" not in lint("check").stdout

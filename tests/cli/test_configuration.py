"""Which configuration file holds, and what is said about a wrong one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

TRAIN = "import torch\nfor batch in loader:\n    batch.item()\nDataParallel(1)\n"


def shown(result: Any) -> list[str]:
    return [" ".join(line.split(" ")[:2]) for line in result.stdout.splitlines()]


def test_the_nearest_file_wins_and_nothing_is_merged(lint: Any, project: Path) -> None:
    (project / "pyproject.toml").write_text('[tool.trainlint]\nselect = ["TL1"]\nignore = ["TL101"]\n')
    for folder in ("plain", "own", "other"):
        (project / folder).mkdir()
        (project / folder / "train.py").write_text(TRAIN)
    (project / "own" / "trainlint.toml").write_text('select = ["TL101", "TL501"]\n')
    (project / "other" / "pyproject.toml").write_text('[tool.trainlint]\nselect = ["TL5"]\n')
    result = lint("check", "-q", "--output-format", "concise")
    assert shown(result) == ["other/train.py:4:1: TL501", "own/train.py:3:5: TL101", "own/train.py:4:1: TL501"]


def test_a_pyproject_without_our_table_does_not_count(lint: Any, project: Path) -> None:
    (project / "trainlint.toml").write_text('select = ["TL5"]\n')
    (project / "sub").mkdir()
    (project / "sub" / "pyproject.toml").write_text('[project]\nname = "x"\ndescription = "for trainlint"\n')
    (project / "sub" / "train.py").write_text(TRAIN)
    assert shown(lint("check", "-q", "--output-format", "concise")) == ["sub/train.py:4:1: TL501"]


def test_trainlint_toml_goes_before_pyproject(lint: Any, project: Path) -> None:
    (project / "train.py").write_text(TRAIN)
    (project / "pyproject.toml").write_text('[tool.trainlint]\nselect = ["TL1"]\n')
    (project / "trainlint.toml").write_text('select = ["TL5"]\n')
    assert shown(lint("check", "-q", "--output-format", "concise")) == ["train.py:4:1: TL501"]


def test_config_names_the_only_file_that_counts(lint: Any, project: Path) -> None:
    (project / "train.py").write_text(TRAIN)
    (project / "trainlint.toml").write_text('select = ["TL1"]\n')
    (project / "strict").mkdir()
    (project / "strict" / "trainlint.toml").write_text('select = ["TL5"]\n')
    arguments = ("check", "-q", "--output-format", "concise", "--config")
    assert shown(lint(*arguments, "strict/trainlint.toml")) == ["train.py:4:1: TL501"]
    (project / "pyproject.toml").write_text("[project]\n")
    result = lint(*arguments, "pyproject.toml")
    assert result.exit_code == 2
    assert "pyproject.toml: has no table [tool.trainlint]" in result.stderr


def test_per_file_ignores_are_relative_to_their_file(lint: Any, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "trainlint.toml").write_text('[per-file-ignores]\n"scripts/*.py" = ["TL1"]\n"bench" = ["TL5"]\n')
    for folder in ("scripts", "bench/deep"):
        (project / folder).mkdir(parents=True)
        (project / folder / "train.py").write_text(TRAIN)
    monkeypatch.chdir(project / "scripts")
    assert shown(lint("check", "-q", "--output-format", "concise", "train.py")) == ["train.py:4:1: TL501"]
    deep = lint("check", "-q", "--output-format", "concise", str(project / "bench"))
    assert shown(deep) == [f"{project}/bench/deep/train.py:3:5: TL101"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fail_on = 'error'", ":1: {}fail_on: unknown setting; did you mean 'fail-on'? (known: select, ignore, "),
        ("selct = ['TL1']", ":1: {}selct: unknown setting; did you mean 'select'?"),
        ("\nselect = 'TL1'", ':2: {}select: must be a list of strings, such as ["a", "b"], not \'TL1\''),
        ("select = ['F401']", ':1: {}select: \'F401\' is no rule code; write "TL101", a prefix such as "TL1", or'),
        ("ignore = ['TL102']", ": {}ignore: there is no rule 'TL102'; did you mean 'TL101' (item-in-hot-loop)?"),
        (
            "fail-on = 'warn'",
            ":1: {}fail-on: 'warn' is no level; did you mean 'warning'? (known: advice, warning, error)",
        ),
        ("levels = {TL101 = 'none'}", ":1: {}levels.TL101: 'none' is no level"),
        ("levels = {TL1 = 'off'}", ':1: {}levels.TL1: is no rule code; write a whole one, such as TL303 = "advice"'),
        ("levels = ['TL101']", ":1: {}levels: must be a table from code to level"),
        ("target-platform = ['linus']", ":1: {}target-platform: 'linus' is no platform; did you mean 'linux'?"),
        ("target-platform = []", ":1: {}target-platform: must name at least one of linux, macos, windows"),
        ("torch-version = '2.x'", ":1: {}torch-version: '2.x' is no version; write one such as \"2.5\""),
        ("torch-version = 2.5", ':1: {}torch-version: must be a string such as "2.5" or ">=2.1,<2.6", not 2.5'),
        ("torch-version = '>3'", ":1: {}torch-version: '>3' allows no release of torch; write"),
        ("python-version = '2.7'", ":1: {}python-version: must be a string such as \"3.10\", not '2.7'"),
        ("per-file-ignores = 3", ":1: {}per-file-ignores: must be a table from pattern to codes"),
        ("per-file-ignores = {'a' = ['x']}", ":1: {}per-file-ignores.a: 'x' is no rule code"),
        ("hot-functions = 'step'", ":1: {}hot-functions: must be a list of strings"),
        ("select = [", ": not valid TOML: "),
    ],
)
def test_errors_name_file_line_key_and_way_out(lint: Any, project: Path, text: str, message: str) -> None:
    (project / "train.py").write_text(TRAIN)
    path = project / "trainlint.toml"
    path.write_text(text + "\n")
    result = lint("check")
    assert result.stderr.startswith(f"error: {path}{message.format('')}")
    assert result.exit_code == 2
    path.unlink()

    path = project / "pyproject.toml"
    path.write_text(f"[tool.trainlint]\n{text}\n")
    result = lint("check")
    expected = message.format("tool.trainlint.").replace(":2:", ":3:").replace(":1:", ":2:", 1)
    assert result.stderr.startswith(f"error: {path}{expected}")


def test_a_configuration_that_is_not_utf8(lint: Any, project: Path) -> None:
    (project / "trainlint.toml").write_bytes(b"# \xe9\n")
    result = lint("check", ".")
    assert result.exit_code == 2
    assert "trainlint.toml: not UTF-8, which TOML must be" in result.stderr


def test_trainlint_toml_has_no_heading(lint: Any, project: Path) -> None:
    (project / "trainlint.toml").write_text('[tool.trainlint]\nselect = ["TL1"]\n')
    result = lint("check")
    assert result.exit_code == 2
    assert "in this file the settings stand without the heading [tool.trainlint]" in result.stderr


@pytest.mark.parametrize("value", ["1" * 5000, "[" * 5000 + "]" * 5000], ids=["digits", "nested"])
def test_toml_that_python_gives_up_on(lint: Any, project: Path, value: str) -> None:
    (project / "pyproject.toml").write_text(f"torch = {value}\n[tool.trainlint]\n")
    result = lint("check")
    assert result.exit_code == 2
    assert "pyproject.toml: not valid TOML: " in result.stderr


def test_a_byte_order_mark_before_the_settings(lint: Any, project: Path) -> None:
    (project / "trainlint.toml").write_bytes(b'\xef\xbb\xbfignore = ["TL1"]\n')
    assert lint("check", "--show-settings").exit_code == 0


def test_settings_reach_the_analysis(project: Path) -> None:
    from trainlint.settings import Configuration

    (project / "trainlint.toml").write_text(
        'hot-functions = ["inner_step"]\nloader-names = ["stream"]\n'
        'target-platform = ["linux"]\npython-version = "3.12"\n'
    )
    settings = Configuration().for_file(str(project / "train.py"))
    assert settings.hot_functions == ("inner_step",)
    assert settings.loader_names == ("stream",)
    assert settings.target_platform == ("linux",)
    assert settings.python == (3, 12)
    assert settings.project == str(project)


def test_files_of_one_project_share_their_settings(project: Path) -> None:
    from trainlint.settings import Configuration

    (project / "inner").mkdir()
    (project / "inner" / "setup.py").write_text("")
    configuration = Configuration()
    first = configuration.for_file(str(project / "a.py"))
    assert configuration.for_file(str(project / "sub" / "b.py")) is first
    assert configuration.for_file(str(project / "inner" / "c.py")).project == str(project / "inner")


def test_where_nothing_marks_a_project_the_working_directory_is_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trainlint.settings import Configuration

    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    configuration = Configuration()
    assert configuration.for_file(str(tmp_path / "here" / "deep" / "train.py")).project == str(tmp_path / "here")
    assert configuration.for_file(str(tmp_path / "other" / "train.py")).project == str(tmp_path / "other")

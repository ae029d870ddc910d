"""Which files a run looks at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def files(lint: Any, project: Path) -> Any:
    def run(*arguments: str) -> list[str]:
        result = lint("check", "--show-files", *arguments)
        assert result.exit_code == 0, result.stderr
        return [str(Path(line).relative_to(project)) for line in result.stdout.splitlines()]

    return run


def make(project: Path, *names: str) -> None:
    for name in names:
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("import torch\n")


def test_python_files_and_notebooks_sorted_without_the_usual_folders(files: Any, project: Path) -> None:
    make(project, "b.py", "a/b/c.py", "nb.ipynb", "w.pyw", "notes.txt", "train", "stub.pyi")
    make(
        project, ".venv/x.py", "build/x.py", "a/node_modules/x.py", "site-packages/x.py", ".ipynb_checkpoints/nb.ipynb"
    )
    assert files() == ["a/b/c.py", "b.py", "nb.ipynb", "w.pyw"]
    assert files("a", "b.py", "b.py", "./a/b") == ["a/b/c.py", "b.py"]


def test_a_named_file_is_checked_whatever_it_is_called(files: Any, project: Path) -> None:
    make(project, "train", "build/x.py")
    assert files("train", "build/x.py", "build") == ["build/x.py", "train"]


def test_force_exclude(files: Any, project: Path) -> None:
    make(project, "build/x.py", "train.py")
    assert files("--force-exclude", "build/x.py", "build", "train.py") == ["train.py"]


def test_exclude_replaces_and_extend_exclude_adds(files: Any, project: Path) -> None:
    make(project, "build/x.py", "old/x.py", "new/deep/x.py", "train.py", "train_old.py")
    (project / "trainlint.toml").write_text('extend-exclude = ["old", "new/*", "*_old.py"]\n')
    assert files() == ["train.py"]
    assert files("--exclude", "train.py") == []
    (project / "trainlint.toml").write_text('exclude = ["old"]\n')
    assert files() == ["build/x.py", "new/deep/x.py", "train.py", "train_old.py"]


def test_excludes_of_the_command_line_are_relative_to_where_they_are_typed(
    files: Any, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(project, "src/gen/x.py", "src/train.py", "gen/x.py")
    monkeypatch.chdir(project / "src")
    assert files("--exclude", "gen/*.py", "..") == ["gen/x.py", "src/train.py"]


def test_gitignore(files: Any, project: Path) -> None:
    make(project, "out/x.py", "keep.py", "gen_a.py", "gen_b.py", "sub/local.py", "sub/gen_c.py", "sub/kept/gen_d.py")
    (project / ".gitignore").write_text("out/\ngen_*.py\n!gen_b.py\n")
    (project / "sub" / ".gitignore").write_text("local.py\n!gen_c.py\n")
    assert files() == ["gen_b.py", "keep.py", "sub/gen_c.py"]
    assert files("sub") == ["sub/gen_c.py"]
    # What is named is checked.
    assert files("out", "gen_a.py") == ["gen_a.py", "out/x.py"]


def test_gitignore_above_the_repository_does_not_count(files: Any, project: Path) -> None:
    make(project, "train.py")
    (project.parent / ".gitignore").write_text("*.py\n")
    assert files() == ["train.py"]


def test_a_link_to_a_file_is_followed_and_one_to_a_folder_is_not(files: Any, project: Path) -> None:
    make(project, "real/train.py")
    (project / "link.py").symlink_to("real/train.py")
    (project / "folder").symlink_to("real", target_is_directory=True)
    assert files() == ["link.py", "real/train.py"]

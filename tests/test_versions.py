"""The range of torch versions that a project is for."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainlint.torch_api.versions import OLDEST_TARGET
from trainlint.versions import NEWEST, VersionError, parse_target, project_range, torch_range


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2.5", ((2, 5), (2, 5))),
        ("2.5.1", ((2, 5), (2, 5))),
        ("v2.5.1+cu121", ((2, 5), (2, 5))),
        ("2", ((2, 0), (2, 0))),
        (">=2.1,<2.6", ((2, 1), (2, 5))),
        (">=2.1", ((2, 1), NEWEST)),
        ("<2.6", (OLDEST_TARGET, (2, 5))),
        ("<=2.6", (OLDEST_TARGET, (2, 6))),
        ("~=2.1", ((2, 1), NEWEST)),
        ("~=2.1.1", ((2, 1), (2, 1))),
        ("==2.3.*", ((2, 3), (2, 3))),
        (">=2.1,!=2.1.0", ((2, 1), NEWEST)),
        (">2.1.0", ((2, 1), NEWEST)),
        (">=1.13,<2", ((1, 13), (1, 13))),
        (">=2.99", ((2, 99), (2, 99))),
    ],
)
def test_target(text: str, expected: object) -> None:
    assert parse_target(text) == expected


@pytest.mark.parametrize("text", ["", "two", "2.x", ">=", ">4", "<1", ">=2.6,<2.1"])
def test_what_is_no_target(text: str) -> None:
    with pytest.raises(VersionError):
        parse_target(text)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("requirements.txt", "numpy\ntorch>=2.1,<2.6  # the tested ones\n", ((2, 1), (2, 5))),
        ("requirements-dev.txt", "torch==2.4.1+cpu ; python_version > '3.8'\n", ((2, 4), (2, 4))),
        ("requirements.txt", "torch==2.4.0 --hash=sha256:abc \\\n    --hash=sha256:def\n", ((2, 4), (2, 4))),
        ("requirements.txt", "torchvision==0.15\ntorch_geometric==2.3\n", (NEWEST, NEWEST)),
        ("requirements.txt", "torch\n", (NEWEST, NEWEST)),
        ("requirements.txt", "torch @ file:///wheels/torch.whl\n", (NEWEST, NEWEST)),
        ("requirements.txt", "torch>=2.0\ntorch<2.3\n", ((2, 0), (2, 2))),
        ("requirements.txt", "torch<2.0\ntorch>2.3\n", (NEWEST, NEWEST)),
        ("pyproject.toml", '[project]\ndependencies = ["torch>=2.2"]\n', ((2, 2), NEWEST)),
        ("pyproject.toml", '[project.optional-dependencies]\ntrain = ["torch[opt]~=2.2.0"]\n', ((2, 2), (2, 2))),
        (
            "pyproject.toml",
            '[dependency-groups]\ntrain = ["torch<2.4", {}]\n',
            (OLDEST_TARGET, (2, 3)),
        ),
        ("pyproject.toml", '[tool.poetry.dependencies]\ntorch = "^2.1"\n', ((2, 1), NEWEST)),
        ("pyproject.toml", '[tool.poetry.dependencies]\ntorch = "~2.1"\n', ((2, 1), (2, 1))),
        ("pyproject.toml", '[tool.poetry.dependencies]\ntorch = {version = "2.1.*", source = "x"}\n', ((2, 1), (2, 1))),
        ("pyproject.toml", '[tool.poetry.group.train.dependencies]\ntorch = "2.1"\n', ((2, 1), (2, 1))),
        ("pyproject.toml", '[tool.poetry.dependencies]\ntorch = "*"\n', (NEWEST, NEWEST)),
        ("pyproject.toml", "torch = [\n", (NEWEST, NEWEST)),
        ("setup.cfg", "[options]\ninstall_requires =\n    numpy\n    torch>=1.13,<2.1\n", ((1, 13), (2, 0))),
        ("setup.cfg", "[options.extras_require]\ntrain = torch<2\n", ((1, 13), (1, 13))),
        ("setup.cfg", "no section\n", (NEWEST, NEWEST)),
        ("setup.py", 'setup(name="x", install_requires=["numpy", "torch>=2.1,<2.4"])\n', ((2, 1), (2, 3))),
        (
            "setup.py",
            'import setuptools\nsetuptools.setup(extras_require={"train": ["torch~=2.2.0"]})\n',
            ((2, 2), (2, 2)),
        ),
        ("setup.py", 'NEEDS = [\n    "torch>=2.4",\n]\nsetup(install_requires=NEEDS + ["tqdm"])\n', ((2, 4), NEWEST)),
        ("setup.py", 'setup(install_requires="numpy\\ntorch==2.3.1\\n")\n', ((2, 3), (2, 3))),
        ("setup.py", 'setup(install_requires=[f"torch=={pinned}", "torch" + "<2"])\n', (NEWEST, NEWEST)),
        ("setup.py", 'setup(install_requires=open("torch>=2.1.txt").read().split())\n', (NEWEST, NEWEST)),
        ("setup.py", 'n = ["torch<2"]\nn = ["torch"]\nsetup(install_requires=n)\n', (NEWEST, NEWEST)),
        ("setup.py", 'print "torch>=2.1"\nsetup(install_requires=["torch>=2.1"])\n', (NEWEST, NEWEST)),
        ("environment.yml", "dependencies:\n  - python=3.10\n  - pytorch=2.1\n", ((2, 1), (2, 1))),
        ("environment.yml", "dependencies:\n  - pytorch::pytorch>=2.0,<2.2\n", ((2, 0), (2, 1))),
        ("environment.yml", "dependencies:\n  - pytorch=1.13.1=py3.10_cuda11.7\n", ((1, 13), (1, 13))),
        ("environment.yml", "dependencies:\n  - pytorch==2.1.0=py3.10_cuda11.7\n", ((2, 1), (2, 1))),
        ("environment.yml", "dependencies:\n  - pip:\n    - torch==2.1.*\n", ((2, 1), (2, 1))),
        ("environment.yml", "dependencies:\n  - pytorch-cuda=12.1\n", (NEWEST, NEWEST)),
    ],
)
def test_requirement_files(tmp_path: Path, name: str, text: str, expected: object) -> None:
    (tmp_path / name).write_text(text)
    assert project_range(str(tmp_path))[0] == expected


def test_several_files_are_intersected_and_named(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("torch>=2.1\n")
    (tmp_path / "pyproject.toml").write_text('[project]\ndependencies = ["torch<2.4"]\n')
    assert project_range(str(tmp_path)) == (((2, 1), (2, 3)), "pyproject.toml, requirements.txt")


def test_a_given_target_goes_before_the_files(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("torch>=2.1\n")
    assert torch_range(str(tmp_path), "2.0") == ((2, 0), (2, 0))
    assert torch_range(str(tmp_path), None) == ((2, 1), NEWEST)


def test_a_folder_that_is_not_there_says_nothing(tmp_path: Path) -> None:
    assert project_range(str(tmp_path / "nowhere"))[0] == (NEWEST, NEWEST)

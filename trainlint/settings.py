"""The settings that hold for a file: defaults, the nearest configuration file, and the command line over both."""

# No `from __future__ import annotations` here: NamedTuple would compile each annotation of each field at every start.

import os
from typing import TYPE_CHECKING

from trainlint.findings import Level
from trainlint.records import NamedTuple

if TYPE_CHECKING:
    from trainlint.torch_api.versions import Target

PLATFORMS = ("linux", "macos", "windows")

DEFAULT_EXCLUDE = (
    ".bzr", ".direnv", ".eggs", ".git", ".git-rewrite", ".hg", ".ipynb_checkpoints", ".mypy_cache", ".nox", ".pants.d",
    ".pyenv", ".pytest_cache", ".pytype", ".ruff_cache", ".svn", ".tox", ".trainlint_cache", ".venv", ".vscode",
    "__pypackages__", "_build", "buck-out", "build", "dist", "node_modules", "site-packages", "venv",
)  # fmt: skip

_PROJECT_MARKERS = frozenset(("pyproject.toml", "trainlint.toml", "setup.py", ".git"))


class SettingsError(Exception):
    """A setting that cannot be used. The message names the file, the key, what is wrong and what would be right."""


class Settings(NamedTuple):
    """What holds for the files of one project under one configuration file. Immutable.

    `select`, `ignore` and `extend_select` are kept as they were written, file and command line apart;
    `trainlint.selection` gives them their meaning.
    """

    root: str  # what patterns are relative to: the folder of `config`, else the project
    project: str  # nearest folder upwards with pyproject.toml, trainlint.toml, setup.py or .git; where there is none,
    # the working directory, or for a file outside of it its own folder
    config: str | None = None  # the configuration file
    select: tuple[str, ...] | None = None
    ignore: tuple[str, ...] = ()
    extend_select: tuple[str, ...] = ()
    per_file_ignores: tuple[tuple[str, tuple[str, ...]], ...] = ()
    exclude: tuple[str, ...] = DEFAULT_EXCLUDE
    levels: tuple[tuple[str, Level], ...] = ()
    preview: bool = False  # rules that are still being tried run too
    fail_on: Level = Level.WARNING
    target_platform: tuple[str, ...] = PLATFORMS
    torch_version: str | None = None
    python_version: str | None = None
    hot_functions: tuple[str, ...] = ()  # functions that are hot although nothing in the project says so
    loader_names: tuple[str, ...] = ()  # names and callables of the project that stand for a DataLoader
    overrides: "Overrides | None" = None  # the command line

    @property
    def torch_range(self) -> "Target":
        """(low, high): the versions of torch that the project is for. Reads its requirements when first asked."""
        from trainlint.versions import torch_range

        return torch_range(self.project, self.torch_version)

    @property
    def python(self) -> tuple[int, int]:
        """The version of Python that the project is for: `python-version`, else that of the running interpreter."""
        if self.python_version is None:
            import sys

            return sys.version_info[0], sys.version_info[1]
        major, minor = self.python_version.split(".")
        return int(major), int(minor)


class Overrides(NamedTuple):
    """What the command line says. None, or empty for a list: nothing."""

    select: tuple[str, ...] | None = None
    ignore: tuple[str, ...] = ()
    extend_select: tuple[str, ...] = ()
    pedantic: bool = False
    preview: bool | None = None
    fail_on: Level | None = None
    target_platform: tuple[str, ...] | None = None
    torch_version: str | None = None
    exclude: tuple[str, ...] | None = None


class Configuration:
    """Finds the settings of a file. Nothing is merged: the nearest configuration file upwards counts, alone.

    In one folder, trainlint.toml goes before pyproject.toml, and a pyproject.toml without `[tool.trainlint]` does not
    count.
    """

    def __init__(
        self, overrides: Overrides | None = None, *, config: str | None = None, isolated: bool = False
    ) -> None:
        self._overrides = overrides or Overrides()
        self._isolated = isolated
        self._fixed = self._load(os.path.abspath(config), required=True) if config is not None else None
        self._configs: dict[str, Settings | None] = {}  # folder -> settings of the nearest file, not of any project yet
        self._projects: dict[str, str | None] = {}
        self._settings: dict[tuple[str | None, str], Settings] = {}

    def for_file(self, path: str) -> Settings:
        """`path` is absolute. Equal settings are the same object. Raises SettingsError."""
        return self.for_folder(os.path.dirname(path))

    def for_folder(self, folder: str) -> Settings:
        """Raises SettingsError."""
        project = self._project(folder) or _unmarked(folder)
        if self._fixed is not None:
            base: Settings | None = self._fixed
        else:
            base = None if self._isolated else self._nearest(folder)
        key = (base.config if base else None, project)
        found = self._settings.get(key)
        if found is None:
            if base is None:
                base = Settings(root=project, project=project)
            found = self._settings[key] = _overridden(base._replace(project=project), self._overrides)
        return found

    def _nearest(self, folder: str) -> Settings | None:
        if folder in self._configs:
            return self._configs[folder]
        found: Settings | None = None
        for name in ("trainlint.toml", "pyproject.toml"):
            found = self._load(os.path.join(folder, name), required=False)
            if found is not None:
                break
        else:
            parent = os.path.dirname(folder)
            found = self._nearest(parent) if parent != folder else None
        self._configs[folder] = found
        return found

    def _load(self, path: str, required: bool) -> Settings | None:
        if not required and not os.path.isfile(path):
            return None
        try:
            with open(path, "rb") as file:
                data = file.read()
        except OSError as error:
            if required:
                raise SettingsError(f"{path}: cannot be read: {error.strerror or error}") from None
            return None
        if not required and path.endswith("pyproject.toml") and b"trainlint" not in data:
            return None  # no need to parse TOML to see that
        from trainlint.configuration import read_configuration

        return read_configuration(path, data, required)

    def _project(self, folder: str) -> str | None:
        if folder in self._projects:
            return self._projects[folder]
        found: str | None = None
        if any(os.path.lexists(os.path.join(folder, marker)) for marker in _PROJECT_MARKERS):
            found = folder
        else:
            parent = os.path.dirname(folder)
            found = self._project(parent) if parent != folder else None
        self._projects[folder] = found
        return found


def _unmarked(folder: str) -> str:
    """What stands for the project where nothing marks one: the working directory if it holds the folder."""
    here = os.getcwd()
    return here if folder == here or folder.startswith(here.rstrip(os.sep) + os.sep) else folder


def _overridden(settings: Settings, overrides: Overrides) -> Settings:
    settings = settings._replace(overrides=overrides)
    if overrides.preview is not None:
        settings = settings._replace(preview=overrides.preview)
    if overrides.fail_on is not None:
        settings = settings._replace(fail_on=overrides.fail_on)
    if overrides.target_platform is not None:
        settings = settings._replace(target_platform=overrides.target_platform)
    if overrides.torch_version is not None:
        settings = settings._replace(torch_version=overrides.torch_version)
    if overrides.exclude is not None:
        settings = settings._replace(exclude=settings.exclude + overrides.exclude)
    return settings

"""The versions of torch that a project is for: what `torch-version` says, else what the project's requirements say."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

from trainlint.torch_api.versions import Target, Version, target_of

# Every minor release of torch, oldest first. Kept here so that the table of names need not be read to know them.
RELEASES: tuple[Version, ...] = (*((1, minor) for minor in range(14)), *((2, minor) for minor in range(14)))
NEWEST = RELEASES[-1]

_WRITE = 'write one such as "2.5", or a range such as ">=2.1,<2.6"'


class VersionError(ValueError):
    """A version or specifier that cannot be understood."""


def parse_target(text: str) -> Target:
    """ "2.5" -> both ends; ">=2.1,<2.6" -> the releases that it allows. Raises VersionError."""
    plain = re.fullmatch(r"\s*v?(\d+)(?:\.(\d+))?(?:\.\d+)?(?:\+\w+)?\s*", text)
    if plain:
        version = (int(plain[1]), int(plain[2] or 0))
        return Target(version, version)
    if not text.strip():
        raise VersionError(f"is empty; {_WRITE}")
    from packaging.specifiers import InvalidSpecifier

    try:
        target, possible = target_of([text], RELEASES)
    except InvalidSpecifier:
        raise VersionError(f"{text!r} is no version; {_WRITE}") from None
    if not possible:
        raise VersionError(f"{text!r} allows no release of torch; {_WRITE}")
    return target


@cache
def torch_range(project: str, target: str | None) -> Target:
    """The range that rules judge by. Reads files of `project` only if `target` is None."""
    if target is not None:
        return parse_target(target)
    return project_range(project)[0]


def project_range(project: str) -> tuple[Target, str]:
    """(range, where it comes from) by the project's requirement files; several are intersected.

    The newest version if none of them bounds torch, or if no version satisfies all.
    """
    found: list[str] = []
    names: list[str] = []
    for name, text in _requirements(project):
        from packaging.specifiers import InvalidSpecifier, SpecifierSet  # only where something names torch

        specifiers = re.sub(r"\+[\w.]+", "", text)  # 2.4.1+cpu is a build of 2.4.1
        try:
            bounds = len(SpecifierSet(specifiers)) > 0
        except InvalidSpecifier:
            continue
        if bounds:
            found.append(specifiers)
            if name not in names:
                names.append(name)
    target, possible = target_of(found, RELEASES)
    if not found:
        return target, "no requirement bounds it: the newest version"
    if not possible:
        return target, f"no version satisfies {', '.join(names)}: the newest version"
    return target, ", ".join(names)


# ------------------------------------------------------------------------------------------------ requirement files


def _requirements(project: str) -> Iterator[tuple[str, str]]:
    """(file name, specifier) of every requirement on torch. What cannot be read or parsed says nothing."""
    try:
        names = sorted(os.listdir(project))
    except OSError:
        return
    for name in names:
        if name == "pyproject.toml":
            yield from ((name, text) for text in _from_pyproject(os.path.join(project, name)))
        elif name.startswith("requirements") and name.endswith(".txt"):
            yield from ((name, text) for text in _from_lines(_read(os.path.join(project, name))))
        elif name == "setup.cfg":
            yield from ((name, text) for text in _from_setup_cfg(_read(os.path.join(project, name))))
        elif name == "setup.py":
            yield from ((name, text) for text in _from_setup_script(_read(os.path.join(project, name))))
        elif name in ("environment.yml", "environment.yaml"):
            yield from ((name, text) for text in _from_conda(_read(os.path.join(project, name))))


def _read(path: str) -> str:
    if not os.path.isfile(path):
        return ""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _from_requirement(text: str) -> str | None:
    """ "torch>=2.1 ; python_version > '3.8'" -> ">=2.1"; None for another package."""
    if not re.match(r"\s*torch\s*(?:[\[<>=!~;(#@]|$)", text):
        return None
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        requirement = Requirement(text.strip())
    except InvalidRequirement:
        return None
    return str(requirement.specifier)


def _from_lines(text: str) -> Iterator[str]:
    for line in text.splitlines():
        specifier = _from_requirement(re.sub(r"(^|\s)#.*|\s--\w.*|\\$", "", line))
        if specifier:
            yield specifier


def _from_setup_cfg(text: str) -> Iterator[str]:
    import configparser

    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(text)
    except configparser.Error:
        return
    if parser.has_option("options", "install_requires"):
        yield from _from_lines(parser.get("options", "install_requires"))
    if parser.has_section("options.extras_require"):
        for _, value in parser.items("options.extras_require"):
            yield from _from_lines(value)


def _from_setup_script(text: str) -> Iterator[str]:
    if "torch" in text:
        from trainlint.setup_script import requirements

        yield from _from_lines("\n".join(requirements(text)))


def _from_conda(text: str) -> Iterator[str]:
    """By lines, for want of a YAML parser: `- pytorch=2.1`, `- pytorch::pytorch>=2.0`, `- torch==2.1` under pip."""
    for line in text.splitlines():
        match = re.match(r"\s*-\s*['\"]?(?:[\w.-]+::)?(?:pytorch|torch)\s*([<>=!~][^'\"#\s]*)", line)
        if match:
            specifier = match[1]
            if re.match(r"=\d", specifier):  # conda's `=2.1` is any 2.1
                version = specifier[1:].partition("=")[0].removesuffix(".*")
                specifier = f"=={version}.*"
            else:  # a build string may follow: ==2.1.0=py3.11_cuda
                specifier = re.sub(r"(?<=[\w*])=[\w.*]+$", "", specifier)
            yield specifier


def _from_pyproject(path: str) -> Iterator[str]:
    text = _read(path)
    if "torch" not in text:
        return
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError):  # also a number of thousands of digits
        return
    project = _table(document, "project")
    lists = [project.get("dependencies")]
    lists.extend(_table(project, "optional-dependencies").values())
    lists.extend(_table(document, "dependency-groups").values())
    for entries in lists:
        for entry in entries if isinstance(entries, list) else ():
            specifier = _from_requirement(entry) if isinstance(entry, str) else None
            if specifier:
                yield specifier
    poetry = _table(_table(document, "tool"), "poetry")
    tables = [_table(poetry, "dependencies"), _table(poetry, "dev-dependencies")]
    groups = _table(poetry, "group")
    tables.extend(_table(_table(groups, group), "dependencies") for group in groups)
    for table in tables:
        value = table.get("torch")
        if isinstance(value, dict):
            value = value.get("version")
        if isinstance(value, str):
            specifier = _from_poetry(value)
            if specifier:
                yield specifier


def _table(parent: dict[str, Any], key: str) -> dict[str, Any]:
    value = parent.get(key)
    return value if isinstance(value, dict) else {}


def _from_poetry(text: str) -> str:
    """Poetry's own notation -> PEP 440: "^2.1" is ">=2.1,<3", "~2.1" is ">=2.1,<2.2", "2.1" is "==2.1"."""
    parts = []
    for part in text.split(","):
        part = part.strip()
        match = re.match(r"([\^~])\s*(\d+)(?:\.(\d+))?[\w.]*$", part)
        if match:
            major, minor = int(match[2]), match[3]
            upper = f"{major + 1}" if match[1] == "^" or minor is None else f"{major}.{int(minor) + 1}"
            parts.append(f">={part[1:].strip()},<{upper}")
        elif re.match(r"\d", part):
            parts.append(f"=={part}")
        elif part not in ("", "*"):
            parts.append(part)
    return ",".join(parts)

"""A configuration file -> `Settings`: what each key may hold, and errors that say where to look and what to write."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable
from typing import Any

from trainlint.findings import Level
from trainlint.settings import DEFAULT_EXCLUDE, PLATFORMS, Settings, SettingsError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LEVELS = {level.label: level for level in Level}


def read_configuration(path: str, data: bytes, required: bool) -> Settings | None:
    """None for a pyproject.toml without `[tool.trainlint]`, unless `required`. Raises SettingsError."""
    try:
        text = data.decode("utf-8-sig")
        document = tomllib.loads(text)
    except UnicodeDecodeError:
        raise SettingsError(f"{path}: not UTF-8, which TOML must be") from None
    except ValueError as error:  # a TOMLDecodeError, or a number of thousands of digits
        raise SettingsError(f"{path}: not valid TOML: {error}") from None
    except RecursionError:
        raise SettingsError(f"{path}: not valid TOML: nested too deeply") from None
    table: Any = document
    prefix = ""
    if os.path.basename(path) == "pyproject.toml":
        tool = document.get("tool")
        table = tool.get("trainlint") if isinstance(tool, dict) else None
        prefix = "tool.trainlint."
        if table is None:
            if not required:
                return None
            raise SettingsError(f"{path}: has no table [tool.trainlint]")
        if not isinstance(table, dict):
            raise SettingsError(f"{path}: tool.trainlint must be a table")
    elif "tool" in document:
        raise SettingsError(
            f"{path}: tool: in this file the settings stand without the heading [tool.trainlint], and what would stand "
            "under [tool.trainlint.levels] stands under [levels]"
        )
    return Reader(path, text, prefix).settings(table)


class Reader:
    """Checks the keys of one table. `prefix` is what they are called by in messages."""

    def __init__(self, path: str, text: str, prefix: str) -> None:
        self.path = path
        self.text = text
        self.prefix = prefix
        self.keys: dict[str, Callable[[str, Any], Any]] = {
            "select": self.codes,
            "ignore": self.codes,
            "extend-select": self.codes,
            "per-file-ignores": self.per_file_ignores,
            "exclude": self.strings,
            "extend-exclude": self.strings,
            "levels": self.levels,
            "preview": self.boolean,
            "fail-on": self.fail_on,
            "target-platform": self.platforms,
            "torch-version": self.torch_version,
            "python-version": self.python_version,
            "hot-functions": self.strings,
            "loader-names": self.strings,
        }

    def settings(self, table: dict[str, Any]) -> Settings:
        values: dict[str, Any] = {}
        for key, value in table.items():
            read = self.keys.get(key)
            if read is None:
                raise self.error(key, f"unknown setting{nearest(key.replace('_', '-'), self.keys)}")
            values[key.replace("-", "_")] = read(key, value)
        more = values.pop("extend_exclude", ())
        values["exclude"] = values.get("exclude", DEFAULT_EXCLUDE) + more
        folder = os.path.dirname(self.path)
        return Settings(root=folder, project=folder, config=self.path, **values)

    def error(self, key: str, problem: str) -> SettingsError:
        line = _line_of(self.text, key.rpartition(".")[2])
        place = f"{self.path}:{line}" if line else self.path
        return SettingsError(f"{place}: {self.prefix}{key}: {problem}")

    def strings(self, key: str, value: Any) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.error(key, f'must be a list of strings, such as ["a", "b"], not {value!r}')
        return tuple(value)

    def boolean(self, key: str, value: Any) -> bool:
        if not isinstance(value, bool):
            raise self.error(key, f"must be true or false, not {value!r}")
        return value

    def codes(self, key: str, value: Any) -> tuple[str, ...]:
        for code in self.strings(key, value):
            if not re.fullmatch(r"ALL|TL\d{0,3}", code):
                raise self.error(key, f'{code!r} is no rule code; write "TL101", a prefix such as "TL1", or "ALL"')
        return tuple(value)

    def per_file_ignores(self, key: str, value: Any) -> tuple[tuple[str, tuple[str, ...]], ...]:
        if not isinstance(value, dict):
            raise self.error(key, 'must be a table from pattern to codes, such as {"tests/*" = ["TL1"]}')
        return tuple((pattern, self.codes(f"{key}.{pattern}", codes)) for pattern, codes in value.items())

    def levels(self, key: str, value: Any) -> tuple[tuple[str, Level], ...]:
        if not isinstance(value, dict):
            raise self.error(key, 'must be a table from code to level, such as {TL303 = "advice"}')
        found = []
        for code, level in value.items():
            if not re.fullmatch(r"TL\d{3}", code):
                raise self.error(f"{key}.{code}", 'is no rule code; write a whole one, such as TL303 = "advice"')
            if not isinstance(level, str) or level not in LEVELS:
                raise self.error(f"{key}.{code}", f"{level!r} is no level{nearest(str(level), LEVELS)}")
            found.append((code, LEVELS[level]))
        return tuple(found)

    def fail_on(self, key: str, value: Any) -> Level:
        choices = [label for label in LEVELS if label != "off"]
        if not isinstance(value, str) or value not in choices:
            raise self.error(key, f"{value!r} is no level{nearest(str(value), choices)}")
        return LEVELS[value]

    def platforms(self, key: str, value: Any) -> tuple[str, ...]:
        platforms = self.strings(key, value)
        for platform in platforms:
            if platform not in PLATFORMS:
                raise self.error(key, f"{platform!r} is no platform{nearest(platform, PLATFORMS)}")
        if not platforms:
            raise self.error(key, f"must name at least one of {', '.join(PLATFORMS)}")
        return platforms

    def torch_version(self, key: str, value: Any) -> str:
        from trainlint.versions import VersionError, parse_target

        if not isinstance(value, str):
            raise self.error(key, f'must be a string such as "2.5" or ">=2.1,<2.6", not {value!r}')
        try:
            parse_target(value)
        except VersionError as error:
            raise self.error(key, str(error)) from None
        return value

    def python_version(self, key: str, value: Any) -> str:
        if not isinstance(value, str) or not re.fullmatch(r"3\.\d{1,2}", value):
            raise self.error(key, f'must be a string such as "3.10", not {value!r}')
        return value


def nearest(value: str, choices: Iterable[str]) -> str:
    """The end of an error message: what was perhaps meant, and what is possible."""
    import difflib

    choices = list(choices)
    close = difflib.get_close_matches(value.lower(), choices, n=1, cutoff=0.5)
    known = f"known: {', '.join(choices)}"
    return f"; did you mean {close[0]!r}? ({known})" if close else f" ({known})"


def _line_of(text: str, key: str) -> int | None:
    """The line on which a key stands, as far as that can be seen without a parser that keeps positions."""
    match = re.search(rf"^[ \t]*(?:[\w.-]+\.)?[\"']?{re.escape(key)}[\"']?[ \t]*=", text, re.MULTILINE)
    if match is None:
        match = re.search(rf"[{{,][ \t]*[\"']?{re.escape(key)}[\"']?[ \t]*=", text)
    if match is None:
        match = re.search(rf"^\[[^\]\n]*\b{re.escape(key)}\]", text, re.MULTILINE)
    return text.count("\n", 0, match.start()) + 1 if match else None

"""Types of options that more than one command takes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    _ParamType = click.ParamType[Any]
else:  # not generic before click 8.4
    _ParamType = click.ParamType


class Codes(_ParamType):
    """ "TL101,TL3,ALL" -> ("TL101", "TL3", "ALL")"""

    name = "codes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        codes = tuple(part.strip().upper() for part in str(value).split(",") if part.strip())
        if not codes:
            self.fail('is empty; write rule codes such as "TL101", prefixes such as "TL1", or "ALL"', param, ctx)
        return codes


class Names(_ParamType):
    """A list with commas, of things that are all in `choices`, if there are any."""

    name = "names"

    def __init__(self, choices: tuple[str, ...] = ()) -> None:
        self._choices = choices

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        names = tuple(part.strip() for part in str(value).split(",") if part.strip())
        for name in names:
            if self._choices and name not in self._choices:
                from trainlint.configuration import nearest

                self.fail(f"{name!r} is unknown{nearest(name, self._choices)}", param, ctx)
        return names


class TorchVersion(_ParamType):
    name = "version"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from trainlint.versions import VersionError, parse_target

        try:
            parse_target(str(value))
        except VersionError as error:
            self.fail(str(error), param, ctx)
        return str(value)


class Line(_ParamType):
    """ "train.py:12" -> ("train.py", None, 12); in a notebook "train.ipynb:3:12": row 12 of code cell 3."""

    name = "file:line"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, tuple):
            return value
        match = re.fullmatch(r"(.+?\.ipynb):(?:cell )?(\d+):(\d+)", value) or re.fullmatch(r"(.+?)():(\d+)", value)
        if match is None or int(match[3]) < 1:
            self.fail(f"{value!r} names no line; write FILE:LINE, in a notebook FILE:CELL:LINE", param, ctx)
        return match[1], int(match[2]) if match[2] else None, int(match[3])


class Jobs(_ParamType):
    """ "4" -> 4; "auto" -> 0"""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value).strip().lower()
        if text == "auto":
            return 0
        if not re.fullmatch(r"[0-9]{1,3}", text):
            self.fail(f'{value!r} is no number of processes; write one such as 4, or "auto"', param, ctx)
        return int(text)

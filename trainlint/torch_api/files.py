"""The data files that lie beside this module."""

from __future__ import annotations

import os


def text_of(name: str) -> str:
    """The text of a data file. `os.path` and `open`: pathlib costs more to import than the file to read."""
    with open(os.path.join(os.path.dirname(__file__), name), encoding="utf-8") as file:
        return file.read()

"""How the place of a finding is written."""

from __future__ import annotations

import os

from trainlint.source import Source


def shown_path(path: str) -> str:
    """Relative to the working directory if it lies in there, as people wrote it; else absolute."""
    here = os.getcwd()
    if path != "-" and path.startswith(here.rstrip(os.sep) + os.sep):
        return path[len(here.rstrip(os.sep)) + 1 :]
    return path


def shown_place(path: str, row: int, column: int, source: Source | None) -> str:
    """`train.py:12:5`; in a notebook `train.ipynb:cell 3:2:5`."""
    cell, row = source.cell_place(row) if source is not None else (None, row)
    within = f"cell {cell}:" if cell is not None else ""
    return f"{shown_path(path)}:{within}{row}:{column}"

"""A Jupyter notebook -> `Source`: its code cells joined in order, and where each of them starts."""

from __future__ import annotations

import json
from typing import Any

from trainlint.magics import mask
from trainlint.source import Cell, NotChecked, Source


def read_notebook(path: str, data: bytes) -> Source:
    """Raises NotChecked for what is no notebook. A notebook in another language is an empty source."""
    try:
        document = json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        row = data.count(b"\n", 0, error.start) + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        raise NotChecked("is not a notebook: not UTF-8", row, column) from None
    except json.JSONDecodeError as error:
        raise NotChecked(f"is not a notebook: not valid JSON ({error.msg})", error.lineno, error.colno) from None
    except RecursionError:
        raise NotChecked("is not a notebook: nested too deeply") from None
    except ValueError as error:  # a number of thousands of digits
        raise NotChecked(f"is not a notebook: {error}") from None
    if not isinstance(document, dict):
        raise NotChecked("is not a notebook: not a JSON object")
    if _language(document) not in ("", "python", "ipython"):
        return Source(path, "")
    parts: list[str] = []
    cells: list[Cell] = []
    masked: dict[int, str] = {}
    row = 1
    for index, cell in enumerate(_cells(document)):
        if not isinstance(cell, dict) or cell.get("cell_type") != "code":
            continue
        written = _text(cell).replace("\r\n", "\n").replace("\r", "\n")
        text, hidden = mask(written)
        if not text.endswith("\n"):
            text += "\n"
        if "\0" in text:
            raise NotChecked("has a NUL byte, which Python source cannot hold", row)
        cells.append(Cell(index, row))
        masked.update((row + at, line) for at, line in hidden.items())
        parts.append(text)
        row += text.count("\n")
    return Source(path, "".join(parts), cells=tuple(cells), masked=masked)


def _cells(document: dict[str, Any]) -> list[Any]:
    cells = document.get("cells")
    if cells is None:  # nbformat 3 had worksheets
        sheets = document.get("worksheets")
        first = sheets[0] if isinstance(sheets, list) and sheets else None
        cells = first.get("cells") if isinstance(first, dict) else None
    if not isinstance(cells, list):
        raise NotChecked("is not a notebook: it has no list of cells")
    return cells


def _text(cell: dict[str, Any]) -> str:
    source = cell.get("source", cell.get("input", ""))
    if isinstance(source, str):
        return source
    if isinstance(source, list) and all(isinstance(line, str) for line in source):
        return "".join(source)
    raise NotChecked("is not a notebook: a code cell holds something other than text")


def _language(document: dict[str, Any]) -> str:
    metadata = document.get("metadata")
    if not isinstance(metadata, dict):
        return ""
    for section, key in (("language_info", "name"), ("kernelspec", "language")):
        value = metadata.get(section)
        if isinstance(value, dict) and isinstance(value.get(key), str):
            return str(value[key]).lower()
    return ""

"""Which line of the user's is responsible for what happens right now."""

from __future__ import annotations

import os
import sys
from typing import Any

import _trainlint_probe as probe

Site = tuple  # (file, line, function)
UNKNOWN: Site = ("?", 0, "?")
_OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep
_LIBRARY = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_KIND: dict[
    str, int
] = {}  # file name -> how much it is the user's own: 2 project, 1 other code, 0 torch, the probe, the library


def _kind(file_name: str) -> int:
    torch = probe.STATE.torch
    torch_folder = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep if torch is not None else _OWN
    if file_name.startswith((torch_folder, _OWN, "<frozen")):
        return 0
    installed = f"{os.sep}site-packages{os.sep}" in file_name or f"{os.sep}dist-packages{os.sep}" in file_name
    roots = tuple(probe.CONFIG.get("project", ()))
    if not installed and file_name.startswith(_LIBRARY):
        return 0
    if not installed and roots and os.path.abspath(file_name).startswith(roots):
        return 2
    return 1


def user_site(depth: int = 1) -> Site:
    """The innermost frame of the user's project; failing that, the innermost one outside torch."""
    frame: Any = sys._getframe(depth)
    fallback: Site | None = None
    while frame is not None:
        code = frame.f_code
        name = code.co_filename
        kind = _KIND.get(name)
        if kind is None:
            kind = _KIND[name] = _kind(name)
        if kind == 2:
            return (name, frame.f_lineno, code.co_name)
        if kind == 1 and fallback is None:
            fallback = (name, frame.f_lineno, code.co_name)
        frame = frame.f_back
    return fallback or UNKNOWN

"""Run in a process of its own: import every public module of torch and print what it has, as JSON.

What is asked on standard input, one full name a line, is answered with whether it can be reached by attributes.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import pkgutil
import sys
import types
import warnings
from typing import Any


def kind(value: object) -> str:
    if isinstance(value, types.ModuleType):
        return "module"
    return "class" if isinstance(value, type) else "other"


def public_modules(root: str) -> list[str]:
    found = [root]
    stack = [(root, importlib.import_module(root).__path__)]
    while stack:
        name, path = stack.pop()
        for info in pkgutil.iter_modules(path):
            full = f"{name}.{info.name}"
            if info.name.startswith("_"):
                continue
            try:
                with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                    module = importlib.import_module(full)
            except BaseException:  # it needs another package, or is a script that ends itself
                continue
            found.append(full)
            if info.ispkg:
                stack.append((full, getattr(module, "__path__", [])))
    return found


def is_reachable(full_name: str) -> bool:
    module, _, leaf = full_name.rpartition(".")
    while module and module not in sys.modules:
        module, _, above = module.rpartition(".")
        leaf = f"{above}.{leaf}"
    value: Any = sys.modules[module]
    for part in leaf.split("."):
        try:
            value = getattr(value, part)
        except Exception:
            return False
    return True


def main() -> None:
    warnings.simplefilter("ignore")
    names: dict[str, dict[str, str]] = {}
    members: dict[str, list[str]] = {}
    for full in [*public_modules("torch"), *public_modules("functorch")]:
        names[full] = {}
        for name in dir(sys.modules[full]):
            if name.startswith("_"):
                continue
            try:
                value = getattr(sys.modules[full], name)
            except Exception:
                continue
            names[full][name] = kind(value)
            if isinstance(value, type) and (value.__module__ or "").partition(".")[0] in ("torch", "functorch"):
                members[f"{full}.{name}"] = [member for member in dir(value) if not member.startswith("_")]
    missing = [line for line in sys.stdin.read().split() if not is_reachable(line)]
    print(json.dumps({"names": names, "members": members, "missing": missing}))


if __name__ == "__main__":
    main()

"""The requirements that a `setup.py` writes out as literals. It is parsed and never run."""

from __future__ import annotations

import ast
from collections.abc import Iterator

_LISTS = frozenset({"install_requires", "extras_require"})


def requirements(text: str) -> Iterator[str]:
    """The entries of `install_requires` and `extras_require` that can be read; what is computed says nothing."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    nodes = list(ast.walk(tree))
    names = _names(nodes)
    for node in nodes:
        if isinstance(node, ast.Call) and _last_name(node.func) == "setup":
            for keyword in node.keywords:
                if keyword.arg in _LISTS:
                    yield from _entries(keyword.value, names)
                elif keyword.arg is None and isinstance(
                    keyword.value, ast.Dict
                ):  # setup(**{"install_requires": [...]})
                    for key, value in zip(keyword.value.keys, keyword.value.values, strict=True):
                        if isinstance(key, ast.Constant) and key.value in _LISTS:
                            yield from _entries(value, names)


def _names(nodes: list[ast.AST]) -> dict[str, ast.expr]:
    """What each name is bound to that is bound once in the file and never deleted from."""
    found: dict[str, ast.expr] = {}
    gone: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name, value = node.targets[0].id, node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            name, value = node.target.id, node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in ("remove", "pop", "clear") and isinstance(node.func.value, ast.Name):
                gone.add(node.func.value.id)
            continue
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            gone.add(node.name)
            continue
        elif isinstance(node, (ast.arg, ast.alias)):
            gone.add(node.arg if isinstance(node, ast.arg) else node.asname or node.name)
            continue
        elif isinstance(node, (ast.For, ast.comprehension)) and isinstance(node.target, ast.Name):
            gone.add(node.target.id)
            continue
        else:
            continue
        if name in found:
            gone.add(name)
        found[name] = value
    return {name: value for name, value in found.items() if name not in gone}


def _entries(expr: ast.expr, names: dict[str, ast.expr]) -> Iterator[str]:
    stack = [(expr, 0)]
    while stack:
        current, depth = stack.pop()
        if isinstance(current, ast.Constant) and isinstance(current.value, str):
            yield from current.value.splitlines()
        elif isinstance(current, (ast.List, ast.Tuple, ast.Set)):
            stack.extend((element, depth) for element in current.elts)
        elif isinstance(current, ast.Dict):
            stack.extend((value, depth) for value in current.values)
        elif isinstance(current, ast.Starred):
            stack.append((current.value, depth))
        elif isinstance(current, ast.BinOp) and isinstance(current.op, ast.Add):
            # of "torch" + "==2.1" neither part is a requirement
            if not any(isinstance(e, (ast.Constant, ast.JoinedStr)) for e in (current.left, current.right)):
                stack.extend(((current.left, depth), (current.right, depth)))
        elif isinstance(current, ast.Name) and current.id in names and depth < 5:
            stack.append((names[current.id], depth + 1))


def _last_name(expr: ast.expr) -> str | None:
    return expr.attr if isinstance(expr, ast.Attribute) else expr.id if isinstance(expr, ast.Name) else None

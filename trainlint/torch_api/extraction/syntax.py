"""Questions about single pieces of syntax: what a class binds, what a statement does to its module's names."""

from __future__ import annotations

import ast
from collections.abc import Iterable


def class_members(node: ast.ClassDef) -> dict[str, ast.AST]:
    """The names that a class body binds, and those that its methods assign on `self`."""
    members: dict[str, ast.AST] = {}

    def visit(body: Iterable[ast.stmt]) -> None:
        for statement in body:
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
                members.setdefault(statement.name, statement)
                if statement.name == "__init__" or not statement.decorator_list:
                    on_self(statement)
            elif isinstance(statement, ast.ClassDef):
                members[statement.name] = statement
            elif isinstance(statement, ast.Assign):
                for target in statement.targets:
                    for name in ast.walk(target):
                        if isinstance(name, ast.Name):
                            members[name.id] = statement
            elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                members[statement.target.id] = statement
            elif isinstance(statement, (ast.If, ast.With, ast.Try, ast.For)):
                for part in ("body", "orelse", "finalbody"):
                    visit(getattr(statement, part, []))
                for handler in getattr(statement, "handlers", []):
                    visit(handler.body)

    def on_self(function: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for inner in ast.walk(function):
            if (
                isinstance(inner, ast.Attribute)
                and isinstance(inner.ctx, ast.Store)
                and isinstance(inner.value, ast.Name)
                and inner.value.id in ("self", "cls")
            ):
                members.setdefault(inner.attr, inner)

    visit(node.body)
    return members


def is_overload(decorator: ast.expr) -> bool:
    """`@overload`, under whatever module name."""
    return (decorator.id if isinstance(decorator, ast.Name) else getattr(decorator, "attr", "")) == "overload"


def is_globals(value: ast.expr) -> bool:
    """`globals()`"""
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "globals"


def writes_own_names(node: ast.AST) -> bool:
    """`globals()[name] = ...` or `setattr(sys.modules[__name__], name, ...)` with a name that is not a literal."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and is_globals(node.value):
        return not isinstance(node.slice, ast.Constant)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "setattr" and node.args:
        first = node.args[0]
        return isinstance(first, ast.Subscript) and is_own_entry(first)
    return False


def is_own_entry(target: ast.Subscript) -> bool:
    """`sys.modules[__name__]`"""
    return (
        isinstance(target.value, ast.Attribute)
        and target.value.attr == "modules"
        and isinstance(target.slice, ast.Name)
        and target.slice.id == "__name__"
    )


def says_type_checking(test: ast.expr) -> bool:
    """`TYPE_CHECKING` or `typing.TYPE_CHECKING`"""
    return (test.id if isinstance(test, ast.Name) else getattr(test, "attr", "")) == "TYPE_CHECKING"


def signature_of_doc(name: str, call: ast.Call) -> ast.AST | None:
    """The signature that the first line of a built-in function's documentation gives, as a function without body."""
    if len(call.args) < 2:
        return None
    text = call.args[1]
    while isinstance(text, (ast.Call, ast.BinOp)):  # `r"""...""".format(...)` and `r"""...""" + notes`
        text = text.left if isinstance(text, ast.BinOp) else getattr(text.func, "value", ast.Constant(None))
    if not isinstance(text, ast.Constant) or not isinstance(text.value, str):
        return None
    line = text.value.strip().partition("\n")[0]
    line = line.partition("->")[0].strip().replace("\\", "")
    if not line.endswith(")"):
        return None
    try:
        parsed = ast.parse(f"def {line.rpartition('.')[2] if '(' not in line.rpartition('.')[2] else line}: ...")
    except SyntaxError:
        return None
    return parsed.body[0]

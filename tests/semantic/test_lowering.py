"""What the records hold: the parts of their contract that a comparison of the two front ends does not show."""

from __future__ import annotations

from typing import Any

import pytest
from front_ends import describe, snippets

from trainlint.semantic import facts, from_ast, from_libcst
from trainlint.semantic.facts import Statement
from trainlint.semantic.same import same


def lower(text: str) -> tuple[Any, ...]:
    return from_ast.lower(from_ast.parse(text, "test.py"))


def only(text: str) -> Any:
    (statement,) = lower(text)
    return statement


def value(text: str) -> Any:
    return only(text).value


@pytest.mark.parametrize(
    ("text", "names", "modules"),
    [
        ("import torch.nn", (("torch", "torch"),), ("torch.nn",)),
        ("import torch.nn as nn", (("nn", "torch.nn"),), ("torch.nn",)),
        ("import a, b.c", (("a", "a"), ("b", "b")), ("a", "b.c")),
        ("from . import a", (("a", ".a"),), (".",)),
        ("from ..b import c as d", (("d", "..b.c"),), ("..b",)),
        ("from a.b import c, d", (("c", "a.b.c"), ("d", "a.b.d")), ("a.b",)),
        ("from x import *", (("*", "x"),), ("x",)),
        ("from .x import *", (("*", ".x"),), (".x",)),
    ],
)
def test_imports(text: str, names: tuple[tuple[str, str], ...], modules: tuple[str, ...]) -> None:
    statement = only(text)
    assert isinstance(statement, facts.Import)
    assert (statement.names, statement.modules) == (names, modules)


def test_assignments() -> None:
    chained, augmented, annotated, bare = lower("a = b = 1\na **= 2\na: int = 3\na: int")
    assert [target.id for target in chained.targets] == ["a", "b"]
    assert (augmented.op, augmented.value.value) == ("**", 2)
    assert (annotated.annotation.id, annotated.value.value) == ("int", 3)
    assert (bare.annotation.id, bare.value, bare.op) == ("int", None, None)


def test_operators() -> None:
    assert [value(text).op for text in ("-a", "+a", "~a", "not a")] == ["-", "+", "~", "not"]
    assert [value(f"a {op} b").op for op in ("@", "//", "<<", "**", "and", "or")] == [
        "@",
        "//",
        "<<",
        "**",
        "and",
        "or",
    ]
    assert len(value("a and b and c and d").operands) == 4
    assert len(value("(a and b) and c").operands) == 2
    comparison = value("a < b is not c not in d")
    assert comparison.ops == ("<", "is not", "not in")
    assert [operand.id for operand in comparison.operands] == ["a", "b", "c", "d"]


def test_call_arguments() -> None:
    call = value("f(a, *b, c=1, *d, e=2, **g)")
    assert [type(arg).__name__ for arg in call.args] == ["Name", "Starred", "Starred"]
    assert [keyword.name for keyword in call.keywords] == ["c", "e", None]


def test_class_arguments() -> None:
    cls = only("class A(B, *C, metaclass=M, **k): pass").what
    assert [type(base).__name__ for base in cls.bases] == ["Name", "Starred"]
    assert [keyword.name for keyword in cls.keywords] == ["metaclass", None]


def test_parameters() -> None:
    function = only("async def f(a, b: int = 1, /, c=2, *d, e, g=3, **h): pass").what
    assert function.is_async
    assert [(parameter.name, parameter.kind, parameter.default is not None) for parameter in function.parameters] == [
        ("a", "positional", False),
        ("b", "positional", True),
        ("c", "any", True),
        ("d", "*", False),
        ("e", "keyword", False),
        ("g", "keyword", True),
        ("h", "**", False),
    ]


def test_lambda_is_a_function_that_returns() -> None:
    function = value("lambda x=1: x").function
    assert function.name == "<lambda>"
    (statement,) = function.body
    assert isinstance(statement, facts.Return)
    assert describe(statement.value) == ("Name", {"id": "x"})


def test_format_strings_hold_their_expressions() -> None:
    names = [name.id for name in value("'a' f'{b!r:>{c}.{d}} {e=}' f'{g}'").values]
    assert names == ["b", "c", "d", "e", "g"]
    assert value("'a' \"b\" '''c'''").value == "abc"


def test_mapping_and_comprehension() -> None:
    mapping = value("{1: a, **b}")
    assert [key and key.value for key in mapping.keys] == [1, None]
    comprehension = value("{k: v for k, v in d if v for x in v}")
    assert (comprehension.kind, comprehension.key.id, comprehension.element.id) == ("dict", "k", "v")
    assert [len(generator.conditions) for generator in comprehension.generators] == [1, 0]


def test_elif_is_an_if_in_the_rest() -> None:
    statement = only("if a: b\nelif c: d\nelse: e")
    (inner,) = statement.orelse
    assert isinstance(inner, facts.If)
    assert [type(last).__name__ for last in inner.orelse] == ["Evaluate"]


def test_match_captures() -> None:
    text = """
match command:
    case [a, *b, {"k": c, **d}, Point(x=e) as f] | _ if g: pass
    case a.b | None | 1: pass
"""
    first, second = only(text).cases
    assert first.captures == ("a", "b", "c", "d", "e", "f")
    assert first.guard.id == "g"
    assert second.captures == ()


def test_semicolons_and_small_statements() -> None:
    text = "a = 1; pass; del a, b; global c\nif a: break; continue"
    module = from_libcst.parse(text)
    first, second = module.body
    assert [type(record).__name__ for record in from_libcst.lower_statement(first)] == [
        "Assign",
        "Jump",
        "Delete",
        "Scope",
    ]
    (condition,) = from_libcst.lower_statement(second)
    assert condition.node is second
    tree = from_ast.parse(text, "test.py")
    assert same(from_ast.lower_statement(tree.body[-1]), condition)


@pytest.mark.parametrize("text", snippets("newer_syntax.txt"))
def test_libcst_reads_the_syntax_of_every_python(text: str) -> None:
    assert from_libcst.lower(from_libcst.parse(text))


def test_newer_syntax() -> None:
    def lowered(text: str) -> tuple[Statement, ...]:
        return from_libcst.lower(from_libcst.parse(text))

    assert describe(lowered("type X[T] = list[T]")) == (("Jump", {"kind": "pass"}),)
    assert same(lowered("def f[T: int](x: T): pass"), lowered("def f(x: T): pass"))
    assert same(lowered("class A[T](B): pass"), lowered("class A(B): pass"))
    assert same(lowered("t'{a:{b}}'"), lowered("f'{a:{b}}'"))
    assert same(lowered("try: a\nexcept* B: c"), lowered("try: a\nexcept B: c"))
    assert same(lowered("try: a\nexcept B, C: d"), lowered("try: a\nexcept (B, C): d"))
    assert same(lowered("lazy import a"), lowered("import a"))


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("1", "True"),
        ("1", "1.0"),
        ("'a'", "b'a'"),
        ("a", "'a'"),
        ("[a]", "(a,)"),
        ("f(a)", "f(a, b)"),
        ("f(a=b)", "f(c=b)"),
        ("a + b", "a - b"),
        ("a < b", "a <= b"),
        ("x[a:]", "x[:a]"),
        ("a = 1", "a += 1"),
        ("def f(a): pass", "def f(*a): pass"),
        ("def f(): pass", "async def f(): pass"),
        ("yield_ = (yield a)", "yield_ = (yield from a)"),
        ("if a: b", "while a: b"),
        ("if a: b\nelse: c", "if a: b"),
        ("lambda: a", "lambda: b"),
        ("global_ = a; del a", "global_ = a"),
    ],
)
def test_different_code_is_not_the_same(left: str, right: str) -> None:
    assert same(lower(left), lower(left))
    assert not same(lower(left), lower(right))


def test_same_ignores_how_it_is_written() -> None:
    left = "x = f(a,\n   'b' 'c')  # comment\n"
    right = 'x=(f((a), "bc",))'
    assert same(lower(left), lower(right))

"""Lowers trees of the standard library's parser to facts. Syntax only: what stands where is the work of `contexts`.

This runs on every file of a check, so expressions and statements are found by their class in a table, and each takes
one call. A chain of `elif` or of binary operators, which code generators write by the hundred, takes a loop.
"""

from __future__ import annotations

import ast
import sys
import warnings
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any, Literal

from trainlint.semantic import facts
from trainlint.semantic.deep_stack import RecursionRoom
from trainlint.semantic.facts import Expr, Statement
from trainlint.semantic.syntax import BYTE_ORDER_MARK, MAX_DEPTH, ParseError, TooDeep, refuse_null_bytes, split_rows


def parse(text: str, path: str) -> ast.Module:
    """Raises ParseError. Its trees are nested at most `MAX_DEPTH` levels deep, `elif` chains not counted."""
    refuse_null_bytes(text)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the SyntaxWarnings of the checked code are not ours to print
            tree = ast.parse(text.removeprefix(BYTE_ORDER_MARK), path)
    except SyntaxError as error:
        row, column, reason = error.lineno or 1, error.offset or 1, error.msg
        if reason.startswith(("too many nested parentheses", "too many levels of indentation")):
            raise TooDeep(max(row, 1), max(column, 1), reason) from None
        raise ParseError(reason, max(row, 1), max(column, 1)) from None
    except (RecursionError, MemoryError):  # MemoryError: the parser's own stack is full
        raise TooDeep(1, 1) from None
    except ValueError as error:  # lone surrogates
        raise ParseError(str(error), 1, 1) from None
    _refuse_deep(tree, text)
    return tree


def lower(tree: ast.Module) -> tuple[Statement, ...]:
    """The statements of a tree that `parse` returned."""
    with RecursionRoom():
        return _block(tree.body)


def lower_statement(node: ast.stmt) -> Statement:
    with RecursionRoom():
        return _STATEMENTS[node.__class__](node)


# ---------------------------------------------------------------------------------------------------------- depth


def _refuse_deep(tree: ast.Module, text: str) -> None:
    """A level takes at least one character: only the few statements longer than the bound need a closer look."""
    ends = list(accumulate(map(len, split_rows(text)), initial=0))
    blocks: list[list[Any]] = [tree.body]  # of statements, handlers or cases
    while blocks:
        for node in blocks.pop():
            inner = _BLOCKS.get(node.__class__)
            if inner is None:
                first, last = node.lineno, node.end_lineno
            else:
                first, last = _first_row(node), _first_row(getattr(node, inner[0])[0])
                blocks.extend([getattr(node, name) for name in inner])
            if ends[last] - ends[first - 1] > MAX_DEPTH and _is_deep(node):
                raise TooDeep(first, 1)


def _first_row(node: Any) -> int:
    if isinstance(node, ast.match_case):
        return node.pattern.lineno
    if isinstance(node, _DEFINITIONS) and node.decorator_list:
        return node.decorator_list[0].lineno
    return int(node.lineno)


def _is_deep(node: ast.AST) -> bool:
    """Whether the expressions of a statement nest too deeply; those of the statements in it are counted with these."""
    level = [node]
    for _ in range(MAX_DEPTH):
        level = [child for parent in level for child in ast.iter_child_nodes(parent) if not isinstance(child, _INNER)]
        # Flat here, a nest for libcst.
        if any(child.__class__ is ast.BoolOp and len(child.values) > MAX_DEPTH for child in level):
            return True
        if not level:
            return False
    return True


# ----------------------------------------------------------------------------------------------------- expressions


def _expression(node: ast.expr | None) -> Expr | None:
    return None if node is None else _EXPRESSIONS[node.__class__](node)


def _expressions(nodes: list[ast.expr]) -> tuple[Expr, ...]:
    return tuple([_EXPRESSIONS[node.__class__](node) for node in nodes])


def _name(node: ast.Name) -> facts.Name:
    return facts.Name(node, node.id)


def _constant(node: ast.Constant) -> facts.Constant:
    return facts.Constant(node, node.value)


def _attribute(node: ast.Attribute) -> facts.Attribute:
    value = node.value
    return facts.Attribute(node, _EXPRESSIONS[value.__class__](value), node.attr)


def _call(node: ast.Call) -> facts.Call:
    callee = node.func
    args = node.args
    keywords = node.keywords
    return facts.Call(
        node,
        _EXPRESSIONS[callee.__class__](callee),
        tuple([_EXPRESSIONS[arg.__class__](arg) for arg in args]) if args else (),
        _keywords(keywords) if keywords else (),
    )


def _keywords(nodes: list[ast.keyword]) -> tuple[facts.Keyword, ...]:
    return tuple([facts.Keyword(node, node.arg, _EXPRESSIONS[node.value.__class__](node.value)) for node in nodes])


def _subscript(node: ast.Subscript) -> facts.Subscript:
    value, index = node.value, node.slice
    return facts.Subscript(node, _EXPRESSIONS[value.__class__](value), _EXPRESSIONS[index.__class__](index))


def _slice(node: ast.Slice) -> facts.Slice:
    return facts.Slice(node, _expression(node.lower), _expression(node.upper), _expression(node.step))


def _unary(node: ast.UnaryOp) -> facts.Operator:
    operand = node.operand
    return facts.Operator(node, _UNARY[node.op.__class__], (_EXPRESSIONS[operand.__class__](operand),))


def _binary(node: ast.BinOp) -> Expr:
    chain = [node]  # `a + b + c` nests to the left
    left = node.left
    while left.__class__ is ast.BinOp:
        chain.append(left)
        left = left.left
    record = _EXPRESSIONS[left.__class__](left)
    for link in reversed(chain):
        right = link.right
        record = facts.Operator(link, _BINARY[link.op.__class__], (record, _EXPRESSIONS[right.__class__](right)))
    return record


def _boolean(node: ast.BoolOp) -> facts.Operator:
    return facts.Operator(node, "and" if node.op.__class__ is ast.And else "or", _expressions(node.values))


def _compare(node: ast.Compare) -> facts.Compare:
    ops = tuple([_COMPARISON[op.__class__] for op in node.ops])
    return facts.Compare(node, ops, _expressions([node.left, *node.comparators]))


def _conditional(node: ast.IfExp) -> facts.Conditional:
    return facts.Conditional(node, *_expressions([node.test, node.body, node.orelse]))


def _tuple(node: ast.Tuple) -> facts.Sequence:
    return facts.Sequence(node, "tuple", _expressions(node.elts))


def _list(node: ast.List) -> facts.Sequence:
    return facts.Sequence(node, "list", _expressions(node.elts))


def _set(node: ast.Set) -> facts.Sequence:
    return facts.Sequence(node, "set", _expressions(node.elts))


def _dict(node: ast.Dict) -> facts.Mapping:
    keys = tuple([None if key is None else _EXPRESSIONS[key.__class__](key) for key in node.keys])
    return facts.Mapping(node, keys, _expressions(node.values))


def _list_comprehension(node: ast.ListComp) -> facts.Comprehension:
    return facts.Comprehension(node, "list", None, _element(node), _generators(node.generators))


def _set_comprehension(node: ast.SetComp) -> facts.Comprehension:
    return facts.Comprehension(node, "set", None, _element(node), _generators(node.generators))


def _generator_expression(node: ast.GeneratorExp) -> facts.Comprehension:
    return facts.Comprehension(node, "generator", None, _element(node), _generators(node.generators))


def _dict_comprehension(node: ast.DictComp) -> facts.Comprehension:
    key, value = _expressions([node.key, node.value])
    return facts.Comprehension(node, "dict", key, value, _generators(node.generators))


def _element(node: ast.ListComp | ast.SetComp | ast.GeneratorExp) -> Expr:
    return _EXPRESSIONS[node.elt.__class__](node.elt)


def _generators(nodes: list[ast.comprehension]) -> tuple[facts.Generator, ...]:
    return tuple(
        [
            facts.Generator(
                node,
                _EXPRESSIONS[node.target.__class__](node.target),
                _EXPRESSIONS[node.iter.__class__](node.iter),
                _expressions(node.ifs),
            )
            for node in nodes
        ]
    )


def _format_string(node: Any) -> facts.FString:
    """Of a JoinedStr, or of a TemplateStr (Python 3.14)."""
    lowered = facts.FString(node, tuple(_interpolated(node)))
    lowered.text = "\0".join(v.value for v in node.values if isinstance(v, ast.Constant) and isinstance(v.value, str))
    return lowered


def _interpolated(node: Any) -> Iterator[Expr]:
    for part in node.values:
        if part.__class__ is not ast.Constant:
            yield _EXPRESSIONS[part.value.__class__](part.value)
            if part.format_spec is not None:
                yield from _interpolated(part.format_spec)


def _lambda(node: ast.Lambda) -> facts.Lambda:
    body = facts.Return(node.body, _EXPRESSIONS[node.body.__class__](node.body))
    return facts.Lambda(node, facts.Function(node, "<lambda>", _parameters(node.args), (), (body,)))


def _starred(node: ast.Starred) -> facts.Starred:
    return facts.Starred(node, _EXPRESSIONS[node.value.__class__](node.value))


def _await(node: ast.Await) -> facts.Await:
    return facts.Await(node, _EXPRESSIONS[node.value.__class__](node.value))


def _yield(node: ast.Yield) -> facts.Yield:
    return facts.Yield(node, _expression(node.value), False)


def _yield_from(node: ast.YieldFrom) -> facts.Yield:
    return facts.Yield(node, _EXPRESSIONS[node.value.__class__](node.value), True)


def _walrus(node: ast.NamedExpr) -> facts.Walrus:
    return facts.Walrus(node, _name(node.target), _EXPRESSIONS[node.value.__class__](node.value))


# ------------------------------------------------------------------------------------------------------ statements


def _block(nodes: list[ast.stmt]) -> tuple[Statement, ...]:
    return tuple([_STATEMENTS[node.__class__](node) for node in nodes])


def _evaluate(node: ast.Expr) -> facts.Evaluate:
    value = node.value
    return facts.Evaluate(node, _EXPRESSIONS[value.__class__](value))


def _assign(node: ast.Assign) -> facts.Assign:
    value = node.value
    return facts.Assign(node, _expressions(node.targets), _EXPRESSIONS[value.__class__](value))


def _annotated_assign(node: ast.AnnAssign) -> facts.Assign:
    return facts.Assign(
        node, _expressions([node.target]), _expression(node.value), annotation=_expression(node.annotation)
    )


def _augmented_assign(node: ast.AugAssign) -> facts.Assign:
    return facts.Assign(node, _expressions([node.target]), _expression(node.value), op=_BINARY[node.op.__class__])


def _return(node: ast.Return) -> facts.Return:
    return facts.Return(node, _expression(node.value))


def _raise(node: ast.Raise) -> facts.Raise:
    return facts.Raise(node, _expression(node.exc), _expression(node.cause))


def _assert(node: ast.Assert) -> facts.Assert:
    return facts.Assert(node, _EXPRESSIONS[node.test.__class__](node.test), _expression(node.msg))


def _delete(node: ast.Delete) -> facts.Delete:
    return facts.Delete(node, _expressions(node.targets))


def _break(node: ast.Break) -> facts.Jump:
    return facts.Jump(node, "break")


def _continue(node: ast.Continue) -> facts.Jump:
    return facts.Jump(node, "continue")


def _pass(node: ast.stmt) -> facts.Jump:
    return facts.Jump(node, "pass")


def _global(node: ast.Global) -> facts.Scope:
    return facts.Scope(node, "global", tuple(node.names))


def _nonlocal(node: ast.Nonlocal) -> facts.Scope:
    return facts.Scope(node, "nonlocal", tuple(node.names))


def _import(node: ast.Import) -> facts.Import:
    names = []
    for alias in node.names:
        if alias.asname is None:
            top = alias.name.partition(".")[0]
            names.append((top, top))
        else:
            names.append((alias.asname, alias.name))
    return facts.Import(node, tuple(names), tuple([alias.name for alias in node.names]))


def _import_from(node: ast.ImportFrom) -> facts.Import:
    module = "." * node.level + (node.module or "")
    prefix = module if node.module is None else module + "."
    names = [
        ("*", module) if alias.name == "*" else (alias.asname or alias.name, prefix + alias.name)
        for alias in node.names
    ]
    return facts.Import(node, tuple(names), (module,))


def _if(node: ast.If) -> Statement:
    chain = [node]
    rest = node.orelse
    while len(rest) == 1 and rest[0].__class__ is ast.If:  # `elif`
        chain.append(rest[0])
        rest = rest[0].orelse
    orelse = _block(rest)
    for link in reversed(chain):
        orelse = (facts.If(link, _EXPRESSIONS[link.test.__class__](link.test), _block(link.body), orelse),)
    return orelse[0]


def _for(node: ast.For | ast.AsyncFor) -> facts.For:
    target, iterable = _expressions([node.target, node.iter])
    return facts.For(node, target, iterable, _block(node.body), _block(node.orelse))


def _while(node: ast.While) -> facts.While:
    return facts.While(node, _EXPRESSIONS[node.test.__class__](node.test), _block(node.body), _block(node.orelse))


def _with(node: ast.With | ast.AsyncWith) -> facts.With:
    items = [
        facts.WithItem(
            item, _EXPRESSIONS[item.context_expr.__class__](item.context_expr), _expression(item.optional_vars)
        )
        for item in node.items
    ]
    return facts.With(node, tuple(items), _block(node.body))


def _try(node: Any) -> facts.Try:
    """Of a Try or a TryStar (Python 3.11)."""
    handlers = [
        facts.Handler(handler, _expression(handler.type), handler.name, _block(handler.body))
        for handler in node.handlers
    ]
    return facts.Try(node, _block(node.body), tuple(handlers), _block(node.orelse), _block(node.finalbody))


def _match(node: ast.Match) -> facts.Match:
    cases = [
        facts.Case(case, tuple(dict.fromkeys(_captures(case.pattern))), _expression(case.guard), _block(case.body))
        for case in node.cases
    ]
    return facts.Match(node, _EXPRESSIONS[node.subject.__class__](node.subject), tuple(cases))


def _captures(pattern: ast.AST) -> Iterator[str]:
    for child in ast.iter_child_nodes(pattern):
        if isinstance(child, ast.pattern):
            yield from _captures(child)
    name = getattr(pattern, "name", None) or getattr(pattern, "rest", None)  # `case ... as name`, `*name`, `**rest`
    if name is not None:
        yield name


# ------------------------------------------------------------------------------------------ functions and classes


def _function(node: ast.FunctionDef | ast.AsyncFunctionDef) -> facts.Define:
    return facts.Define(
        node,
        facts.Function(
            node,
            node.name,
            _parameters(node.args),
            _expressions(node.decorator_list),
            _block(node.body),
            is_async=node.__class__ is ast.AsyncFunctionDef,
        ),
    )


def _class(node: ast.ClassDef) -> facts.Define:
    return facts.Define(
        node,
        facts.Class(
            node,
            node.name,
            _expressions(node.bases),
            _keywords(node.keywords),
            _expressions(node.decorator_list),
            _block(node.body),
        ),
    )


def _parameters(node: ast.arguments) -> tuple[facts.Parameter, ...]:
    parameters = []
    without_default = len(node.posonlyargs) + len(node.args) - len(node.defaults)
    defaults: list[ast.expr | None] = [None] * without_default + node.defaults
    for arg, default in zip(node.posonlyargs, defaults, strict=False):
        parameters.append(_parameter(arg, "positional", default))
    for arg, default in zip(node.args, defaults[len(node.posonlyargs) :], strict=True):
        parameters.append(_parameter(arg, "any", default))
    if node.vararg is not None:
        parameters.append(_parameter(node.vararg, "*", None))
    for arg, default in zip(node.kwonlyargs, node.kw_defaults, strict=True):
        parameters.append(_parameter(arg, "keyword", default))
    if node.kwarg is not None:
        parameters.append(_parameter(node.kwarg, "**", None))
    return tuple(parameters)


def _parameter(
    node: ast.arg, kind: Literal["positional", "any", "keyword", "*", "**"], default: ast.expr | None
) -> facts.Parameter:
    return facts.Parameter(node, node.arg, kind, _expression(default), _expression(node.annotation))


# ---------------------------------------------------------------------------------------------------------- tables

_UNARY: dict[type[ast.unaryop], str] = {ast.USub: "-", ast.UAdd: "+", ast.Invert: "~", ast.Not: "not"}

_BINARY: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.MatMult: "@",
    ast.Pow: "**",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.BitAnd: "&",
}

_COMPARISON: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
}

_EXPRESSIONS: dict[type[ast.expr], Callable[[Any], Expr]] = {
    ast.Name: _name,
    ast.Constant: _constant,
    ast.Attribute: _attribute,
    ast.Call: _call,
    ast.Subscript: _subscript,
    ast.Slice: _slice,
    ast.UnaryOp: _unary,
    ast.BinOp: _binary,
    ast.BoolOp: _boolean,
    ast.Compare: _compare,
    ast.IfExp: _conditional,
    ast.Tuple: _tuple,
    ast.List: _list,
    ast.Set: _set,
    ast.Dict: _dict,
    ast.ListComp: _list_comprehension,
    ast.SetComp: _set_comprehension,
    ast.DictComp: _dict_comprehension,
    ast.GeneratorExp: _generator_expression,
    ast.JoinedStr: _format_string,
    ast.Lambda: _lambda,
    ast.Starred: _starred,
    ast.Await: _await,
    ast.Yield: _yield,
    ast.YieldFrom: _yield_from,
    ast.NamedExpr: _walrus,
}

_STATEMENTS: dict[type[ast.stmt], Callable[[Any], Statement]] = {
    ast.Expr: _evaluate,
    ast.Assign: _assign,
    ast.AnnAssign: _annotated_assign,
    ast.AugAssign: _augmented_assign,
    ast.Return: _return,
    ast.Raise: _raise,
    ast.Assert: _assert,
    ast.Delete: _delete,
    ast.Break: _break,
    ast.Continue: _continue,
    ast.Pass: _pass,
    ast.Global: _global,
    ast.Nonlocal: _nonlocal,
    ast.Import: _import,
    ast.ImportFrom: _import_from,
    ast.If: _if,
    ast.For: _for,
    ast.AsyncFor: _for,
    ast.While: _while,
    ast.With: _with,
    ast.AsyncWith: _with,
    ast.Try: _try,
    ast.Match: _match,
    ast.FunctionDef: _function,
    ast.AsyncFunctionDef: _function,
    ast.ClassDef: _class,
}

_INNER = (ast.stmt, ast.excepthandler, ast.match_case)
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)

# The attributes of a compound statement, handler or case that hold statements, handlers or cases; none has an empty
# first one.
_BLOCKS: dict[type[ast.AST], tuple[str, ...]] = {
    ast.If: ("body", "orelse"),
    ast.For: ("body", "orelse"),
    ast.AsyncFor: ("body", "orelse"),
    ast.While: ("body", "orelse"),
    ast.With: ("body",),
    ast.AsyncWith: ("body",),
    ast.Try: ("body", "handlers", "orelse", "finalbody"),
    ast.ExceptHandler: ("body",),
    ast.Match: ("cases",),
    ast.match_case: ("body",),
    ast.FunctionDef: ("body",),
    ast.AsyncFunctionDef: ("body",),
    ast.ClassDef: ("body",),
}

if sys.version_info >= (3, 11):
    _STATEMENTS[ast.TryStar] = _try
    _BLOCKS[ast.TryStar] = _BLOCKS[ast.Try]
if sys.version_info >= (3, 12):
    _STATEMENTS[ast.TypeAlias] = _pass
if sys.version_info >= (3, 14):
    _EXPRESSIONS[ast.TemplateStr] = _format_string

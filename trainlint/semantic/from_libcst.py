"""Lowers libcst trees to the same facts as `from_ast`; the records then carry the nodes that fixes are made from.

Neither visitors nor metadata nor matchers of libcst: they rebuild the tree, or cost as much as parsing it.
"""

from __future__ import annotations

import ast
import re
import unicodedata
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import libcst as cst
from libcst import native  # type: ignore[attr-defined]  # compiled, without stubs

from trainlint.patterns_on_use import Pattern
from trainlint.semantic import facts
from trainlint.semantic.deep_stack import run_in_deep_stack
from trainlint.semantic.facts import Expr, Statement
from trainlint.semantic.syntax import ParseError, refuse_deep_text, refuse_null_bytes, without_lone_returns


def parse(text: str) -> cst.Module:
    """Raises ParseError. Reads the syntax of every Python from 3.0 on, whichever runs this."""
    refuse_null_bytes(text)
    refuse_deep_text(text)
    try:
        module = run_in_deep_stack(lambda: native.parse_module(without_lone_returns(text), None))
    except (KeyboardInterrupt, SystemExit):
        raise
    except cst.ParserSyntaxError as error:
        raise _located(error) from None
    except BaseException as error:  # a panic of the native parser is no Exception
        raise ParseError(str(error), 1, 1) from None
    assert isinstance(module, cst.Module)
    return module


def _located(error: cst.ParserSyntaxError) -> ParseError:
    """`raw_line` is off by one at times; the message has the row, and the column where the unexpected token ends."""
    found = re.fullmatch(r"parser error: error at (\d+):(\d+): (.*)", error.message, re.DOTALL)
    if found is None:
        return ParseError(error.message.removeprefix("tokenizer error: "), error.raw_line, error.raw_column + 1)
    row, column, expected = int(found[1]), int(found[2]), found[3]
    short = expected.count(",") < 3
    return ParseError(expected if short else "invalid syntax", row, max(column, 1))


def lower(module: cst.Module) -> tuple[Statement, ...]:
    """The statements of a module. Raises ParseError for a literal that Python would not accept (`b"é"`)."""
    return run_in_deep_stack(lambda: _quietly(lambda: _block(module.body)))


def lower_statement(node: cst.SimpleStatementLine | cst.BaseCompoundStatement) -> tuple[Statement, ...]:
    """Several of `a = 1; b = 2`."""
    return run_in_deep_stack(lambda: _quietly(lambda: _block((node,))))


def _quietly(lower_nodes: Callable[[], tuple[Statement, ...]]) -> tuple[Statement, ...]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of invalid escapes in the checked code's strings
        return lower_nodes()


# ----------------------------------------------------------------------------------------------------- expressions


def _expression(node: cst.BaseExpression) -> Expr:
    return _EXPRESSIONS[node.__class__](node)


def _optional(node: cst.BaseExpression | None) -> Expr | None:
    return None if node is None else _EXPRESSIONS[node.__class__](node)


_KEYWORD_CONSTANTS = {"True": True, "False": False, "None": None}


def _name(node: cst.Name) -> facts.Name | facts.Constant:
    if node.value in _KEYWORD_CONSTANTS:
        return facts.Constant(node, _KEYWORD_CONSTANTS[node.value])
    return facts.Name(node, _identifier(node))


def _identifier(node: cst.CSTNode) -> str:
    """Python reads identifiers in their NFKC form (PEP 3131)."""
    assert isinstance(node, cst.Name)
    name = node.value
    return name if name.isascii() else unicodedata.normalize("NFKC", name)


def _dotted(node: cst.CSTNode) -> str:
    names = []
    while isinstance(node, cst.Attribute):
        names.append(_identifier(node.attr))
        node = node.value
    names.append(_identifier(node))
    return ".".join(reversed(names))


def _number(node: cst.BaseNumber) -> facts.Constant:
    return facts.Constant(node, _evaluated(node.value))  # type: ignore[attr-defined]


def _ellipsis(node: cst.Ellipsis) -> facts.Constant:
    return facts.Constant(node, ...)


def _string(node: cst.SimpleString) -> facts.Constant:
    return facts.Constant(node, _evaluated(node.value))


_PLAIN = Pattern(r"""(['"])[^'"\\\r\n]*\1""")


def _evaluated(literal: str) -> Any:
    if _PLAIN.fullmatch(literal):
        return literal[1:-1]
    try:
        return ast.literal_eval(literal)
    except (SyntaxError, ValueError) as error:
        raise ParseError(f"{error.args[0]}: {literal[:40]}", 1, 1) from None


def _concatenated(node: cst.ConcatenatedString) -> facts.Constant | facts.FString:
    pieces: list[cst.BaseString] = []
    rest: cst.BaseString = node
    while isinstance(rest, cst.ConcatenatedString):  # nests to the right
        pieces.append(rest.left)
        rest = rest.right
    pieces.append(rest)
    if all(isinstance(piece, cst.SimpleString) for piece in pieces):
        values = [_evaluated(piece.value) for piece in pieces]  # type: ignore[attr-defined]
        return facts.Constant(node, values[0][:0].join(values))
    formatted = [piece for piece in pieces if not isinstance(piece, cst.SimpleString)]
    return facts.FString(node, tuple([value for piece in formatted for value in _interpolated(piece.parts)]))  # type: ignore[attr-defined]


def _format_string(node: cst.FormattedString | cst.TemplatedString) -> facts.FString:
    lowered = facts.FString(node, tuple(_interpolated(node.parts)))
    lowered.text = "\0".join(
        p.value for p in node.parts if isinstance(p, (cst.FormattedStringText, cst.TemplatedStringText))
    )
    return lowered


def _interpolated(parts: Sequence[cst.CSTNode]) -> Iterator[Expr]:
    for part in parts:
        if isinstance(part, (cst.FormattedStringExpression, cst.TemplatedStringExpression)):
            yield _expression(part.expression)
            if part.format_spec is not None:
                yield from _interpolated(part.format_spec)


def _attribute(node: cst.Attribute) -> facts.Attribute:
    return facts.Attribute(node, _expression(node.value), _identifier(node.attr))


def _call(node: cst.Call) -> facts.Call:
    args, keywords = _arguments(node.args)
    return facts.Call(node, _expression(node.func), args, keywords)


def _arguments(nodes: Sequence[cst.Arg]) -> tuple[tuple[Expr, ...], tuple[facts.Keyword, ...]]:
    args: list[Expr] = []
    keywords = []
    for node in nodes:
        value = _expression(node.value)
        if node.keyword is not None:
            keywords.append(facts.Keyword(node, _identifier(node.keyword), value))
        elif node.star == "**":
            keywords.append(facts.Keyword(node, None, value))
        elif node.star == "*":
            args.append(facts.Starred(node, value))
        else:
            args.append(value)
    return tuple(args), tuple(keywords)


def _subscript(node: cst.Subscript) -> facts.Subscript:
    elements = node.slice
    index: Expr
    if len(elements) == 1 and elements[0].comma is cst.MaybeSentinel.DEFAULT and not _is_starred(elements[0].slice):
        index = _index(elements[0].slice)
    else:
        # libcst has no node for a tuple without parentheses in a subscript; its elements stand for it.
        index = facts.Sequence(elements, "tuple", tuple([_index(element.slice) for element in elements]))
    return facts.Subscript(node, _expression(node.value), index)


def _is_starred(node: cst.BaseSlice) -> bool:
    return isinstance(node, cst.Index) and bool(node.star)


def _index(node: cst.BaseSlice) -> Expr:
    if isinstance(node, cst.Index):
        value = _expression(node.value)
        return facts.Starred(node, value) if node.star else value
    assert isinstance(node, cst.Slice)
    return facts.Slice(node, _optional(node.lower), _optional(node.upper), _optional(node.step))


def _unary(node: cst.UnaryOperation) -> facts.Operator:
    return facts.Operator(node, _UNARY[node.operator.__class__], (_expression(node.expression),))


def _binary(node: cst.BinaryOperation) -> Expr:
    chain = [node]  # `a + b + c` nests to the left
    left = node.left
    while isinstance(left, cst.BinaryOperation):
        chain.append(left)
        left = left.left
    record = _expression(left)
    for link in reversed(chain):
        record = facts.Operator(link, _BINARY[link.operator.__class__], (record, _expression(link.right)))
    return record


def _boolean(node: cst.BooleanOperation) -> facts.Operator:
    """`a and b and c`, nested to the left in libcst, is one operator with three operands."""
    kind = node.operator.__class__
    operands = [node.right]
    left = node.left
    while isinstance(left, cst.BooleanOperation) and left.operator.__class__ is kind and not left.lpar:
        operands.append(left.right)
        left = left.left
    operands.append(left)
    return facts.Operator(
        node, "and" if kind is cst.And else "or", tuple([_expression(operand) for operand in reversed(operands)])
    )


def _compare(node: cst.Comparison) -> facts.Compare:
    ops = tuple([_COMPARISON[target.operator.__class__] for target in node.comparisons])
    operands = [_expression(node.left), *[_expression(target.comparator) for target in node.comparisons]]
    return facts.Compare(node, ops, tuple(operands))


def _conditional(node: cst.IfExp) -> facts.Conditional:
    return facts.Conditional(node, _expression(node.test), _expression(node.body), _expression(node.orelse))


def _tuple(node: cst.Tuple) -> facts.Sequence:
    return facts.Sequence(node, "tuple", _elements(node.elements))


def _list(node: cst.List) -> facts.Sequence:
    return facts.Sequence(node, "list", _elements(node.elements))


def _set(node: cst.Set) -> facts.Sequence:
    return facts.Sequence(node, "set", _elements(node.elements))


def _elements(nodes: Sequence[cst.BaseElement]) -> tuple[Expr, ...]:
    return tuple(
        [_starred(node) if isinstance(node, cst.StarredElement) else _expression(node.value) for node in nodes]
    )


def _starred(node: cst.StarredElement) -> facts.Starred:
    return facts.Starred(node, _expression(node.value))


def _dict(node: cst.Dict) -> facts.Mapping:
    keys = tuple([_expression(item.key) if isinstance(item, cst.DictElement) else None for item in node.elements])
    return facts.Mapping(node, keys, tuple([_expression(item.value) for item in node.elements]))


def _list_comprehension(node: cst.ListComp) -> facts.Comprehension:
    return facts.Comprehension(node, "list", None, _expression(node.elt), _generators(node.for_in))


def _set_comprehension(node: cst.SetComp) -> facts.Comprehension:
    return facts.Comprehension(node, "set", None, _expression(node.elt), _generators(node.for_in))


def _generator_expression(node: cst.GeneratorExp) -> facts.Comprehension:
    return facts.Comprehension(node, "generator", None, _expression(node.elt), _generators(node.for_in))


def _dict_comprehension(node: cst.DictComp) -> facts.Comprehension:
    return facts.Comprehension(node, "dict", _expression(node.key), _expression(node.value), _generators(node.for_in))


def _starred_dict_comprehension(node: cst.StarredDictComp) -> facts.Comprehension:
    return facts.Comprehension(node, "dict", None, _expression(node.value), _generators(node.for_in))


def _generators(node: cst.CompFor) -> tuple[facts.Generator, ...]:
    generators = []
    clause: cst.CompFor | None = node
    while clause is not None:
        conditions = tuple([_expression(condition.test) for condition in clause.ifs])
        generators.append(facts.Generator(clause, _expression(clause.target), _expression(clause.iter), conditions))
        clause = clause.inner_for_in
    return tuple(generators)


def _lambda(node: cst.Lambda) -> facts.Lambda:
    body = facts.Return(node.body, _expression(node.body))
    return facts.Lambda(node, facts.Function(node, "<lambda>", _parameters(node.params), (), (body,)))


def _await(node: cst.Await) -> facts.Await:
    return facts.Await(node, _expression(node.expression))


def _yield(node: cst.Yield) -> facts.Yield:
    value = node.value
    if isinstance(value, cst.From):
        return facts.Yield(node, _expression(value.item), True)
    return facts.Yield(node, _optional(value), False)


def _walrus(node: cst.NamedExpr) -> facts.Walrus:
    target = _name(node.target)  # type: ignore[arg-type]
    return facts.Walrus(node, target, _expression(node.value))  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------ statements


def _block(nodes: Sequence[cst.CSTNode]) -> tuple[Statement, ...]:
    statements: list[Statement] = []
    for node in nodes:
        if isinstance(node, cst.SimpleStatementLine):
            statements += [_SMALL_STATEMENTS[small.__class__](small) for small in node.body]
        else:
            statements.append(_COMPOUND_STATEMENTS[node.__class__](node))
    return tuple(statements)


def _suite(node: cst.BaseSuite) -> tuple[Statement, ...]:
    if isinstance(node, cst.SimpleStatementSuite):  # `if x: return`
        return tuple([_SMALL_STATEMENTS[small.__class__](small) for small in node.body])
    return _block(node.body)


def _optional_suite(node: cst.Else | cst.Finally | None) -> tuple[Statement, ...]:
    return () if node is None else _suite(node.body)


def _evaluate(node: cst.Expr) -> facts.Evaluate:
    return facts.Evaluate(node, _expression(node.value))


def _assign(node: cst.Assign) -> facts.Assign:
    return facts.Assign(node, tuple([_expression(target.target) for target in node.targets]), _expression(node.value))


def _annotated_assign(node: cst.AnnAssign) -> facts.Assign:
    annotation = _expression(node.annotation.annotation)
    return facts.Assign(node, (_expression(node.target),), _optional(node.value), annotation=annotation)


def _augmented_assign(node: cst.AugAssign) -> facts.Assign:
    op = _AUGMENTATION[node.operator.__class__]
    return facts.Assign(node, (_expression(node.target),), _expression(node.value), op=op)


def _return(node: cst.Return) -> facts.Return:
    return facts.Return(node, _optional(node.value))


def _raise(node: cst.Raise) -> facts.Raise:
    return facts.Raise(node, _optional(node.exc), None if node.cause is None else _expression(node.cause.item))


def _assert(node: cst.Assert) -> facts.Assert:
    return facts.Assert(node, _expression(node.test), _optional(node.msg))


def _delete(node: cst.Del) -> facts.Delete:
    target = node.target
    if isinstance(target, cst.Tuple) and not target.lpar:
        return facts.Delete(node, _elements(target.elements))
    return facts.Delete(node, (_expression(target),))


def _break(node: cst.Break) -> facts.Jump:
    return facts.Jump(node, "break")


def _continue(node: cst.Continue) -> facts.Jump:
    return facts.Jump(node, "continue")


def _pass(node: cst.Pass | cst.TypeAlias) -> facts.Jump:
    return facts.Jump(node, "pass")


def _global(node: cst.Global) -> facts.Scope:
    return facts.Scope(node, "global", tuple([_identifier(item.name) for item in node.names]))


def _nonlocal(node: cst.Nonlocal) -> facts.Scope:
    return facts.Scope(node, "nonlocal", tuple([_identifier(item.name) for item in node.names]))


def _import(node: cst.Import | cst.LazyImport) -> facts.Import:
    names = []
    modules = []
    for alias in node.names:
        module = _dotted(alias.name)
        modules.append(module)
        if alias.asname is None:
            top = module.partition(".")[0]
            names.append((top, top))
        else:
            names.append((_identifier(alias.asname.name), module))
    return facts.Import(node, tuple(names), tuple(modules))


def _import_from(node: cst.ImportFrom | cst.LazyImportFrom) -> facts.Import:
    module = prefix = "." * len(node.relative)
    if node.module is not None:
        module += _dotted(node.module)
        prefix = module + "."
    if isinstance(node.names, cst.ImportStar):
        return facts.Import(node, (("*", module),), (module,))
    names = []
    for alias in node.names:
        name = _identifier(alias.name)
        names.append((name if alias.asname is None else _identifier(alias.asname.name), prefix + name))
    return facts.Import(node, tuple(names), (module,))


def _if(node: cst.If) -> Statement:
    chain = [node]
    rest = node.orelse
    while isinstance(rest, cst.If):  # `elif`
        chain.append(rest)
        rest = rest.orelse
    orelse = _optional_suite(rest)
    for link in reversed(chain):
        orelse = (facts.If(link, _expression(link.test), _suite(link.body), orelse),)
    return orelse[0]


def _for(node: cst.For) -> facts.For:
    return facts.For(
        node, _expression(node.target), _expression(node.iter), _suite(node.body), _optional_suite(node.orelse)
    )


def _while(node: cst.While) -> facts.While:
    return facts.While(node, _expression(node.test), _suite(node.body), _optional_suite(node.orelse))


def _with(node: cst.With) -> facts.With:
    items = [
        facts.WithItem(item, _expression(item.item), None if item.asname is None else _expression(item.asname.name))
        for item in node.items
    ]
    return facts.With(node, tuple(items), _suite(node.body))


def _try(node: cst.Try | cst.TryStar) -> facts.Try:
    handlers = [
        facts.Handler(
            handler,
            _optional(handler.type),
            None if handler.name is None else _identifier(handler.name.name),
            _suite(handler.body),
        )
        for handler in node.handlers
    ]
    return facts.Try(
        node, _suite(node.body), tuple(handlers), _optional_suite(node.orelse), _optional_suite(node.finalbody)
    )


def _match(node: cst.Match) -> facts.Match:
    cases = [
        facts.Case(case, tuple(dict.fromkeys(_captures(case.pattern))), _optional(case.guard), _suite(case.body))
        for case in node.cases
    ]
    return facts.Match(node, _expression(node.subject), tuple(cases))


def _captures(pattern: cst.CSTNode | None) -> Iterator[str]:
    """In the order of `from_ast`: the names inside a pattern, then its own."""
    if isinstance(pattern, (cst.MatchList, cst.MatchTuple, cst.MatchOr)):
        for element in pattern.patterns:
            yield from _captures(element)
    elif isinstance(
        pattern, (cst.MatchSequenceElement, cst.MatchOrElement, cst.MatchMappingElement, cst.MatchKeywordElement)
    ):
        yield from _captures(pattern.value if isinstance(pattern, cst.MatchSequenceElement) else pattern.pattern)
    elif isinstance(pattern, cst.MatchMapping):
        for item in pattern.elements:
            yield from _captures(item)
        if pattern.rest is not None:
            yield _identifier(pattern.rest)
    elif isinstance(pattern, cst.MatchClass):
        for part in (*pattern.patterns, *pattern.kwds):
            yield from _captures(part)
    elif isinstance(pattern, cst.MatchAs):
        yield from _captures(pattern.pattern)
        if pattern.name is not None:
            yield _identifier(pattern.name)
    elif isinstance(pattern, cst.MatchStar) and pattern.name is not None:
        yield _identifier(pattern.name)


# ------------------------------------------------------------------------------------------ functions and classes


def _function(node: cst.FunctionDef) -> facts.Define:
    return facts.Define(
        node,
        facts.Function(
            node,
            _identifier(node.name),
            _parameters(node.params),
            _decorators(node.decorators),
            _suite(node.body),
            is_async=node.asynchronous is not None,
        ),
    )


def _class(node: cst.ClassDef) -> facts.Define:
    bases, keywords = _arguments((*node.bases, *node.keywords))
    return facts.Define(
        node,
        facts.Class(node, _identifier(node.name), bases, keywords, _decorators(node.decorators), _suite(node.body)),
    )


def _decorators(nodes: Sequence[cst.Decorator]) -> tuple[Expr, ...]:
    return tuple([_expression(node.decorator) for node in nodes])


def _parameters(node: cst.Parameters) -> tuple[facts.Parameter, ...]:
    parameters = [_parameter(param, "positional") for param in node.posonly_params]
    parameters += [_parameter(param, "any") for param in node.params]
    if isinstance(node.star_arg, cst.Param):
        parameters.append(_parameter(node.star_arg, "*"))
    parameters += [_parameter(param, "keyword") for param in node.kwonly_params]
    if node.star_kwarg is not None:
        parameters.append(_parameter(node.star_kwarg, "**"))
    return tuple(parameters)


def _parameter(node: cst.Param, kind: Literal["positional", "any", "keyword", "*", "**"]) -> facts.Parameter:
    annotation = None if node.annotation is None else _expression(node.annotation.annotation)
    return facts.Parameter(node, _identifier(node.name), kind, _optional(node.default), annotation)


# ---------------------------------------------------------------------------------------------------------- tables

_UNARY: dict[type[cst.CSTNode], str] = {cst.Minus: "-", cst.Plus: "+", cst.BitInvert: "~", cst.Not: "not"}

_BINARY: dict[type[cst.CSTNode], str] = {
    cst.Add: "+",
    cst.Subtract: "-",
    cst.Multiply: "*",
    cst.Divide: "/",
    cst.FloorDivide: "//",
    cst.Modulo: "%",
    cst.MatrixMultiply: "@",
    cst.Power: "**",
    cst.LeftShift: "<<",
    cst.RightShift: ">>",
    cst.BitOr: "|",
    cst.BitXor: "^",
    cst.BitAnd: "&",
}

_AUGMENTATION: dict[type[cst.CSTNode], str] = {
    cst.AddAssign: "+",
    cst.SubtractAssign: "-",
    cst.MultiplyAssign: "*",
    cst.DivideAssign: "/",
    cst.FloorDivideAssign: "//",
    cst.ModuloAssign: "%",
    cst.MatrixMultiplyAssign: "@",
    cst.PowerAssign: "**",
    cst.LeftShiftAssign: "<<",
    cst.RightShiftAssign: ">>",
    cst.BitOrAssign: "|",
    cst.BitXorAssign: "^",
    cst.BitAndAssign: "&",
}

_COMPARISON: dict[type[cst.CSTNode], str] = {
    cst.Equal: "==",
    cst.NotEqual: "!=",
    cst.LessThan: "<",
    cst.LessThanEqual: "<=",
    cst.GreaterThan: ">",
    cst.GreaterThanEqual: ">=",
    cst.Is: "is",
    cst.IsNot: "is not",
    cst.In: "in",
    cst.NotIn: "not in",
}

_EXPRESSIONS: dict[type[cst.CSTNode], Callable[[Any], Expr]] = {
    cst.Name: _name,
    cst.Integer: _number,
    cst.Float: _number,
    cst.Imaginary: _number,
    cst.Ellipsis: _ellipsis,
    cst.SimpleString: _string,
    cst.ConcatenatedString: _concatenated,
    cst.FormattedString: _format_string,
    cst.TemplatedString: _format_string,
    cst.Attribute: _attribute,
    cst.Call: _call,
    cst.Subscript: _subscript,
    cst.UnaryOperation: _unary,
    cst.BinaryOperation: _binary,
    cst.BooleanOperation: _boolean,
    cst.Comparison: _compare,
    cst.IfExp: _conditional,
    cst.Tuple: _tuple,
    cst.List: _list,
    cst.Set: _set,
    cst.Dict: _dict,
    cst.ListComp: _list_comprehension,
    cst.SetComp: _set_comprehension,
    cst.DictComp: _dict_comprehension,
    cst.StarredDictComp: _starred_dict_comprehension,
    cst.GeneratorExp: _generator_expression,
    cst.Lambda: _lambda,
    cst.StarredElement: _starred,
    cst.Await: _await,
    cst.Yield: _yield,
    cst.NamedExpr: _walrus,
}

_SMALL_STATEMENTS: dict[type[cst.CSTNode], Callable[[Any], Statement]] = {
    cst.Expr: _evaluate,
    cst.Assign: _assign,
    cst.AnnAssign: _annotated_assign,
    cst.AugAssign: _augmented_assign,
    cst.Return: _return,
    cst.Raise: _raise,
    cst.Assert: _assert,
    cst.Del: _delete,
    cst.Break: _break,
    cst.Continue: _continue,
    cst.Pass: _pass,
    cst.TypeAlias: _pass,
    cst.Global: _global,
    cst.Nonlocal: _nonlocal,
    cst.Import: _import,
    cst.ImportFrom: _import_from,
    cst.LazyImport: _import,
    cst.LazyImportFrom: _import_from,
}

_COMPOUND_STATEMENTS: dict[type[cst.CSTNode], Callable[[Any], Statement]] = {
    cst.If: _if,
    cst.For: _for,
    cst.While: _while,
    cst.With: _with,
    cst.Try: _try,
    cst.TryStar: _try,
    cst.Match: _match,
    cst.FunctionDef: _function,
    cst.ClassDef: _class,
}

"""The link pass: gives every record its place. One walk over a lowered file, shared by both front ends.

Sets `context`, `order`, `block`/`index`, the scopes' bindings, the functions' calls, and the module's indexes.
`order` counts evaluation: an operand comes before the call that uses it, an assigned value before its target.
"""

from __future__ import annotations

from collections.abc import Callable

from trainlint.semantic.facts import (
    Assert,
    Assign,
    Attribute,
    Await,
    Binding,
    Call,
    Case,
    Class,
    Comprehension,
    Conditional,
    Constant,
    Context,
    Define,
    Delete,
    Evaluate,
    Expr,
    For,
    Function,
    If,
    Import,
    Jump,
    Lambda,
    Match,
    Module,
    Name,
    Operator,
    Raise,
    Record,
    Return,
    Scope,
    Sequence,
    Starred,
    Statement,
    Subscript,
    Try,
    Walrus,
    While,
    With,
    Yield,
)

# Every file counts from one: the same number is one object in all of them.
_NUMBERS: dict[int, int] = {}


def link(path: str, body: tuple[Statement, ...], name: str = "") -> Module:
    """Link the lowered statements of one file into a Module."""
    module = Module(path, body)
    module.name = name
    module.inner = Context("module", None, module, module, None, None)
    _Linker(module).block(body, module.inner)
    return module


class _Linker:
    def __init__(self, module: Module) -> None:
        self.module = module
        self.order = 0
        self.statement: Statement | None = None
        self.calls = module.calls
        self.calls_by_attr = module.calls_by_attr
        self.attributes = module.attributes

    # ---------------------------------------------------------------------------------------------- statements

    def block(self, statements: tuple[Statement, ...], context: Context) -> None:
        for index, statement in enumerate(statements):
            self.order += 1
            statement.order = self.order
            statement.context = context
            statement.block = statements
            statement.index = index
            self.statement = statement
            self.module.statements.append(statement)
            _STATEMENTS[statement.__class__](self, statement, context)
            if isinstance(statement, If):
                rest = self.rest_of_block(statement, context)
                if rest is not None:
                    context = rest

    def rest_of_block(self, statement: If, context: Context) -> Context | None:
        """What follows `if test: continue` runs only where the test is false."""
        body_exits, orelse_exits = exits(statement.body), bool(statement.orelse) and exits(statement.orelse)
        if body_exits == orelse_exits:
            return None
        return Context(
            "branch",
            context,
            statement,
            self.module,
            context.function,
            context.cls,
            test=statement.test,
            negated=body_exits,
            rest=True,
        )

    def evaluate(self, statement: Evaluate, context: Context) -> None:
        self.expr(statement.value, context)

    def assign(self, statement: Assign, context: Context) -> None:
        if statement.value is not None:
            self.expr(statement.value, context)
        if statement.annotation is not None:
            self.expr(statement.annotation, context)
        how = "assign" if statement.op is None else "augment"
        for target in statement.targets:
            self.bind(target, how, statement.value, context, statement)

    def return_(self, statement: Return, context: Context) -> None:
        if statement.value is not None:
            self.expr(statement.value, context)
        if context.function is not None:
            context.function.returns.append(statement)

    def raise_(self, statement: Raise, context: Context) -> None:
        for part in (statement.value, statement.cause):
            if part is not None:
                self.expr(part, context)

    def assert_(self, statement: Assert, context: Context) -> None:
        self.expr(statement.test, context)
        if statement.message is not None:
            self.expr(statement.message, context)

    def delete(self, statement: Delete, context: Context) -> None:
        for target in statement.targets:
            if isinstance(target, Name):
                self.name(target, context)
                self.add_binding(Binding(target.id, "delete", None, context, self.order, statement))
            else:
                self.expr(target, context)

    def import_(self, statement: Import, context: Context) -> None:
        self.module.imports.append(statement)
        for name, full in statement.names:
            self.add_binding(Binding(name, "import", None, context, self.order, statement, source=full))

    def nothing(self, statement: Statement, context: Context) -> None:
        pass

    def if_(self, statement: If, context: Context) -> None:
        # an elif chain is walked in a loop: it may be hundreds long
        while True:
            self.expr(statement.test, context)
            yes = Context("branch", context, statement, self.module, context.function, context.cls, test=statement.test)
            self.block(statement.body, yes)
            orelse = statement.orelse
            if not orelse:
                return
            no = Context(
                "branch",
                context,
                statement,
                self.module,
                context.function,
                context.cls,
                test=statement.test,
                negated=True,
            )
            if len(orelse) == 1 and orelse[0].__class__ is If:
                nested = orelse[0]
                self.order += 1
                nested.order = self.order
                nested.context = no
                nested.block = orelse
                nested.index = 0
                self.module.statements.append(nested)
                self.statement = nested
                statement, context = nested, no
                continue
            self.block(orelse, no)
            return

    def for_(self, statement: For, context: Context) -> None:
        self.module.loops.append(statement)
        self.expr(statement.iter, context)
        inner = Context("loop", context, statement, self.module, context.function, context.cls)
        self.bind(statement.target, "for", statement.iter, inner, statement)
        self.block(statement.body, inner)
        self.block(statement.orelse, context)

    def while_(self, statement: While, context: Context) -> None:
        self.module.loops.append(statement)
        inner = Context("loop", context, statement, self.module, context.function, context.cls)
        self.expr(statement.test, inner)
        self.block(statement.body, inner)
        self.block(statement.orelse, context)

    def with_(self, statement: With, context: Context) -> None:
        self.module.withs.append(statement)
        for item in statement.items:
            item.context = context
            self.expr(item.value, context)
            self.order += 1
            item.order = self.order
            if item.target is not None:
                self.bind(item.target, "with", item.value, context, statement)
        inner = Context("with", context, statement, self.module, context.function, context.cls)
        self.block(statement.body, inner)

    def try_(self, statement: Try, context: Context) -> None:
        self.block(statement.body, self.frame("try", statement, context))
        for handler in statement.handlers:
            inner = self.frame("except", handler, context)
            handler.context = context
            self.order += 1
            handler.order = self.order
            if handler.type is not None:
                self.expr(handler.type, inner)
            if handler.name is not None:
                self.add_binding(Binding(handler.name, "except", handler.type, inner, self.order, handler))
            self.block(handler.body, inner)
        self.block(statement.orelse, self.frame("try", statement, context))
        self.block(statement.final, self.frame("finally", statement, context))

    def match(self, statement: Match, context: Context) -> None:
        self.expr(statement.subject, context)
        for case in statement.cases:
            self.case(case, context)

    def case(self, case: Case, context: Context) -> None:
        inner = self.frame("case", case, context)
        case.context = context
        self.order += 1
        case.order = self.order
        for name in case.captures:
            self.add_binding(Binding(name, "case", None, inner, self.order, case))
        if case.guard is not None:
            self.expr(case.guard, inner)
        self.block(case.body, inner)

    def define(self, statement: Define, context: Context) -> None:
        what = statement.what
        if isinstance(what, Function):
            self.function(what, context)
        else:
            self.class_(what, context)
        self.order += 1
        self.add_binding(Binding(what.name, "define", None, context, self.order, statement, source=what))
        if context.kind == "class" and context.cls is not None and isinstance(what, Function):
            # `@x.setter` and overloads: the last one wins, as at run time
            context.cls.methods[what.name] = what

    def frame(self, kind: str, record: Record, context: Context) -> Context:
        return Context(kind, context, record, self.module, context.function, context.cls)

    # ------------------------------------------------------------------------------------ functions and classes

    def function(self, function: Function, context: Context) -> None:
        statement = self.statement
        for decorator in function.decorators:
            self.expr(decorator, context)
        for parameter in function.parameters:
            parameter.context = context
            if parameter.default is not None:
                self.expr(parameter.default, context)
            if parameter.annotation is not None:
                self.expr(parameter.annotation, context)
            self.order += 1
            parameter.order = self.order
        function.context = context
        self.order += 1
        function.order = self.order
        function.module = self.module
        function.cls = context.cls if context.kind == "class" else None
        outer = self.qualname(context)
        function.qualname = f"{outer}.{function.name}" if outer else function.name
        function.calls, function.returns, function.yields, function.locals = [], [], [], {}
        function.outer_names = _outer_names(function.body)
        self.module.functions.append(function)
        # `self` is known in nested functions of a method too, so the class travels on
        inner = Context("function", context, function, self.module, function, context.cls)
        function.inner = inner
        for parameter in function.parameters:
            binding = Binding(parameter.name, "parameter", parameter.default, inner, self.order, None, source=parameter)
            function.locals.setdefault(parameter.name, []).append(binding)
        self.block(function.body, inner)
        self.statement = statement

    def class_(self, cls: Class, context: Context) -> None:
        statement = self.statement
        for decorator in cls.decorators:
            self.expr(decorator, context)
        for base in cls.bases:
            self.expr(base, context)
        for keyword in cls.keywords:
            self.keyword(keyword, context)
        cls.context = context
        self.order += 1
        cls.order = self.order
        cls.module = self.module
        outer = self.qualname(context)
        cls.qualname = f"{outer}.{cls.name}" if outer else cls.name
        cls.methods, cls.attributes = {}, {}
        self.module.classes.append(cls)
        inner = Context("class", context, cls, self.module, context.function, cls)
        cls.inner = inner
        self.block(cls.body, inner)
        self.statement = statement

    def qualname(self, context: Context) -> str:
        for frame in context.frames():
            if frame.kind in ("function", "class"):
                return frame.record.qualname  # type: ignore[no-any-return]
        return ""

    # ------------------------------------------------------------------------------------------------- bindings

    def bind(
        self,
        target: Expr,
        how: str,
        value: Expr | None,
        context: Context,
        statement: Record,
        path: tuple[int | None, ...] = (),
    ) -> None:
        kind = target.__class__
        if kind is Name:
            self.order += 1
            target.order = self.order
            target.context = context
            target.known = None
            self.add_binding(Binding(target.id, how, value, context, self.order, statement, path=path))  # type: ignore[attr-defined]
        elif kind is Sequence:
            starred = False
            count = len(target.elements)  # type: ignore[attr-defined]
            for i, element in enumerate(target.elements):  # type: ignore[attr-defined]
                if element.__class__ is Starred:
                    starred = True
                    element.context, element.order, element.known = context, self.order, None
                    self.bind(element.value, how, value, context, statement, (*path, None))
                else:
                    # after a starred target, positions count from the end
                    self.bind(element, how, value, context, statement, (*path, i - count if starred else i))
            self.order += 1
            target.order = self.order
            target.context = context
            target.known = None
        else:
            self.expr(target, context)
            if kind is Attribute:
                self.bind_attribute(target, how, value, context, statement, path)  # type: ignore[arg-type]
            elif kind is Subscript:
                self.bind_item(target, how, value, context, statement, path)  # type: ignore[arg-type]

    def bind_attribute(
        self,
        target: Attribute,
        how: str,
        value: Expr | None,
        context: Context,
        statement: Record,
        path: tuple[int | None, ...],
    ) -> None:
        binding = Binding(target.attr, how, value, context, self.order, statement, source=target, path=path)
        if is_self(target.value, context) and context.cls is not None:
            context.cls.attributes.setdefault(target.attr, []).append(binding)
        else:
            dotted = dotted_name(target)
            if dotted is not None:
                self.module.stores.setdefault(dotted, []).append(binding)

    def bind_item(
        self,
        target: Subscript,
        how: str,
        value: Expr | None,
        context: Context,
        statement: Record,
        path: tuple[int | None, ...],
    ) -> None:
        """`options["num_workers"] = 4` is stored as "options[]": a later question goes through them in order."""
        dotted = dotted_name(target.value)
        if dotted is not None:
            binding = Binding(dotted, how, value, context, self.order, statement, source=target, path=path)
            self.module.stores.setdefault(dotted + "[]", []).append(binding)

    def add_binding(self, binding: Binding) -> None:
        context = binding.context
        function = context.function
        if context.kind == "class" or (context.cls is not None and _directly_in_class(context)):
            assert context.cls is not None
            context.cls.attributes.setdefault(binding.name, []).append(binding)
        elif function is not None and binding.name not in function.outer_names:
            function.locals.setdefault(binding.name, []).append(binding)
        else:
            self.module.names.setdefault(binding.name, []).append(binding)

    # ---------------------------------------------------------------------------------------------- expressions

    def name(self, expr: Name, context: Context) -> None:
        self.order += 1
        expr.order = self.order
        expr.context = context
        expr.known = None

    def expr(self, expr: Expr, context: Context) -> None:
        kind = expr.__class__
        if kind is Name or kind is Constant:
            pass
        elif kind is Attribute:
            self.expr(expr.value, context)  # type: ignore[attr-defined]
            self.attributes.setdefault(expr.attr, []).append(expr)  # type: ignore[attr-defined, arg-type]
        elif kind is Call:
            self.call(expr, context)  # type: ignore[arg-type]
        elif kind is Comprehension:
            self.comprehension(expr, context)  # type: ignore[arg-type]
        elif kind is Lambda:
            self.function(expr.function, context)  # type: ignore[attr-defined]
        elif kind is Walrus:
            self.expr(expr.value, context)  # type: ignore[attr-defined]
            self.bind(expr.target, "assign", expr.value, context, expr)  # type: ignore[attr-defined]
        elif kind is Conditional:
            self.conditional(expr, context)  # type: ignore[arg-type]
        elif kind is Operator and expr.op in ("and", "or"):  # type: ignore[attr-defined]
            self.boolean(expr, context)  # type: ignore[arg-type]
        else:
            for part in expr.parts:
                child = getattr(expr, part)
                if child is None:
                    continue
                if child.__class__ is tuple:
                    for item in child:
                        if item is not None:
                            self.expr(item, context)
                else:
                    self.expr(child, context)
            if kind is Yield or kind is Await:
                if kind is Yield and context.function is not None:
                    context.function.yields.append(expr)  # type: ignore[arg-type]
        order = self.order + 1
        self.order = expr.order = _NUMBERS.setdefault(order, order)
        expr.context = context
        expr.known = None

    def call(self, call: Call, context: Context) -> None:
        assert self.statement is not None
        call.statement = self.statement
        callee = call.callee
        self.expr(callee, context)
        for argument in call.args:
            self.expr(argument, context)
        for keyword in call.keywords:
            self.keyword(keyword, context)
        self.calls.append(call)
        kind = callee.__class__
        if kind is Attribute:
            self.calls_by_attr.setdefault(callee.attr, []).append(call)  # type: ignore[attr-defined]
        elif kind is Name:
            self.calls_by_attr.setdefault(callee.id, []).append(call)  # type: ignore[attr-defined]
        function = context.function
        if function is not None:
            function.calls.append(call)

    def keyword(self, keyword: Record, context: Context) -> None:
        self.expr(keyword.value, context)  # type: ignore[attr-defined]
        self.order += 1
        keyword.order = self.order
        keyword.context = context

    def conditional(self, expr: Conditional, context: Context) -> None:
        self.expr(expr.test, context)
        for child, negated in ((expr.body, False), (expr.orelse, True)):
            frame = Context(
                "branch", context, expr, self.module, context.function, context.cls, test=expr.test, negated=negated
            )
            self.expr(child, frame)

    def boolean(self, expr: Operator, context: Context) -> None:
        """In `a and f(b)`, f runs only where a is true."""
        for operand in expr.operands:
            self.expr(operand, context)
            context = Context(
                "branch",
                context,
                expr,
                self.module,
                context.function,
                context.cls,
                test=operand,
                negated=expr.op == "or",
            )

    def comprehension(self, expr: Comprehension, context: Context) -> None:
        self.module.comprehensions.append(expr)
        inner = context
        for generator in expr.generators:
            self.expr(generator.iter, inner)
            inner = Context("loop", inner, expr, self.module, context.function, context.cls)
            self.bind_comprehension(generator.target, generator.iter, inner, expr)
            for condition in generator.conditions:
                self.expr(condition, inner)
                inner = Context("branch", inner, expr, self.module, context.function, context.cls, test=condition)
            self.order += 1
            generator.order = self.order
            generator.context = context
        if expr.key is not None:
            self.expr(expr.key, inner)
        self.expr(expr.element, inner)

    def bind_comprehension(self, target: Expr, value: Expr, context: Context, record: Record) -> None:
        self.bind(target, "for", value, context, record)


def exits(block: tuple[Statement, ...]) -> bool:
    """Whether control never runs off the end of the block: it ends in continue, break, return or raise."""
    if not block:
        return False
    last = block[-1]
    kind = last.__class__
    if kind is Return or kind is Raise:
        return True
    if kind is Jump:
        return last.kind != "pass"  # type: ignore[attr-defined, no-any-return]
    if kind is If:
        return exits(last.body) and exits(last.orelse)  # type: ignore[attr-defined]
    if kind is With:
        return exits(last.body)  # type: ignore[attr-defined]
    if kind is Evaluate:
        call = last.value  # type: ignore[attr-defined]
        return isinstance(call, Call) and dotted_name(call.callee) in ("sys.exit", "exit", "quit", "os._exit")
    return False


def is_self(expr: Expr, context: Context) -> bool:
    """Whether the expression is the first parameter of the method that `context` lies in (also in a nested function)."""
    if expr.__class__ is not Name or context.cls is None:
        return False
    for frame in context.frames():
        if frame.kind == "function" and frame.record.cls is not None:
            parameters = frame.record.parameters
            return bool(parameters) and parameters[0].name == expr.id
    return False


def dotted_name(expr: Expr) -> str | None:
    """`a.b.c` as written, None for anything else."""
    parts: list[str] = []
    while expr.__class__ is Attribute:
        parts.append(expr.attr)
        expr = expr.value
    if expr.__class__ is not Name:
        return None
    parts.append(expr.id)
    parts.reverse()
    return ".".join(parts)


def _directly_in_class(context: Context) -> bool:
    for frame in context.frames():
        if frame.kind == "class":
            return True
        if frame.kind == "function":
            return False
    return False


def _outer_names(body: tuple[Statement, ...]) -> frozenset[str]:
    """Names declared global or nonlocal anywhere in a function's own body."""
    found: list[str] = []
    stack = list(body)
    while stack:
        statement = stack.pop()
        if isinstance(statement, Scope):
            found.extend(statement.names)
        elif not isinstance(statement, Define):
            for part in statement.parts:
                child = getattr(statement, part)
                if isinstance(child, tuple):
                    for item in child:
                        if isinstance(item, Statement):
                            stack.append(item)
                        elif hasattr(item, "body"):
                            stack.extend(s for s in item.body if isinstance(s, Statement))
    return frozenset(found)


_STATEMENTS: dict[type, Callable[..., None]] = {
    Evaluate: _Linker.evaluate,
    Assign: _Linker.assign,
    Return: _Linker.return_,
    Raise: _Linker.raise_,
    Assert: _Linker.assert_,
    Delete: _Linker.delete,
    Import: _Linker.import_,
    Jump: _Linker.nothing,
    Scope: _Linker.nothing,
    If: _Linker.if_,
    For: _Linker.for_,
    While: _Linker.while_,
    With: _Linker.with_,
    Try: _Linker.try_,
    Match: _Linker.match,
    Define: _Linker.define,
}

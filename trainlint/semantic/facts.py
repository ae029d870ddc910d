"""The records that a script is read into. Both front ends (ast, libcst) lower to them; rules see nothing else.

A record's `node` is the front end's own node and is opaque to all but the position and edit code. `context` says where the
record stands and `order` is its rank in source order; both are set once, by `contexts.link`, and never change afterwards.

Plain classes with `__slots__` rather than dataclasses: they are made by the hundred thousand, on the path of a
pre-commit hook.
"""

from __future__ import annotations

from collections.abc import Callable as CallableType
from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, Any, Literal


class Record:
    """Anything that stands at a place in the source."""

    __slots__ = ("context", "node", "order")

    node: Any  # ast node or libcst node
    context: Context
    order: int

    parts: tuple[str, ...] = ()  # the slots that hold child records, in evaluation order

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name == "node" and hasattr(self, "context"):  # let go: see `trainlint.semantic.nodes`
                from trainlint.semantic.nodes import recall

                recall(self.context.module)
                return Record.node.__get__(self)  # an AttributeError, should it still not be there
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


# ---------------------------------------------------------------------------------------------------- expressions


class Expr(Record):
    __slots__ = ("known",)

    known: Any  # its value, once `inference` was asked for it; None before


class Name(Expr):
    """`loader`"""

    __slots__ = ("id",)

    def __init__(self, node: Any, id: str) -> None:
        self.node = node
        self.id = id


class Attribute(Expr):
    """`model.encoder`"""

    __slots__ = ("attr", "value")
    parts = ("value",)

    def __init__(self, node: Any, value: Expr, attr: str) -> None:
        self.node = node
        self.value = value
        self.attr = attr


class Call(Expr):
    """`DataLoader(data, batch_size=4, **options)`; a keyword named None is a `**` argument, a `Starred` argument a `*`."""

    __slots__ = ("args", "callee", "keywords", "statement")
    parts = ("callee", "args", "keywords")

    statement: Statement  # the one it stands in (set by `contexts.link`)

    def __init__(self, node: Any, callee: Expr, args: tuple[Expr, ...], keywords: tuple[Keyword, ...]) -> None:
        self.node = node
        self.callee = callee
        self.args = args
        self.keywords = keywords

    @property
    def attr(self) -> str | None:
        """The last component of the called name: `item` of `loss.item()`, `DataLoader` of `DataLoader(...)`."""
        callee = self.callee
        if callee.__class__ is Attribute:
            return callee.attr
        if callee.__class__ is Name:
            return callee.id
        return None

    @property
    def receiver(self) -> Expr | None:
        """`loss` of `loss.item()`."""
        return self.callee.value if isinstance(self.callee, Attribute) else None

    def keyword(self, name: str) -> Expr | None:
        for keyword in self.keywords:
            if keyword.name == name:
                return keyword.value
        return None

    def argument(self, position: int | None, name: str | None = None) -> Expr | None:
        """The argument given by keyword `name`, or at `position` when no `*` argument stands before it."""
        if name is not None:
            for keyword in self.keywords:
                if keyword.name == name:
                    return keyword.value
        if position is not None and position < len(self.args):
            if not any(a.__class__ is Starred for a in self.args[: position + 1]):
                return self.args[position]
        return None

    @property
    def unpacks(self) -> bool:
        """Whether arguments come from `*args` or `**kwargs`, so that not all of them can be seen in the call."""
        return any(a.__class__ is Starred for a in self.args) or any(k.name is None for k in self.keywords)


class Keyword(Record):
    __slots__ = ("name", "value")
    parts = ("value",)

    def __init__(self, node: Any, name: str | None, value: Expr) -> None:
        self.node = node
        self.name = name
        self.value = value


class Constant(Expr):
    """A number, string, bytes, `True`, `False`, `None` or `...`."""

    __slots__ = ("value",)

    def __init__(self, node: Any, value: object) -> None:
        self.node = node
        self.value = value


class Subscript(Expr):
    """`batch["image"]`, `x[:, 0]` (the index is then a `Sequence`)."""

    __slots__ = ("index", "value")
    parts = ("value", "index")

    def __init__(self, node: Any, value: Expr, index: Expr) -> None:
        self.node = node
        self.value = value
        self.index = index


class Slice(Expr):
    __slots__ = ("lower", "step", "upper")
    parts = ("lower", "upper", "step")

    def __init__(self, node: Any, lower: Expr | None, upper: Expr | None, step: Expr | None) -> None:
        self.node = node
        self.lower = lower
        self.upper = upper
        self.step = step


class Operator(Expr):
    """Unary (`-`, `+`, `~`, `not`), binary (`+`, `@`, `%` ...) and boolean (`and`, `or`, any number of operands)."""

    __slots__ = ("op", "operands")
    parts = ("operands",)

    def __init__(self, node: Any, op: str, operands: tuple[Expr, ...]) -> None:
        self.node = node
        self.op = op
        self.operands = operands


class Compare(Expr):
    """`a < b <= c`: operands (a, b, c), ops ("<", "<=")."""

    __slots__ = ("operands", "ops")
    parts = ("operands",)

    def __init__(self, node: Any, ops: tuple[str, ...], operands: tuple[Expr, ...]) -> None:
        self.node = node
        self.ops = ops
        self.operands = operands


class Conditional(Expr):
    """`body if test else orelse`"""

    __slots__ = ("body", "orelse", "test")
    parts = ("test", "body", "orelse")

    def __init__(self, node: Any, test: Expr, body: Expr, orelse: Expr) -> None:
        self.node = node
        self.test = test
        self.body = body
        self.orelse = orelse


class Sequence(Expr):
    """A tuple, list or set display."""

    __slots__ = ("elements", "kind")
    parts = ("elements",)

    def __init__(self, node: Any, kind: Literal["tuple", "list", "set"], elements: tuple[Expr, ...]) -> None:
        self.node = node
        self.kind = kind
        self.elements = elements


class Mapping(Expr):
    """A dict display; a key that is None stands for `**value`."""

    __slots__ = ("keys", "values")
    parts = ("keys", "values")

    def __init__(self, node: Any, keys: tuple[Expr | None, ...], values: tuple[Expr, ...]) -> None:
        self.node = node
        self.keys = keys
        self.values = values


class Generator(Record):
    """One `for target in iter if ...` clause of a comprehension."""

    __slots__ = ("conditions", "iter", "target")
    parts = ("iter", "target", "conditions")

    def __init__(self, node: Any, target: Expr, iter: Expr, conditions: tuple[Expr, ...]) -> None:
        self.node = node
        self.target = target
        self.iter = iter
        self.conditions = conditions


class Comprehension(Expr):
    """A list, set, dict or generator comprehension; `key` only for a dict."""

    __slots__ = ("element", "generators", "key", "kind")
    parts = ("generators", "key", "element")

    def __init__(
        self,
        node: Any,
        kind: Literal["list", "set", "dict", "generator"],
        key: Expr | None,
        element: Expr,
        generators: tuple[Generator, ...],
    ) -> None:
        self.node = node
        self.kind = kind
        self.key = key
        self.element = element
        self.generators = generators


class FString(Expr):
    """An f-string (or t-string); `values` are the interpolated expressions, nested format specifications included.
    `text` is what stands between them, for searching only: it is no part of what makes two records the same."""

    __slots__ = ("text", "values")
    parts = ("values",)

    def __init__(self, node: Any, values: tuple[Expr, ...]) -> None:
        self.node = node
        self.values = values
        self.text = ""


class Lambda(Expr):
    __slots__ = ("function",)

    def __init__(self, node: Any, function: Function) -> None:
        self.node = node
        self.function = function


class Starred(Expr):
    """`*values`"""

    __slots__ = ("value",)
    parts = ("value",)

    def __init__(self, node: Any, value: Expr) -> None:
        self.node = node
        self.value = value


class Await(Expr):
    __slots__ = ("value",)
    parts = ("value",)

    def __init__(self, node: Any, value: Expr) -> None:
        self.node = node
        self.value = value


class Yield(Expr):
    """`yield value`, or `yield from value` when `delegates`."""

    __slots__ = ("delegates", "value")
    parts = ("value",)

    def __init__(self, node: Any, value: Expr | None, delegates: bool) -> None:
        self.node = node
        self.value = value
        self.delegates = delegates


class Walrus(Expr):
    """`name := value`"""

    __slots__ = ("target", "value")
    parts = ("value", "target")

    def __init__(self, node: Any, target: Name, value: Expr) -> None:
        self.node = node
        self.target = target
        self.value = value


# ------------------------------------------------------------------------------------------------------ statements


class Statement(Record):
    """`block` and `index` (set by `contexts.link`) let a reader look at what runs just before or after."""

    __slots__ = ("block", "index")

    block: tuple[Statement, ...]  # the statements it stands among
    index: int  # its place there


class Evaluate(Statement):
    """An expression as a statement: `loss.backward()`."""

    __slots__ = ("value",)
    parts = ("value",)

    def __init__(self, node: Any, value: Expr) -> None:
        self.node = node
        self.value = value


class Assign(Statement):
    """`a = b = value`, `a: T = value` (value may be None), `a += value` (op is then "+")."""

    __slots__ = ("annotation", "op", "targets", "value")
    parts = ("value", "annotation", "targets")

    def __init__(
        self,
        node: Any,
        targets: tuple[Expr, ...],
        value: Expr | None,
        op: str | None = None,
        annotation: Expr | None = None,
    ) -> None:
        self.node = node
        self.targets = targets
        self.value = value
        self.op = op
        self.annotation = annotation


class Return(Statement):
    __slots__ = ("value",)
    parts = ("value",)

    def __init__(self, node: Any, value: Expr | None) -> None:
        self.node = node
        self.value = value


class Raise(Statement):
    __slots__ = ("cause", "value")
    parts = ("value", "cause")

    def __init__(self, node: Any, value: Expr | None, cause: Expr | None) -> None:
        self.node = node
        self.value = value
        self.cause = cause


class Assert(Statement):
    __slots__ = ("message", "test")
    parts = ("test", "message")

    def __init__(self, node: Any, test: Expr, message: Expr | None) -> None:
        self.node = node
        self.test = test
        self.message = message


class Delete(Statement):
    __slots__ = ("targets",)
    parts = ("targets",)

    def __init__(self, node: Any, targets: tuple[Expr, ...]) -> None:
        self.node = node
        self.targets = targets


class Jump(Statement):
    """`break`, `continue` or `pass`."""

    __slots__ = ("kind",)

    def __init__(self, node: Any, kind: Literal["break", "continue", "pass"]) -> None:
        self.node = node
        self.kind = kind


class Scope(Statement):
    """`global a, b` or `nonlocal a`."""

    __slots__ = ("kind", "names")

    def __init__(self, node: Any, kind: Literal["global", "nonlocal"], names: tuple[str, ...]) -> None:
        self.node = node
        self.kind = kind
        self.names = names


class Import(Statement):
    """Every name that the statement binds, with the full dotted name it stands for.

    `import torch.nn` binds ("torch", "torch"); `import torch.nn as nn` ("nn", "torch.nn"); `from . import a` ("a", ".a");
    `from ..b import c as d` ("d", "..b.c"); `from x import *` ("*", "x").
    """

    __slots__ = ("modules", "names")

    def __init__(self, node: Any, names: tuple[tuple[str, str], ...], modules: tuple[str, ...]) -> None:
        self.node = node
        self.names = names
        self.modules = modules  # what is imported, as written: ("torch.nn",), ("..b",)


class If(Statement):
    __slots__ = ("body", "orelse", "test")
    parts = ("test", "body", "orelse")

    def __init__(self, node: Any, test: Expr, body: tuple[Statement, ...], orelse: tuple[Statement, ...]) -> None:
        self.node = node
        self.test = test
        self.body = body
        self.orelse = orelse


class For(Statement):
    __slots__ = ("body", "iter", "orelse", "target")
    parts = ("iter", "target", "body", "orelse")

    def __init__(
        self, node: Any, target: Expr, iter: Expr, body: tuple[Statement, ...], orelse: tuple[Statement, ...]
    ) -> None:
        self.node = node
        self.target = target
        self.iter = iter
        self.body = body
        self.orelse = orelse


class While(Statement):
    __slots__ = ("body", "orelse", "test")
    parts = ("test", "body", "orelse")

    def __init__(self, node: Any, test: Expr, body: tuple[Statement, ...], orelse: tuple[Statement, ...]) -> None:
        self.node = node
        self.test = test
        self.body = body
        self.orelse = orelse


class WithItem(Record):
    __slots__ = ("target", "value")
    parts = ("value", "target")

    def __init__(self, node: Any, value: Expr, target: Expr | None) -> None:
        self.node = node
        self.value = value
        self.target = target


class With(Statement):
    __slots__ = ("body", "items")
    parts = ("items", "body")

    def __init__(self, node: Any, items: tuple[WithItem, ...], body: tuple[Statement, ...]) -> None:
        self.node = node
        self.items = items
        self.body = body


class Handler(Record):
    """`except type as name:`"""

    __slots__ = ("body", "name", "type")
    parts = ("type", "body")

    def __init__(self, node: Any, type: Expr | None, name: str | None, body: tuple[Statement, ...]) -> None:
        self.node = node
        self.type = type
        self.name = name
        self.body = body


class Try(Statement):
    __slots__ = ("body", "final", "handlers", "orelse")
    parts = ("body", "handlers", "orelse", "final")

    def __init__(
        self,
        node: Any,
        body: tuple[Statement, ...],
        handlers: tuple[Handler, ...],
        orelse: tuple[Statement, ...],
        final: tuple[Statement, ...],
    ) -> None:
        self.node = node
        self.body = body
        self.handlers = handlers
        self.orelse = orelse
        self.final = final


class Case(Record):
    """One `case` of a match. Patterns are not lowered: `captures` are the names they bind."""

    __slots__ = ("body", "captures", "guard")
    parts = ("guard", "body")

    def __init__(self, node: Any, captures: tuple[str, ...], guard: Expr | None, body: tuple[Statement, ...]) -> None:
        self.node = node
        self.captures = captures
        self.guard = guard
        self.body = body


class Match(Statement):
    __slots__ = ("cases", "subject")
    parts = ("subject", "cases")

    def __init__(self, node: Any, subject: Expr, cases: tuple[Case, ...]) -> None:
        self.node = node
        self.subject = subject
        self.cases = cases


class Define(Statement):
    """A `def` or `class` statement."""

    __slots__ = ("what",)

    def __init__(self, node: Any, what: Function | Class) -> None:
        self.node = node
        self.what = what


# ------------------------------------------------------------------------------------------ functions and classes


class Parameter(Record):
    """`kind` is "positional" (only), "any", "keyword" (only), "*" or "**"."""

    __slots__ = ("annotation", "default", "kind", "name")
    parts = ("default", "annotation")

    def __init__(
        self,
        node: Any,
        name: str,
        kind: Literal["positional", "any", "keyword", "*", "**"],
        default: Expr | None,
        annotation: Expr | None,
    ) -> None:
        self.node = node
        self.name = name
        self.kind = kind
        self.default = default
        self.annotation = annotation


class Function(Record):
    """A `def` or a lambda (name "<lambda>", body one `Return`). `context` is where it is defined, `inner` that of its body."""

    __slots__ = (
        "body",
        "calls",
        "cls",
        "decorators",
        "inner",
        "is_async",
        "locals",
        "module",
        "name",
        "outer_names",
        "parameters",
        "qualname",
        "returns",
        "yields",
    )

    inner: Context
    module: Module
    cls: Class | None  # the class whose body defines it
    qualname: str
    calls: list[Call]  # in source order, nested functions' own calls not included
    returns: list[Return]
    yields: list[Yield]
    locals: dict[str, list[Binding]]
    outer_names: frozenset[str]  # declared global or nonlocal

    def __init__(
        self,
        node: Any,
        name: str,
        parameters: tuple[Parameter, ...],
        decorators: tuple[Expr, ...],
        body: tuple[Statement, ...],
        is_async: bool = False,
    ) -> None:
        self.node = node
        self.name = name
        self.parameters = parameters
        self.decorators = decorators
        self.body = body
        self.is_async = is_async

    def __repr__(self) -> str:
        return f"<function {self.qualname}>"


class Class(Record):
    """`attributes` are the `self.x = ...` of its methods and the assignments of its body, under their bare names."""

    __slots__ = (
        "attributes",
        "bases",
        "body",
        "decorators",
        "inner",
        "keywords",
        "methods",
        "module",
        "name",
        "qualname",
    )

    inner: Context
    module: Module
    qualname: str
    methods: dict[str, Function]
    attributes: dict[str, list[Binding]]

    def __init__(
        self,
        node: Any,
        name: str,
        bases: tuple[Expr, ...],
        keywords: tuple[Keyword, ...],
        decorators: tuple[Expr, ...],
        body: tuple[Statement, ...],
    ) -> None:
        self.node = node
        self.name = name
        self.bases = bases
        self.keywords = keywords
        self.decorators = decorators
        self.body = body

    def __repr__(self) -> str:
        return f"<class {self.qualname}>"


class Binding:
    """One place where a name or attribute gets a value.

    `how`: "assign" (value is the whole right side; `path` the way into it for unpacking: (0, 1) of `(a, (b, c)) = v` is c;
    None in a path stands for "a starred rest"), "augment" (`x += value`), "for" (value is the iterable, the name one
    element of it, by `path`), "with" (what `value.__enter__()` gives), "import" (`value` None, `source` the full name),
    "define" (`source` the Function or Class), "parameter" (`source` the Parameter), "except", "delete", "case".
    """

    __slots__ = ("context", "how", "name", "order", "path", "source", "statement", "value")

    def __init__(
        self,
        name: str,
        how: str,
        value: Expr | None,
        context: Context,
        order: int,
        statement: Record | None,
        source: Any = None,
        path: tuple[int | None, ...] = (),
    ) -> None:
        self.name = name
        self.how = how
        self.value = value
        self.context = context
        self.order = order
        self.statement = statement
        self.source = source
        self.path = path

    def __repr__(self) -> str:
        return f"<{self.name} by {self.how} at {self.order}>"


class Context:
    """One frame of the place where code stands: a linked list up to the module.

    `kind`: "module", "function" (also a lambda's), "class", "loop" (the body of a for or while; record is the statement; a
    comprehension's record is the `Comprehension`), "branch" (holds only where `test` is true, or false when `negated`;
    `rest` says that it is the rest of a block after `if test: continue/break/return/raise`), "with", "try", "except",
    "finally", "case".
    """

    __slots__ = ("cls", "depth", "function", "kind", "module", "negated", "parent", "record", "rest", "test")

    def __init__(
        self,
        kind: str,
        parent: Context | None,
        record: Any,
        module: Module,
        function: Function | None,
        cls: Class | None,
        test: Expr | None = None,
        negated: bool = False,
        rest: bool = False,
    ) -> None:
        self.kind = kind
        self.parent = parent
        self.record = record
        self.module = module
        self.function = function
        self.cls = cls  # the class whose body or method this is
        self.test = test
        self.negated = negated
        self.rest = rest
        self.depth: int = 0 if parent is None else parent.depth + 1

    def frames(self) -> Iterator[Context]:
        """This frame and those around it, innermost first, up to the module."""
        frame: Context | None = self
        while frame is not None:
            yield frame
            frame = frame.parent

    def local_frames(self) -> Iterator[Context]:
        """As `frames`, but stops after the frame of the innermost function or class (or the module)."""
        frame: Context | None = self
        while frame is not None:
            yield frame
            if frame.kind in ("function", "class"):
                return
            frame = frame.parent

    def within(self, other: Context) -> bool:
        """Whether this frame is `other` or lies inside it."""
        frame: Context | None = self
        while frame is not None and frame.depth >= other.depth:
            if frame is other:
                return True
            frame = frame.parent
        return False

    def __repr__(self) -> str:
        return f"<{self.kind} {self.parent!r}>" if self.parent else "<module>"


class Module:
    """One file, lowered and linked."""

    __slots__ = (
        "__weakref__",
        "again",
        "attributes",
        "body",
        "calls",
        "calls_by_attr",
        "classes",
        "comprehensions",
        "functions",
        "imports",
        "inner",
        "loops",
        "memo",
        "name",
        "names",
        "path",
        "statements",
        "stores",
        "withs",
    )

    def __init__(self, path: str, body: tuple[Statement, ...]) -> None:
        self.path = path
        self.body = body
        self.again: CallableType[[], tuple[Statement, ...]] | None = None  # see `trainlint.semantic.nodes`
        self.inner: Context
        self.functions: list[Function] = []  # lambdas included
        self.classes: list[Class] = []
        self.loops: list[For | While] = []
        self.comprehensions: list[Comprehension] = []
        self.withs: list[With] = []
        self.calls: list[Call] = []
        self.calls_by_attr: dict[str, list[Call]] = {}
        self.imports: list[Import] = []
        self.names: dict[str, list[Binding]] = {}  # module scope
        self.stores: dict[str, list[Binding]] = {}  # dotted stores that are not self.x: "model.fc", "torch.backends.x"
        self.statements: list[Statement] = []  # all of them, in source order
        self.attributes: dict[str, list[Attribute]] = {}  # every attribute access, by attribute name
        self.name = ""
        # What the model was asked about it and its records (by id), and indexes that it makes: all that dies with it.
        self.memo: dict[Hashable, Any] = {}

    def __repr__(self) -> str:
        return f"<module {self.path}>"


Callable = Function | Class

"""Which object an expression names, followed through parameters along a path of calls: is it the same optimizer?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainlint.records import NamedTuple
from trainlint.semantic.bindings import lookup
from trainlint.semantic.facts import (
    Attribute,
    Call,
    Comprehension,
    Constant,
    Expr,
    Function,
    Mapping,
    Name,
    Operator,
    Parameter,
    Sequence,
    Starred,
    Subscript,
)
from trainlint.semantic.facts import Class as ClassRecord
from trainlint.semantic.values import Object, each

if TYPE_CHECKING:
    from trainlint.semantic.inference import Inference

Path = tuple[Call, ...]
Key = tuple[object, ...]

_DEEPEST = 12
_SAME_OBJECT = frozenset("to cuda cpu train eval half float double bfloat16 requires_grad_ apply compile".split())
_WRAPPING = frozenset("module _orig_mod _forward_module".split())
_THROUGH = frozenset("list tuple set iter filter chain enumerate sorted tqdm reversed".split())


class Subject(NamedTuple):
    """An object. `key`: the name it goes by, from the scope that owns it; `builders`: the calls that can have built it
    (empty: not known); `roles`: what it can be."""

    key: Key
    builders: tuple[Call, ...]
    expr: Expr
    path: Path


class Identity:
    def __init__(self, inference: Inference) -> None:
        self.inference = inference

    def of(self, expr: Expr, path: Path = ()) -> Subject:
        key, found, where = self._key(expr, path, 0)
        return Subject(key, self._builders(found), found, where)

    def same(self, a: Subject, b: Subject) -> bool | None:
        """True, False, or None when it cannot be told."""
        if a.key == b.key:
            return True
        if a.builders and b.builders:
            left, right = {id(c) for c in a.builders}, {id(c) for c in b.builders}
            if not left & right:
                return False
            if left == right and len(left) == 1:
                return True if self._built_once(a.builders[0]) else None
            return None
        if len(a.key) == len(b.key) and a.key[:-1] == b.key[:-1]:
            return False  # two names of one scope
        return None

    def trains(self, optimizer: Subject, module: Subject) -> bool | None:
        """Whether an optimizer holds the parameters of a module; None when it cannot be told."""
        if not optimizer.builders:
            return None
        answers: list[bool | None] = []
        for builder in optimizer.builders:
            given = builder.argument(0, "params")
            if given is None:
                return None
            owners = self.owners_of_parameters(given)
            if not owners:
                return None
            for owner in owners:
                answers.append(self._part_of(self.of(owner), module))
        return True if True in answers else None if None in answers else False

    def parts_held(self, optimizer: Subject, module: Subject) -> tuple[str, ...]:
        """The names of the parts of a module that an optimizer holds; empty where it holds all of it."""
        parts: list[str] = []
        for builder in optimizer.builders:
            given = builder.argument(0, "params")
            for owner in self.owners_of_parameters(given) if given is not None else ():
                held = self.of(owner).key
                if held == module.key or len(held) <= len(module.key):
                    if module.key[: len(held)] == held:
                        return ()
                elif held[: len(module.key)] == module.key:
                    parts.append(str(held[len(module.key)]))
        return tuple(parts)

    def _part_of(self, held: Subject, module: Subject) -> bool | None:
        """The same module, a part of it, or the whole of which it is a part."""
        shorter = min(len(held.key), len(module.key))
        if held.key[:shorter] == module.key[:shorter]:
            return True
        found = self.same(held, module)
        if found is False and not (self._plain(held) and self._plain(module)):
            return None  # one may wrap or hold the other
        return found

    def holds(self, whole: Subject, part: Subject, depth: int = 0) -> bool:
        """Whether what builds an object is given the other one: `Translator(encoder, decoder)` holds both."""
        for builder in whole.builders:
            for argument in (*builder.args, *(k.value for k in builder.keywords)):
                if not isinstance(argument, (Name, Attribute, Call)):
                    continue
                given = self.of(argument)
                if given.key == part.key or (part.builders and self.same(given, part) is True):
                    return True
                if depth < 2 and given.builders and self.holds(given, part, depth + 1):
                    return True
        return False

    def _plain(self, subject: Subject) -> bool:
        """Built by a class that holds nothing that is known elsewhere."""
        return all(not call.args for call in subject.builders) and bool(subject.builders)

    def _built_once(self, builder: Call) -> bool:
        function = builder.context.function
        if function is None:
            return True
        return len(self.inference.callgraph.callers(function)) <= 1

    def _builders(self, expr: Expr) -> tuple[Call, ...]:
        found: list[Call] = []
        for value in each(self.inference.value(expr)):
            if not isinstance(value, Object) or value.call is None:
                return ()
            found.append(value.call)
        return tuple(found)

    # ----------------------------------------------------------------------------------------------------- keys

    def _key(self, expr: Expr, path: Path, depth: int) -> tuple[Key, Expr, Path]:
        if depth > _DEEPEST:
            return (("?", id(expr)), expr, path)
        if isinstance(expr, Name):
            return self._name(expr, path, depth)
        if isinstance(expr, Attribute):
            if expr.attr in _WRAPPING:
                return self._key(expr.value, path, depth + 1)
            given = self._given_to_constructor(expr)
            if given is not None:
                return self._key(given, (), depth + 1)
            key, _, _ = self._key(expr.value, path, depth + 1)
            return ((*key, expr.attr), expr, path)
        if isinstance(expr, Subscript):
            key, _, _ = self._key(expr.value, path, depth + 1)
            index = expr.index.value if isinstance(expr.index, Constant) else "[]"
            return ((*key, index), expr, path)
        if isinstance(expr, Call):
            if expr.attr in _SAME_OBJECT and expr.receiver is not None:
                return self._key(expr.receiver, path, depth + 1)
            if expr.receiver is not None and not expr.args:
                key, _, _ = self._key(expr.receiver, path, depth + 1)
                return ((*key, f"{expr.attr}()"), expr, path)
        return (("expression", id(expr)), expr, path)

    def _given_to_constructor(self, expr: Attribute) -> Name | None:
        """`self.net` of a class whose `__init__` says `self.net = net`, and of which there is one object."""
        for value in each(self.inference.value(expr.value)):
            if not isinstance(value, Object) or value.cls is None:
                return None
            bindings = value.cls.attributes.get(expr.attr, [])
            if len(bindings) != 1 or bindings[0].how != "assign" or bindings[0].path:
                return None
            given, function = bindings[0].value, bindings[0].context.function
            if not isinstance(given, Name) or function is None or function.name != "__init__":
                return None
            if len(self.inference.callgraph.callers(function)) > 1:
                return None
            sources = lookup(given, given.id)[0]
            return given if len(sources) == 1 and sources[0].how == "parameter" else None
        return None

    def _name(self, expr: Name, path: Path, depth: int) -> tuple[Key, Expr, Path]:
        given = self.argument(expr, path)
        if given is not None:
            return self._key(given[0], given[1], depth + 1)
        bindings, _ = lookup(expr, expr.id)
        if len(bindings) == 1:
            binding = bindings[0]
            if binding.how == "parameter":
                return (self._parameter_key(expr, binding.context.function), expr, path)
            if binding.how == "assign" and not binding.path and isinstance(binding.value, (Name, Attribute, Subscript)):
                return self._key(binding.value, path, depth + 1)
            if binding.how == "for" and binding.value is not None:
                source = _iterated(binding.value)
                if isinstance(source, (Name, Attribute, Subscript)):
                    key, _, _ = self._key(source, path, depth + 1)
                    return ((*key, "each", *binding.path[-1:]), expr, path)
        scope: object = id(expr.context.module)
        if bindings and bindings[0].context.function is not None:
            scope = id(bindings[0].context.function)
        return ((scope, expr.id), expr, path)

    def _parameter_key(self, expr: Name, function: Function | None) -> Key:
        if (
            function is not None
            and function.cls is not None
            and function.parameters
            and function.parameters[0].name == expr.id
        ):
            if not self.inference.is_static(function):
                return ("self", id(self._root(function.cls)))
        return (id(function), expr.id)

    def _root(self, cls: ClassRecord) -> ClassRecord:
        """The topmost class of the project that a class comes from: `self` of base and subclass are one."""
        found = cls
        for base in self.inference.bases(cls):
            if isinstance(base, ClassRecord):
                found = base
        return found

    def argument(self, expr: Name, path: Path) -> tuple[Expr, Path] | None:
        """What the call at the end of the path (or the only caller there is) passes for a parameter, and where that stands."""
        bindings, _ = lookup(expr, expr.id)
        if len(bindings) != 1 or bindings[0].how != "parameter":
            return None
        function: Function | None = bindings[0].context.function
        parameter: Parameter = bindings[0].source
        if function is None:
            return None
        graph = self.inference.callgraph
        if not path:
            sites = graph.callers(function)
            if len(sites) != 1:
                return None
            site = sites[0]
            if function.cls is not None and function.parameters[0] is parameter and site.shift:
                return None  # self stays self
            passed = site.argument(function, parameter)
            return (passed, ()) if isinstance(passed, Expr) else None
        call = path[-1]
        for callee in graph.callees(call):
            if callee.function is function:
                if callee.shift and function.parameters and function.parameters[0] is parameter:
                    receiver = (
                        call.receiver
                        if function.name not in ("__call__", "forward") or call.attr == function.name
                        else call.callee
                    )
                    return (receiver, path[:-1]) if receiver is not None and not isinstance(receiver, Call) else None
                position = function.parameters.index(parameter) - callee.shift
                arguments = call.args if callee.arguments is None else callee.arguments
                for keyword in call.keywords:
                    if keyword.name == parameter.name:
                        return (keyword.value, path[:-1])
                if 0 <= position < len(arguments) and not any(
                    isinstance(a, Starred) for a in arguments[: position + 1]
                ):
                    return (arguments[position], path[:-1])
                return None
        # a variable of the function around a closure
        return self.argument(expr, path[:-1]) if len(path) > 1 else None

    # ----------------------------------------------------------------------------------------------- parameters

    def owners_of_parameters(self, expr: Expr, depth: int = 0) -> list[Expr]:
        """The modules (or the optimizer) whose parameters an expression gives: `net` of `net.parameters()`. Empty when not known."""
        if depth > 8:
            return []
        if isinstance(expr, Starred):
            return self.owners_of_parameters(expr.value, depth + 1)
        if isinstance(expr, Call):
            if expr.attr in ("parameters", "named_parameters") and expr.receiver is not None:
                return [expr.receiver]
            if expr.attr == "master_params" and expr.args:
                return [expr.args[0]]
            name = (self.inference.name_of(expr.callee) or expr.attr or "").rpartition(".")[2]
            if name in _THROUGH and expr.args:
                given = expr.args[1:] if name == "filter" else expr.args if name == "chain" else expr.args[:1]
                return self._all(given, depth)
            return []
        if isinstance(expr, Attribute):
            if expr.attr == "param_groups":
                return [expr.value]
            if expr.attr in ("data", "grad"):
                return self.owners_of_parameters(expr.value, depth + 1)
            return self._attribute(expr, depth)
        if isinstance(expr, Subscript):
            return self.owners_of_parameters(expr.value, depth + 1)
        if isinstance(expr, Sequence):
            return self._all(expr.elements, depth)
        if isinstance(expr, Mapping):
            for key, value in zip(expr.keys, expr.values, strict=False):
                if isinstance(key, Constant) and key.value == "params":
                    return self.owners_of_parameters(value, depth + 1)
            return []
        if isinstance(expr, Operator) and expr.op == "+":
            return self._all(expr.operands, depth)
        if isinstance(expr, Comprehension):
            return self.owners_of_parameters(expr.generators[0].iter, depth + 1)
        if isinstance(expr, Name):
            return self._from_name(expr, depth)
        return []

    def _all(self, parts: tuple[Expr, ...], depth: int) -> list[Expr]:
        found: list[Expr] = []
        for part in parts:
            owners = self.owners_of_parameters(part, depth + 1)
            if not owners:
                return []
            found.extend(owners)
        return found

    def _from_name(self, expr: Name, depth: int) -> list[Expr]:
        bindings, _ = lookup(expr, expr.id)
        for binding in bindings:
            if (
                binding.how in ("assign", "for")
                and binding.value is not None
                and (binding.how == "for" or not binding.path)
            ):
                found = self.owners_of_parameters(binding.value, depth + 1)
                if found:
                    return found
            if binding.how == "parameter":
                given = self.argument(expr, ())
                if given is not None:
                    return self.owners_of_parameters(given[0], depth + 1)
        return []

    def _attribute(self, expr: Attribute, depth: int) -> list[Expr]:
        """`self.params` that the class sets to `list(net.parameters())`."""
        for value in each(self.inference.value(expr.value)):
            if isinstance(value, Object) and value.cls is not None:
                bindings = value.cls.attributes.get(expr.attr, [])
                if len(bindings) == 1 and bindings[0].value is not None and bindings[0].how == "assign":
                    return self.owners_of_parameters(bindings[0].value, depth + 1)
        return []


def _iterated(expr: Expr) -> Expr:
    """`opts` of `opts.values()`, `enumerate(opts)`, `list(opts)`."""
    while isinstance(expr, Call):
        if expr.attr in ("values", "items") and expr.receiver is not None:
            expr = expr.receiver
        elif expr.attr in _THROUGH and expr.args:
            expr = expr.args[0]
        else:
            break
    return expr

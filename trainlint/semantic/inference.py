"""What expressions hold, over the whole project, on demand.

`Inference.value(expr)` follows names to their bindings, parameters to the arguments of their callers, attributes to the
assignments of their class, calls to the returns of what they call. What cannot be followed is `Unknown`; where a
convention of the field speaks (a parameter `criterion` that is called with tensors), see `conventions`.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator

from trainlint.semantic import conventions, external, options
from trainlint.semantic.bindings import lookup
from trainlint.semantic.callgraph import CallGraph
from trainlint.semantic.contexts import dotted_name
from trainlint.semantic.facts import (
    Attribute,
    Await,
    Binding,
    Call,
    Class,
    Compare,
    Comprehension,
    Conditional,
    Constant,
    Expr,
    FString,
    Function,
    Lambda,
    Mapping,
    Module,
    Name,
    Operator,
    Parameter,
    Sequence,
    Slice,
    Starred,
    Subscript,
    Walrus,
    Yield,
)
from trainlint.semantic.project import Project
from trainlint.semantic.solver import Solver
from trainlint.semantic.values import (
    NONE,
    UNKNOWN,
    Array,
    Batch,
    Const,
    External,
    Items,
    Method,
    Number,
    Object,
    OneOf,
    Routine,
    Table,
    Tensor,
    Text,
    Type,
    Unknown,
    Value,
    constant,
    each,
    join,
)

_DEEPEST = 1000


class Inference:
    def __init__(
        self, project: Project, hot_functions: frozenset[str] = frozenset(), loader_names: frozenset[str] = frozenset()
    ) -> None:
        self.project = project
        self.hot_functions = hot_functions  # by the configuration: for code that the model cannot see
        self.loader_names = loader_names
        self.solver = Solver(_DEEPEST)
        self.callgraph = CallGraph(self)

    # -------------------------------------------------------------------------------------------------- values

    def value(self, expr: Expr) -> Value:
        known: Value | None = expr.known
        if known is None:
            if isinstance(expr, Constant):
                known = expr.known = Const(expr.value)
                return known
            solver = self.solver
            known = solver.solve(id(expr), lambda: self._value(expr), UNKNOWN)
            if solver.settled:
                expr.known = known
        return known

    def _value(self, expr: Expr) -> Value:
        evaluate = _EVALUATE.get(expr.__class__)
        return evaluate(self, expr) if evaluate is not None else UNKNOWN

    def constant(self, expr: Expr | None) -> object:
        """The Python value of an expression that is known by value, else `...`."""
        return ... if expr is None else constant(self.value(expr))

    def _name(self, expr: Name) -> Value:
        bindings, bound = lookup(expr, expr.id)
        if not bound:
            return self._unbound(expr)
        found = self._augmented(bindings, expr)
        result = conventions.narrowed(expr, join(found))
        if isinstance(result, Unknown):
            return conventions.by_use(self, expr.id, expr)
        if isinstance(result, OneOf):
            return result
        return conventions.refine(self, expr, result)

    def _augmented(self, bindings: list[Binding], expr: Name) -> list[Value]:
        """The values of bindings, with `x += y` taken as a change of x, not as another thing that x may be."""
        pairs = [(b, self.bound(b)) for b in bindings]
        if len(bindings) > 1:
            pairs = conventions.without_replaced(expr, pairs)
        added = [v for b, v in pairs if b.how == "augment"]
        if not added:
            if any(isinstance(v, Tensor) and _grows(b) for b, v in pairs):  # `loss = 0; loss = loss + term`
                return [v for _, v in pairs if not (isinstance(v, Const) and isinstance(v.value, (int, float)))]
            return [v for _, v in pairs]
        whole = [v for b, v in pairs if b.how != "augment"]
        tensors = [v for v in whole if isinstance(v, Tensor)]
        if tensors:
            # `boxes /= scale` leaves boxes where they are
            return whole + [v._replace(device=tensors[0].device) for v in added if isinstance(v, Tensor)]
        if any(isinstance(v, Tensor) for v in added):
            # `correct = 0; correct += (pred == y).sum()`: a tensor from the first addition on
            whole = [v for v in whole if not (isinstance(v, Const) and isinstance(v.value, (int, float)))]
        return whole + added

    def _unbound(self, expr: Name) -> Value:
        for full in self._star_names(expr):
            return full
        return External(expr.id)

    def _star_names(self, expr: Name) -> Iterator[Value]:
        """A name that only `from x import *` can have brought."""
        module = expr.context.module
        for statement in module.imports:
            for name, full in statement.names:
                if name == "*":
                    target = self.project.target(
                        module.path, f"{full}.{expr.id}" if not full.endswith(".") else full + expr.id
                    )
                    if target is not None:
                        yield self.of_target(target)
                    elif full.partition(".")[0] in ("torch", "torchvision") and expr.id not in _BUILTINS:
                        yield External(f"{full}.{expr.id}")

    def of_target(self, target: Module | Function | Class | tuple[Module, str]) -> Value:
        if isinstance(target, Function):
            return Routine(target)
        if isinstance(target, Class):
            return Type(target)
        if isinstance(target, Module):
            return External("=" + target.path)  # a module of the project: `=` and its path
        module, name = target
        return self.module_variable(module, name)

    def module_variable(self, module: Module, name: str) -> Value:
        return join([self.bound(b) for b in module.names.get(name, ()) if b.how != "delete"])

    # ------------------------------------------------------------------------------------------------ bindings

    def bound(self, binding: Binding) -> Value:
        how = binding.how
        if how == "import":
            module = binding.context.module
            target = self.project.target(module.path, binding.source)
            if target is not None:
                return self.of_target(target)
            return External(self.project.outside_name(module.path, binding.source))
        if how == "define":
            return Routine(binding.source) if isinstance(binding.source, Function) else Type(binding.source)
        if how == "parameter":
            function = binding.context.function
            assert function is not None
            return self.parameter(function, binding.source)
        if binding.value is None:
            return UNKNOWN
        if how == "assign":
            return self.descend(self.value(binding.value), binding.path)
        if how == "for":
            return self.descend(self.element(self.value(binding.value)), binding.path)
        if how == "with":
            return self.entered(self.value(binding.value))
        if how == "augment":
            added = self.value(binding.value)
            return added if isinstance(added, (Tensor, Array)) else UNKNOWN
        return UNKNOWN

    def descend(self, value: Value, path: tuple[int | None, ...]) -> Value:
        for step in path:
            value = self.item(value, step)
        return value

    def item(self, value: Value, index: int | str | None) -> Value:
        """One item of a value, by position or key; None: any of them."""
        results: list[Value] = []
        for one in each(value):
            if isinstance(one, Items):
                elements = one.elements
                if elements and isinstance(index, int) and -len(elements) <= index < len(elements):
                    results.append(elements[index])
                elif elements is None or one.grown:
                    results.append(one.element)
                else:
                    results.append(join(list(elements)) if elements else UNKNOWN)
            elif isinstance(one, Table):
                results.append(one.get(index) if index is not None else join([v for _, v in one.items] + [one.rest]))
            elif isinstance(one, Batch):
                results.append(one._replace(part=True))
            elif isinstance(one, (Tensor, Array)):
                results.append(one)
            elif isinstance(one, Object) and one.role in ("module", "dataset"):
                results.append(self._object_item(one, index))
            elif isinstance(one, Object) and one.role == "output":
                results.append(Tensor(None, True, "module"))
            elif isinstance(one, (Text, Const)):
                results.append(Text() if isinstance(one, Text) or isinstance(one.value, str) else UNKNOWN)
            else:
                results.append(UNKNOWN)
        return join(results)

    def _object_item(self, one: Object, index: int | str | None) -> Value:
        if one.role == "dataset":
            if one.cls is not None:
                method = self.method(one.cls, "__getitem__")
                if method is not None:
                    return self.on_host(self.returned(method))
            return Batch()
        if isinstance(index, int) and -len(one.inner) <= index < len(one.inner):
            return one.inner[index]
        return join(list(one.inner)) if one.inner else Object("module", "torch.nn.Module")

    def on_host(self, value: Value) -> Value:
        """What a dataset gives is on the host, unless it moved it itself."""
        if isinstance(value, Tensor) and value.device is None:
            return value._replace(device="host", graph=False)
        if isinstance(value, Items) and value.elements is not None:
            return value._replace(elements=tuple(self.on_host(v) for v in value.elements))
        return value

    def element(self, value: Value) -> Value:
        """What iterating gives."""
        results: list[Value] = []
        for one in each(value):
            if isinstance(one, Items):
                results.append(join(list(one.elements)) if one.elements else one.element)
            elif isinstance(one, (Tensor, Array, Batch)):
                results.append(one)
            elif isinstance(one, Object) and one.role == "loader":
                results.append(self._loaded(one))
            elif isinstance(one, Object) and one.role == "iterator":
                results.append(self.element(one.inner[0]) if one.inner else UNKNOWN)
            elif isinstance(one, Object) and one.role == "dataset":
                results.append(self._object_item(one, None))
            elif isinstance(one, Object) and one.cls is not None:
                results.append(self._iterated(one, one.cls))
            elif isinstance(one, Object) and one.inner:
                results.append(join(list(one.inner)))
            elif isinstance(one, Object) and one.role == "module":
                results.append(Object("module", "torch.nn.Module"))
            elif isinstance(one, Table):
                results.append(Text())
            else:
                results.append(UNKNOWN)
        return join(results)

    def _loaded(self, loader: Object) -> Value:
        """A batch of a loader: by its dataset's `__getitem__` where that is the project's, else of unknown shape."""
        if loader.cls is not None:
            method = self.method(loader.cls, "__iter__")
            if method is not None:
                inner = self.element(self.returned(method))
                if not isinstance(inner, Unknown):
                    return inner
        # a loader that Accelerate or Fabric prepared moves its batches itself
        return Batch("device") if loader.name.startswith(("accelerator:", "fabric:")) else Batch()

    def _iterated(self, one: Object, cls: Class) -> Value:
        """What iterating an object of the project gives: by `__iter__`, or `__next__` where that returns the object itself."""
        key = ("iterated", id(cls))
        return self.solver.solve(key, lambda: self._iterated_once(one, cls), UNKNOWN, cls.module.memo)  # type: ignore[no-any-return]

    def _iterated_once(self, one: Object, cls: Class) -> Value:
        method = self.method(cls, "__iter__")
        if method is not None:
            held = self.returned(method)
            if isinstance(held, Object) and held.cls is cls:
                following = self.method(cls, "__next__") or self.method(cls, "next")
                return self.returned(following) if following is not None else UNKNOWN
            return self.element(held)
        indexed = self.method(cls, "__getitem__")
        return self.returned(indexed) if indexed is not None and one.role == "object" else UNKNOWN

    def entered(self, value: Value) -> Value:
        """What `with value as x` binds."""
        for one in each(value):
            if isinstance(one, Object) and one.cls is not None:
                method = self.method(one.cls, "__enter__")
                if method is not None:
                    return self.returned(method)
            if isinstance(one, Items) and one.kind == "generator":
                return one.element  # a @contextmanager function
        return value

    # ----------------------------------------------------------------------------------- functions and classes

    def parameter(self, function: Function, parameter: Parameter) -> Value:
        key = ("parameter", id(parameter))
        return self.solver.solve(key, lambda: self._parameter(function, parameter), UNKNOWN, function.module.memo)  # type: ignore[no-any-return]

    def _parameter(self, function: Function, parameter: Parameter) -> Value:
        parameters = function.parameters
        first = bool(parameters) and parameters[0] is parameter
        if first and function.cls is not None and not self.is_static(function):
            if self.is_classmethod(function):
                return Type(function.cls)
            return self.instance(function.cls)
        if function.name == "forward" and parameter.kind == "any":
            # what a layer is given is a tensor when it is used like one; to follow it through all layers would say no more
            used = conventions.parameter(self, function, parameter)
            if isinstance(used, Tensor) and used.device is None and self._is_left_on_host(function, parameter):
                return used._replace(device="host")
            if not isinstance(used, Unknown):
                return used
        given: list[Value] = []
        if parameter.kind == "*":
            first_extra = function.parameters.index(parameter)
            for site in self.callgraph.callers(function):
                if site.arguments is None:
                    extra = site.call.args[max(first_extra - site.shift, 0) :]
                    given.extend(self.value(a) for a in extra if not isinstance(a, Starred))
            return Items("tuple", None, join(given) if given else UNKNOWN)
        if parameter.kind == "**":
            named = {p.name for p in function.parameters}
            for site in self.callgraph.callers(function):
                given.append(self._keywords(site.call, named))
            return join(given) if given else Table((), UNKNOWN)
        library = self.project.neighbours.is_library(function.module.path)
        for site in self.callgraph.callers(function) if not library else ():
            argument = site.argument(function, parameter)
            if argument is None:
                continue
            given.append(self.value(argument) if isinstance(argument, Expr) else argument)
        if parameter.default is not None:
            default = self.value(parameter.default)
            # a default that callers can override, as a command line option
            if isinstance(default, Table) and any(s.call.unpacks for s in self.callgraph.callers(function)):
                default = default._replace(complete=False)  # `train(**options)` may give another dict
            given.append(Const(default.value, True) if isinstance(default, Const) else default)
        result = join(given) if given else UNKNOWN
        if isinstance(result, Unknown) or (isinstance(result, Const) and result.value is None):
            annotated = self.annotated(parameter.annotation)
            if not isinstance(annotated, Unknown):
                return annotated
            guess = conventions.parameter(self, function, parameter)
            if not isinstance(guess, Unknown):
                return guess
        return result

    def _is_left_on_host(self, function: Function, parameter: Parameter) -> bool:
        """Lengths for packing: no layer is given them, every call hands them over where the loader has put them, and
        no wrapper (DDP, DataParallel) moves them."""
        if conventions.is_fed_to_layer(self, function, parameter.name):
            return False
        sites = self.callgraph.callers(function)
        for site in sites:
            argument = site.argument(function, parameter)
            cls = site.call.context.cls
            if not isinstance(argument, Expr) or (cls is not None and self.role(cls) in ("module", "loss")):
                return False
            if any(isinstance(v, Object) and v.inner for v in each(self.value(site.call.callee))):
                return False
            if any(not isinstance(v, (Batch, Tensor)) or v.device != "host" for v in each(self.value(argument))):
                return False
        return bool(sites)

    def _keywords(self, call: Call, named: set[str]) -> Table:
        """What a call passes into `**values`."""
        items = [(k.name, self.value(k.value)) for k in call.keywords if k.name is not None and k.name not in named]
        return Table(tuple(items), UNKNOWN, all(k.name is not None for k in call.keywords))

    def annotated(self, annotation: Expr | None) -> Value:
        if annotation is None:
            return UNKNOWN
        if isinstance(annotation, Constant) and isinstance(annotation.value, str):
            return conventions.annotation_text(annotation.value)
        if isinstance(annotation, Operator) and annotation.op == "|":
            return join([self.annotated(o) for o in annotation.operands])
        if isinstance(annotation, Subscript):
            base = dotted_name(annotation.value) or ""
            if base.rpartition(".")[2] == "Optional":
                return self.annotated(annotation.index)
            if base.rpartition(".")[2] in ("List", "list", "Sequence", "Iterable", "Tuple", "tuple"):
                index = (
                    annotation.index.elements[0]
                    if isinstance(annotation.index, Sequence) and annotation.index.elements
                    else annotation.index
                )
                return Items("list", None, self.annotated(index))
            return UNKNOWN
        held = self.value(annotation)
        if isinstance(held, Type):
            return self.instance(held.cls)
        if isinstance(held, External):
            return external.annotated(held.name)
        return UNKNOWN

    def is_static(self, function: Function) -> bool:
        return any(dotted_name(d) == "staticmethod" for d in function.decorators)

    def is_classmethod(self, function: Function) -> bool:
        return any(dotted_name(d) == "classmethod" for d in function.decorators)

    def is_property(self, function: Function) -> bool:
        return any(
            (dotted_name(d) or "").rpartition(".")[2] in ("property", "cached_property") for d in function.decorators
        )

    def instance(self, cls: Class, call: Call | None = None, inner: tuple[Value, ...] = ()) -> Object:
        return Object(self.role(cls), cls.qualname, cls, call, inner)

    def bases(self, cls: Class) -> tuple[Class | str, ...]:
        """The class and all it inherits from, nearest first: project classes, and full names of others."""
        memo, question = cls.module.memo, ("bases", id(cls))
        found: tuple[Class | str, ...] | None = memo.get(question)
        if found is None:
            memo[question] = (cls,)
            order: list[Class | str] = [cls]
            seen: set[int | str] = {id(cls)}  # compared as what they are: == of two classes reads all their members
            for base in cls.bases:
                held = self.value(base)
                if isinstance(held, Type):
                    for above in self.bases(held.cls):
                        key = id(above) if isinstance(above, Class) else above
                        if key not in seen:
                            seen.add(key)
                            order.append(above)
                elif isinstance(held, External):
                    order.append(held.name)
                else:
                    order.append(dotted_name(base) or "?")
            found = memo[question] = tuple(order)
        return found

    def role(self, cls: Class) -> str:
        for base in self.bases(cls):
            if isinstance(base, str):
                role = external.role_of_class(base)
                if role is not None:
                    return role
        return "object"

    def method(self, cls: Class, name: str) -> Function | None:
        for base in self.bases(cls):
            if isinstance(base, Class) and name in base.methods:
                return base.methods[name]
        return None

    def returned(self, function: Function) -> Value:
        """What a call of the function gives: all its returns; an iterator of its yields for a generator."""
        memo = function.module.memo
        return self.solver.solve(("returned", id(function)), lambda: self._returned(function), UNKNOWN, memo)  # type: ignore[no-any-return]

    def _returned(self, function: Function) -> Value:
        if not function.yields:
            values = [self.value(r.value) if r.value is not None else NONE for r in function.returns]
            return join(values) if values else NONE
        elements = []
        for y in function.yields:
            if y.value is not None:
                held = self.value(y.value)
                elements.append(self.element(held) if y.delegates else held)
        return Items("generator", None, join(elements) if elements else UNKNOWN)

    # ---------------------------------------------------------------------------------------------- attributes

    def _attribute(self, expr: Attribute) -> Value:
        owner = self.value(expr.value)
        results = [self.attribute(one, expr.attr, expr) for one in each(owner)]
        result = join(results)
        if isinstance(result, Unknown):
            stored = self._stored(expr)
            if not isinstance(stored, Unknown):
                return stored
            return conventions.by_use(self, expr.attr, expr)
        return result

    def _stored(self, expr: Attribute) -> Value:
        """`state.loss = ...` in the same file, for objects of unknown class."""
        dotted = dotted_name(expr)
        if dotted is None:
            return UNKNOWN
        found = [b for b in expr.context.module.stores.get(dotted, ()) if b.context.function is expr.context.function]
        return join([self.bound(b) for b in found]) if found else UNKNOWN

    def attribute(self, owner: Value, name: str, expr: Attribute | None = None) -> Value:
        if isinstance(owner, External):
            if owner.name.startswith("="):
                module = self.project.module(owner.name[1:])
                target = self.project.member(module, [name]) if module is not None else None
                if target is None and module is not None and name in module.names:
                    return self.module_variable(module, name)
                return self.of_target(target) if target is not None else UNKNOWN
            return self._external_attribute(owner.name, name, expr)
        if isinstance(owner, Tensor):
            return external.tensor_attribute(owner, name)
        if isinstance(owner, Batch):
            return external.batch_attribute(owner, name)
        if isinstance(owner, Array):
            return (
                Items("tuple", None, Number("int"))
                if name == "shape"
                else Method(owner, name)
                if name in external.ARRAY_METHODS
                else Array()
                if name in ("T", "flat", "real", "imag")
                else Number("int")
                if name in ("ndim", "size")
                else UNKNOWN
            )
        if isinstance(owner, Object):
            return self._object_attribute(owner, name, expr)
        if isinstance(owner, Type):
            return self._class_attribute(
                owner.cls, name, Object(self.role(owner.cls), owner.cls.qualname, owner.cls), static=True
            )
        if isinstance(owner, (Items, Table, Text, Const, Number)):
            if isinstance(owner, Table) and not hasattr(dict, name):
                return owner.get(name)
            return Method(owner, name)
        if isinstance(owner, Routine):
            return UNKNOWN
        return UNKNOWN

    def _external_attribute(self, owner: str, name: str, expr: Attribute | None) -> Value:
        full = f"{owner}.{name}"
        if expr is not None:
            # `import torch.nn` and `import a.b` of the project: the file behind the longer name
            target = (
                self.project.target(expr.context.module.path, full)
                if owner.partition(".")[0] not in external.FOREIGN_ROOTS
                else None
            )
            if target is not None:
                return self.of_target(target)
        return external.attribute(full)

    def _object_attribute(self, owner: Object, name: str, expr: Attribute | None) -> Value:
        if owner.role == "options":
            found = options.option(self, owner, name)
            return found
        if owner.cls is not None:
            found = self._class_attribute(owner.cls, name, owner)
            if not isinstance(found, Unknown):
                return found
            if any(name in base.attributes for base in self.bases(owner.cls) if isinstance(base, Class)):
                return UNKNOWN  # the class assigns it, but from something that cannot be followed
            if name == "hparams":
                return options.saved_hyperparameters(self, owner.cls)
        return external.object_attribute(self, owner, name)

    def _class_attribute(self, cls: Class, name: str, owner: Object, static: bool = False) -> Value:
        method = self.method(cls, name)
        if method is not None:
            if self.is_property(method) and not static:
                return self.returned(method)
            return Routine(method, None if static or self.is_static(method) else owner)
        key = ("attribute", id(cls), name)
        return self.solver.solve(key, lambda: self._assigned_attribute(cls, name), UNKNOWN, cls.module.memo)  # type: ignore[no-any-return]

    def _assigned_attribute(self, cls: Class, name: str) -> Value:
        bindings = [b for base in self.bases(cls) if isinstance(base, Class) for b in base.attributes.get(name, ())]
        values = [self.bound(b) for b in bindings if b.how != "define"]
        if not bindings and "torch.nn.Module" in self.bases(cls):
            values = list(self._registered(cls, name))
        values.extend(Type(b.source) for b in bindings if b.how == "define" and isinstance(b.source, Class))
        return self._soften(join(values), bindings) if values else UNKNOWN

    def _soften(self, value: Value, bindings: list[Binding]) -> Value:
        """A class-level constant is a default that instances and subclasses may override."""
        if isinstance(value, Const) and all(b.context.kind == "class" for b in bindings):
            return Const(value.value, True)
        if isinstance(value, OneOf) and any(b.how == "augment" for b in bindings):
            kept = tuple(v for v in value.values if not (isinstance(v, Const) and isinstance(v.value, (int, float))))
            if any(isinstance(v, Tensor) for v in kept):
                return join(list(kept))
        return value

    def _registered(self, cls: Class, name: str) -> Iterator[Value]:
        """`self.register_buffer("name", tensor)` and `register_parameter`, `add_module`."""
        for base in self.bases(cls):
            if not isinstance(base, Class):
                continue
            for kind in ("register_buffer", "register_parameter", "add_module", "register_module"):
                for call in base.module.calls_by_attr.get(kind, ()):
                    function, first = call.context.function, call.args[0] if len(call.args) > 1 else None
                    if function is None or function.cls is not base:
                        continue
                    if isinstance(first, Constant) and first.value == name:
                        if kind == "register_buffer":
                            yield Tensor(None, False, "buffer")
                        elif kind == "register_parameter":
                            yield Tensor(None, True, "parameter")
                        else:
                            yield self.value(call.args[1])

    # --------------------------------------------------------------------------------------------------- calls

    def _call(self, expr: Call) -> Value:
        results = [self.called(one, expr) for one in each(self.value(expr.callee))]
        result = join(results)
        if isinstance(result, Unknown):
            return conventions.result_of_call(self, expr)
        return result

    def called(self, callee: Value, call: Call) -> Value:
        """What calling `callee` at `call` gives."""
        if isinstance(callee, External):
            if callee.name == "super" and call.context.cls is not None:
                return self._super(call)
            if callee.name == "functools.partial" and call.args:
                return self._partial(call)
            return external.call(self, callee.name, call)
        if isinstance(callee, Routine):
            return self._routine(callee, call)
        if isinstance(callee, Type):
            return self._construct(callee.cls, call)
        if isinstance(callee, Object):
            return self._object_call(callee, call)
        if isinstance(callee, Method):
            return external.method(self, callee.owner, callee.name, call)
        return UNKNOWN

    def _super(self, call: Call) -> Value:
        """`super()`: the first base that the project knows, else the outside base."""
        cls = call.context.cls
        assert cls is not None
        bases = self.bases(cls)
        for base in bases[1:]:
            if isinstance(base, Class):
                return Object(self.role(cls), base.qualname, base)
        return Object(self.role(cls), bases[1] if len(bases) > 1 and isinstance(bases[1], str) else "")

    def _partial(self, call: Call) -> Value:
        held = self.value(call.args[0])
        if isinstance(held, Routine):
            return held._replace(given=held.given + len(call.args) - 1)
        if isinstance(held, External):
            return External(held.name)
        return held

    def _routine(self, callee: Routine, call: Call) -> Value:
        function = callee.function
        result = self.returned(function)
        if external.MOVERS.search(function.name) and call.args:
            # `to_device(batch)`: gives back what it was given, on the device
            moved = self.value(call.args[0])
            if isinstance(moved, (Batch, Tensor)) and isinstance(result, (Unknown, Batch, Items, Table, OneOf)):
                return moved._replace(device="device")
        if isinstance(result, (OneOf, Unknown)):
            narrowed = self._echo(function, callee, call)
            if narrowed is not None:
                return narrowed
        return result

    def _echo(self, function: Function, callee: Routine, call: Call) -> Value | None:
        """A function that returns one of its own parameters gives back this call's argument."""
        returns = [r.value for r in function.returns]
        if len(returns) == 1 and isinstance(returns[0], Name):
            for position, parameter in enumerate(function.parameters):
                if parameter.name == returns[0].id:
                    bindings = function.locals.get(parameter.name, [])
                    if len(bindings) == 1:
                        shift = 1 if callee.owner is not None else 0
                        argument = call.argument(position - shift + callee.given, parameter.name)
                        return self.value(argument) if argument is not None else None
        return None

    def _construct(self, cls: Class, call: Call) -> Value:
        role = self.role(cls)
        inner: tuple[Value, ...] = ()
        if (
            role == "object"
            and self.method(cls, "__iter__") is None
            and "__next__" not in cls.methods
            and len(call.args) >= 1
        ):
            pass
        if role in ("loader", "iterator") and call.args:
            inner = (self.value(call.args[0]),)
        if self._is_enum_or_tuple(cls):
            return Object("object", cls.qualname, cls, call)
        return Object(role, cls.qualname, cls, call, inner)

    def _is_enum_or_tuple(self, cls: Class) -> bool:
        return any(b in ("typing.NamedTuple", "enum.Enum") for b in self.bases(cls))

    def _object_call(self, callee: Object, call: Call) -> Value:
        if callee.role == "engine" or (callee.role in ("module", "loss") and callee.inner):
            for inner in callee.inner:
                result = self.called(inner, call)
                if not isinstance(result, Unknown):
                    return self._output(result, call)
        if callee.cls is not None:
            for name in ("forward", "__call__") if callee.role in ("module", "loss") else ("__call__", "forward"):
                method = self.method(callee.cls, name)
                if method is not None:
                    result = self.returned(method)
                    return self._output(result, call) if name == "forward" else result
        if callee.role in ("module", "loss"):
            return external.module_output(self, callee, call)
        if callee.role == "device":
            return UNKNOWN
        return UNKNOWN

    def _output(self, result: Value, call: Call) -> Value:
        """A module's result lies where its inputs lie."""
        if isinstance(result, Tensor):
            given = external.device_of_arguments(self, call)
            device = "device" if "device" in (given, result.device) else given
            return result._replace(device=device, graph=True if result.graph is None else result.graph)
        if isinstance(result, Unknown):
            return Tensor(external.device_of_arguments(self, call), True, "module")
        if isinstance(result, Items) and result.elements is not None:
            return result._replace(
                elements=tuple(self._output(v, call) if isinstance(v, Tensor) else v for v in result.elements)
            )
        return result

    # ----------------------------------------------------------------------------------------- other operators

    def _subscript(self, expr: Subscript) -> Value:
        held = self.value(expr.value)
        index: int | str | None = None
        if isinstance(expr.index, Constant) and isinstance(expr.index.value, (int, str)):
            index = expr.index.value
        elif isinstance(expr.index, Operator) and expr.index.op == "-" and isinstance(expr.index.operands[0], Constant):
            number = expr.index.operands[0].value
            index = -number if isinstance(number, int) else None
        elif isinstance(expr.index, Slice):
            if isinstance(held, Items):
                return held._replace(elements=None, element=self.element(held))
            return held
        else:
            known_index = self.constant(expr.index) if not isinstance(held, (Tensor, Batch, Array)) else ...
            if isinstance(known_index, (int, str)):
                index = known_index
        if isinstance(held, Unknown):
            stored = self._item_stored(expr, index)
            return stored
        if isinstance(held, External) and held.name.endswith(".__dict__"):
            package = held.name.removesuffix(".__dict__")
            return external.attribute(f"{package}.{index}") if isinstance(index, str) else external.member(package)
        result = self.item(held, index)
        if isinstance(held, Table) or isinstance(result, Unknown):
            stored = self._item_stored(expr, index)
            if not isinstance(stored, Unknown):
                return join([result, stored])
        return result

    def _item_stored(self, expr: Subscript, index: int | str | None) -> Value:
        """`stats["loss"] = loss` earlier in the same function."""
        dotted = dotted_name(expr.value)
        if dotted is None:
            return UNKNOWN
        found: list[Value] = []
        for binding in expr.context.module.stores.get(dotted + "[]", ()):
            if binding.context.function is not expr.context.function:
                continue
            target = binding.source
            key = target.index.value if isinstance(target.index, Constant) else None
            if key == index or key is None or index is None:
                found.append(self.bound(binding))
        return join(found) if found else UNKNOWN

    def _operator(self, expr: Operator) -> Value:
        if expr.op == "not":
            return Number("bool")
        values = [self.value(o) for o in expr.operands]
        if expr.op in ("and", "or"):
            if expr.op == "or" and isinstance(values[0], Const) and not values[0].value:
                return join(values[1:])
            return join(values)
        return external.arithmetic(expr.op, values)

    def _compare(self, expr: Compare) -> Value:
        if any(op in ("is", "is not", "in", "not in") for op in expr.ops):
            return Number("bool")
        values = [self.value(o) for o in expr.operands]
        tensors = [v for v in values if isinstance(v, Tensor)]
        if tensors:
            merged = external.elementwise(tensors)
            return merged._replace(graph=False)
        if any(isinstance(v, Array) for v in values):
            return Array()
        if any(isinstance(v, (Unknown, OneOf, Batch)) for v in values):
            return UNKNOWN
        return Number("bool")

    def _conditional(self, expr: Conditional) -> Value:
        test = constant(self.value(expr.test)) if not isinstance(expr.test, (Compare, Operator)) else ...
        settable = isinstance(self.value(expr.test), Const) and self.value(expr.test).settable  # type: ignore[union-attr]
        if isinstance(test, bool) and not settable:
            return self.value(expr.body if test else expr.orelse)
        return join([self.value(expr.body), self.value(expr.orelse)])

    def _sequence(self, expr: Sequence) -> Value:
        elements: list[Value] = []
        for element in expr.elements:
            if isinstance(element, Starred):
                held = self.value(element.value)
                if isinstance(held, Items) and held.elements is not None:
                    elements.extend(held.elements)
                    continue
                inner = self.element(held)
                return Items(expr.kind, None, join([*elements, inner]))
            elements.append(self.value(element))
        if len(elements) > 64:
            return Items(expr.kind, None, join(elements))
        if elements:
            return Items(expr.kind, tuple(elements), UNKNOWN)
        from trainlint.semantic.growth import appended

        item, settled = appended(self, expr)  # `losses = []` and then `losses.append(loss)`
        return Items(expr.kind, (), item, settled)

    def _mapping(self, expr: Mapping) -> Value:
        items: list[tuple[str, Value]] = []
        rest: Value = UNKNOWN
        complete = True
        for key, value in zip(expr.keys, expr.values, strict=False):
            if key is None:
                held = self.value(value)
                if isinstance(held, Table):
                    items.extend(held.items)
                    complete = complete and held.complete
                    rest = held.rest
                else:
                    complete = False
            elif isinstance(key, Constant) and isinstance(key.value, str):
                items.append((key.value, self.value(value)))
            else:
                complete = False
                rest = join([rest, self.value(value)])
        return Table(tuple(dict(items).items()), rest, complete)  # of equal keys the last one counts

    def _comprehension(self, expr: Comprehension) -> Value:
        element = self.value(expr.element)
        if expr.kind == "dict":
            return Table((), element)
        return Items(expr.kind, None, element)

    def _fstring(self, expr: FString) -> Value:
        return Text()

    def _lambda(self, expr: Lambda) -> Value:
        return Routine(expr.function)

    def _inside(self, expr: Starred | Await | Walrus) -> Value:
        return self.value(expr.value)

    def _yield(self, expr: Yield) -> Value:
        return UNKNOWN

    # ----------------------------------------------------------------------------------------------- questions

    def name_of(self, expr: Expr) -> str | None:
        """The full name of what an expression refers to, when it lies outside the project."""
        held = self.value(expr)
        return held.name if isinstance(held, External) else None


_BUILTINS = frozenset(dir(builtins))

_EVALUATE: dict[type, Callable[..., Value]] = {
    Name: Inference._name,
    Attribute: Inference._attribute,
    Call: Inference._call,
    Subscript: Inference._subscript,
    Operator: Inference._operator,
    Compare: Inference._compare,
    Conditional: Inference._conditional,
    Sequence: Inference._sequence,
    Mapping: Inference._mapping,
    Comprehension: Inference._comprehension,
    FString: Inference._fstring,
    Lambda: Inference._lambda,
    Starred: Inference._inside,
    Await: Inference._inside,
    Walrus: Inference._inside,
    Yield: Inference._yield,
}


def _grows(binding: Binding) -> bool:
    """`x = x + y`"""
    value = binding.value
    return (
        binding.how == "assign"
        and isinstance(value, Operator)
        and any(isinstance(o, Name) and o.id == binding.name for o in value.operands)
    )

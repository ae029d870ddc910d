"""The statements of one module, read into its namespace."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import TYPE_CHECKING

from trainlint.torch_api.extraction.namespace import Binding, Kind, Namespace, Reference
from trainlint.torch_api.extraction.syntax import (
    class_members,
    is_globals,
    is_overload,
    is_own_entry,
    says_type_checking,
    signature_of_doc,
    writes_own_names,
)

if TYPE_CHECKING:
    from trainlint.torch_api.extraction.library import Library


class Reader:
    """Reads the statements of one module into its namespace."""

    def __init__(self, library: Library, space: Namespace) -> None:
        self.library = library
        self.space = space
        module = space.module
        self.package = module if library.is_package(module) else module.rpartition(".")[0]

    def read_module(self, tree: ast.Module) -> None:
        self.read(tree.body)
        if any(writes_own_names(node) for node in ast.walk(tree)):
            self.space.open = True

    def read(self, body: Iterable[ast.stmt]) -> None:
        for statement in body:
            method = getattr(self, f"_{type(statement).__name__.lower()}", None)
            if method is not None:
                method(statement)

    def _bind(self, name: str, kind: Kind, node: ast.AST | None = None) -> None:
        self.space.names[name] = Binding(kind, f"{self.space.module}.{name}", node)

    # -- statements, by the name of their class

    def _functiondef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if node.name == "__getattr__":
            self.space.open = True
        earlier = self.space.names.get(node.name)
        overloaded = any(is_overload(decorator) for decorator in node.decorator_list)
        if overloaded and isinstance(earlier, Binding) and isinstance(earlier.node, ast.Module):
            earlier.node.body.append(node)
        elif overloaded:
            self._bind(node.name, "function", ast.Module(body=[node], type_ignores=[]))
        else:
            self._bind(node.name, "function", node)
        self._globals_of(node)

    _asyncfunctiondef = _functiondef

    def _globals_of(self, function: ast.AST) -> None:
        declared = {name for node in ast.walk(function) if isinstance(node, ast.Global) for name in node.names}
        for name in declared:
            if name not in self.space.names:
                self._bind(name, "value")

    def _classdef(self, node: ast.ClassDef) -> None:
        self._bind(node.name, "class", node)

    def _import(self, node: ast.Import) -> None:
        for alias in node.names:
            root = alias.name.partition(".")[0]
            if root not in self.library.modules:
                self._external(alias.asname or root)
            elif alias.asname:
                self.space.names[alias.asname] = Reference(alias.name, "")
            else:
                self.space.names[root] = Reference(root, "")

    def _external(self, name: str) -> None:
        self.library.externals.add(name)
        self.space.names[name] = Binding("external", name)

    def _importfrom(self, node: ast.ImportFrom) -> None:
        target = node.module or ""
        if node.level:
            base = self.package.split(".")
            base = base[: len(base) - (node.level - 1)]
            target = ".".join([*base, target] if target else base)
        if target.startswith("pytorch."):
            return  # Meta's own source tree, tried before the public one: nobody else has it
        if target.partition(".")[0] not in self.library.modules:
            for alias in node.names:
                if alias.name == "*":
                    self.space.open = True
                else:
                    self._external(alias.asname or alias.name)
            return
        for alias in node.names:
            if alias.name == "*":
                if target in self.library.modules:
                    for name in self.library.starred(target):
                        if self.library.is_stub(target) and target == "torch._C":
                            continue  # `add_runtime_names` knows which of them are there
                        self.space.names[name] = Reference(target, name)
                    self.space.open |= self.library.namespace(target).open or self.library.is_stub(target)
            elif target in self.library.modules:
                self.space.names[alias.asname or alias.name] = Reference(target, alias.name)
            else:
                self._bind(alias.asname or alias.name, "value")

    def _assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self._assign_to(target, node.value)

    def _annassign(self, node: ast.AnnAssign) -> None:
        # `name: type` without a value binds only in a stub, whose module has no run-time text to say more.
        if node.value is not None:
            self._assign_to(node.target, node.value)
        elif isinstance(node.target, ast.Name):
            self.space.names.setdefault(node.target.id, Binding("value", f"{self.space.module}.{node.target.id}"))

    def _assign_to(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, (ast.Tuple, ast.List)):
            values = value.elts if isinstance(value, (ast.Tuple, ast.List)) else []
            for position, element in enumerate(target.elts):
                self._assign_to(element, values[position] if len(values) == len(target.elts) else value)
        elif isinstance(target, ast.Starred):
            self._assign_to(target.value, value)
        elif isinstance(target, ast.Name):
            if target.id == "__all__":
                self._export(value, replace=True)
            else:
                self._name_for(target.id, value)
        elif isinstance(target, ast.Subscript):
            self._subscript_target(target, value)
        elif isinstance(target, ast.Attribute):
            self._attribute_target(target)

    def _name_for(self, name: str, value: ast.expr) -> None:
        if isinstance(value, (ast.Name, ast.Attribute)):
            alias = self._reference(value)
            if alias is not None and alias != Reference(self.space.module, name):
                self.space.names[name] = alias
                return
        kind: Kind = "value"
        if isinstance(value, ast.Lambda):
            kind = "function"
        if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "_add_docstr":
            # `exp = _add_docstr(_special.special_exp, "exp(input) ...")`: a function of the extension module.
            kind = "function"
            self._bind(name, kind, signature_of_doc(name, value))
            return
        self._bind(name, kind, value if kind == "function" else None)

    def _reference(self, value: ast.expr) -> Reference | None:
        """`value` as a name of this or another module, resolved when somebody asks."""
        if isinstance(value, ast.Name):
            bound = self.space.names.get(value.id)
            if isinstance(bound, Reference):
                return bound
            if isinstance(bound, Binding) and bound.kind in ("class", "function", "module"):
                return Reference(self.space.module, value.id)
            return None
        if isinstance(value, ast.Attribute):
            owner = self.library.follow(self.space.module, value.value)
            if owner is not None and owner[1].kind == "module" and owner[1].origin in self.library.modules:
                return Reference(owner[1].origin, value.attr)
        return None

    def _subscript_target(self, target: ast.Subscript, value: ast.expr) -> None:
        if is_globals(target.value):
            if isinstance(target.slice, ast.Constant) and isinstance(target.slice.value, str):
                self._name_for(target.slice.value, value)
        elif is_own_entry(target):
            # `sys.modules[__name__] = CudnnModule(...)`: the module is replaced by an object of a class defined here.
            if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
                self._replaced_by(value.func.id)

    def _replaced_by(self, class_name: str) -> None:
        bound = self.space.names.get(class_name)
        if not isinstance(bound, Binding) or not isinstance(bound.node, ast.ClassDef):
            self.space.open = True
            return
        for name in class_members(bound.node):
            if name not in self.space.names:
                self._bind(name, "value")
        # These two forward what they lack to the original module, which is under `m`; others do as they like.
        forwards = any(getattr(base, "id", "") in ("PropModule", "GenericModule") for base in bound.node.bases)
        if forwards and "__getattr__" not in class_members(bound.node):
            self._bind("m", "module")
        else:
            self.space.open = True

    def _attribute_target(self, target: ast.Attribute) -> None:
        # `sys.modules[__name__].__class__ = _Deterministic` and `torch.distributed.ReduceOp = ...`
        if target.attr == "__class__":
            self.space.open = True
        owner = self.library.follow(self.space.module, target.value)
        if owner is not None and owner[1].kind == "module" and owner[1].origin in self.library.modules:
            other = self.library.namespace(owner[1].origin)
            other.names.setdefault(target.attr, Binding("value", f"{owner[1].origin}.{target.attr}"))

    def _augassign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name) and node.target.id == "__all__":
            self._export(node.value, replace=False)

    def _expr(self, node: ast.Expr) -> None:
        call = node.value
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            return
        owner = call.func.value
        if isinstance(owner, ast.Name) and owner.id == "__all__" and call.args:
            value = call.args[0]
            if call.func.attr == "append":
                value = ast.List(elts=[value], ctx=ast.Load())
            self._export(value, replace=False)
        elif call.func.attr == "update" and is_globals(owner):
            self.space.open = True

    def _export(self, value: ast.expr, *, replace: bool) -> None:
        names = self._strings(value)
        space = self.space
        if names is None:
            space.exported_partly = True
            space.exported = space.exported or []
        elif replace:
            space.exported = names
        else:
            space.exported = [*(space.exported or []), *names]

    def _strings(self, value: ast.expr) -> list[str] | None:
        if isinstance(value, (ast.List, ast.Tuple)):
            names: list[str] = []
            for element in value.elts:
                if isinstance(element, ast.Starred):
                    inner = self._strings(element.value)
                    if inner is None:
                        return None
                    names += inner
                elif isinstance(element, ast.Constant) and isinstance(element.value, str):
                    names.append(element.value)
                else:
                    return None
            return names
        if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
            left, right = self._strings(value.left), self._strings(value.right)
            return left + right if left is not None and right is not None else None
        if isinstance(value, ast.Attribute) and value.attr == "__all__":
            owner = self.library.follow(self.space.module, value.value)
            if owner is not None and owner[1].kind == "module" and owner[1].origin in self.library.modules:
                return list(self.library.starred(owner[1].origin))
        if isinstance(value, ast.Name) and value.id == "__all__":
            return list(self.space.exported or [])
        return None

    def _if(self, node: ast.If) -> None:
        if says_type_checking(node.test):
            self.read(node.orelse)
            return
        self.read(node.body)
        self.read(node.orelse)

    def _try(self, node: ast.Try) -> None:
        # The ordinary path last: what an except branch binds as a stand-in must not hide the real thing.
        for handler in node.handlers:
            self.read(handler.body)
        self.read(node.body)
        self.read(node.orelse)
        self.read(node.finalbody)

    _trystar = _try

    def _with(self, node: ast.With) -> None:
        for item in node.items:
            if isinstance(item.optional_vars, ast.Name):
                self._bind(item.optional_vars.id, "value")
        self.read(node.body)

    def _for(self, node: ast.For) -> None:
        if self._unrolled(node):
            return
        for target in ast.walk(node.target):
            if isinstance(target, ast.Name):
                self._bind(target.id, "value")
        self.read(node.body)
        self.read(node.orelse)

    def _unrolled(self, node: ast.For) -> bool:
        """`for name in ("a", "b"): globals()[name] = ...` over literals binds what it lists."""
        names = self._strings(node.iter)
        if names is None or not isinstance(node.target, ast.Name):
            return False
        self._bind(node.target.id, "value")
        for statement in ast.walk(ast.Module(body=node.body, type_ignores=[])):
            if isinstance(statement, ast.Assign):
                for target in statement.targets:
                    if isinstance(target, ast.Subscript) and is_globals(target.value):
                        for name in names:
                            self._bind(name, "function")
        return True

    def _while(self, node: ast.While) -> None:
        self.read(node.body)

    def _delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            for name in ast.walk(target):
                if isinstance(name, ast.Name):
                    self.space.names.pop(name.id, None)

    def _typealias(self, node: ast.AST) -> None:
        name = getattr(node, "name", None)
        if isinstance(name, ast.Name):
            self._bind(name.id, "value")

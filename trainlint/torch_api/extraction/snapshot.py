"""What one release offers: the names of its modules, the members of its classes, the parameters of its callables."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from trainlint.torch_api.extraction.library import Library
from trainlint.torch_api.extraction.namespace import Binding, Kind
from trainlint.torch_api.extraction.syntax import class_members

# Base classes that add no public member.
_PLAIN_BASES = frozenset({"object", "ABC", "Generic", "Protocol"})
# Internals, test helpers, and what training scripts do not touch. Of these the names of modules and what they define
# are kept, but no members, no parameters, and not what a plain module imports.
_NAMES_ONLY = (
    "functorch",
    "torch.ao",
    "torch.distributed.algorithms",
    "torch.distributed.benchmarks",
    "torch.distributed.elastic",
    "torch.distributed.flight_recorder",
    "torch.distributed.pipeline",
    "torch.distributed.rpc",
    "torch.distributions",
    "torch.fx",
    "torch.nn.intrinsic",
    "torch.nn.qat",
    "torch.nn.quantized",
    "torch.onnx",
    "torch.package",
    "torch.quantization",
    "torch.testing",
    "torch.utils.benchmark",
    "torch.utils.data.datapipes",
    "torch.utils.hipify",
    "torchvision.datasets",
    "torchvision.io",
    "torchvision.models.detection",
    "torchvision.models.optical_flow",
    "torchvision.models.quantization",
    "torchvision.models.video",
    "torchvision.prototype",
)
# The stub of Tensor's base class is complete but for these; those of other classes of the extension leave out much, and
# their members are not kept.
_TENSOR = ("torch._C.TensorBase", "torch._C._TensorBase")
_NOT_IN_TENSOR_STUB = ("cdouble", "cfloat", "const_data_ptr", "ipu", "is_xla", "mtia", "name", "volatile")


@dataclass(frozen=True)
class Name:
    kind: Kind
    origin: str


@dataclass
class Module:
    names: dict[str, Name] = field(default_factory=dict)
    open: bool = False
    package: bool = False


@dataclass
class Class:
    members: tuple[str, ...]
    bases: tuple[str, ...]
    open: bool


@dataclass
class Snapshot:
    modules: dict[str, Module] = field(default_factory=dict)
    classes: dict[str, Class] = field(default_factory=dict)
    parameters: dict[str, str] = field(default_factory=dict)  # "a b * c **": see `_parameters`
    externals: set[str] = field(default_factory=set)


def take(library: Library) -> Snapshot:
    """Read a release."""
    snapshot = Snapshot()
    for module in sorted(library.modules):
        if not is_private(module):
            snapshot.modules[module] = _module(library, module)
    wanted = sorted(
        {
            (name.kind, name.origin)
            for module in snapshot.modules.values()
            for leaf, name in module.names.items()
            if name.kind in ("class", "function") and not leaf.startswith("_")
        }
    )
    for kind, origin in wanted:
        if _names_only(origin):
            continue
        if kind == "class" and not origin.startswith("torchvision."):
            _class(library, origin, snapshot)
        binding = _binding(library, origin)
        parameters = _of_callable(library, binding) if binding is not None else None
        if parameters is not None:
            snapshot.parameters[origin] = parameters
    snapshot.externals = set(library.externals)
    return snapshot


def is_private(full_name: str) -> bool:
    return "._" in full_name


def _names_only(origin: str) -> bool:
    return origin.startswith(tuple(f"{prefix}." for prefix in _NAMES_ONLY)) or "._testing" in origin


def _module(library: Library, module: str) -> Module:
    own_only = _names_only(f"{module}.") and not library.is_package(module)
    names = {
        leaf: Name(binding.kind, binding.origin)
        for leaf, binding in library.names(module).items()
        if not leaf.startswith("_" if binding.kind == "external" else "__")
        if not own_only or binding.origin == f"{module}.{leaf}"
    }
    return Module(names, own_only or library.namespace(module).open, library.is_package(module))


def _binding(library: Library, origin: str) -> Binding | None:
    module, _, leaf = origin.rpartition(".")
    return library.find(module, leaf) if module in library.modules else None


def _class(library: Library, origin: str, snapshot: Snapshot) -> None:
    """Add the class `origin` and those it is made from."""
    if origin in snapshot.classes or _names_only(origin):
        return
    binding = _binding(library, origin)
    if binding is None or binding.kind != "class" or not isinstance(binding.node, ast.ClassDef):
        return
    node = binding.node
    module = origin.rpartition(".")[0]
    members = class_members(node)
    names = [name for name in members if not name.startswith("_")]
    stub = library.is_stub(module) and origin not in _TENSOR
    if origin in _TENSOR:
        names += [name for name in _NOT_IN_TENSOR_STUB if name not in names]
    bases, unknown = _bases(library, module, node)
    is_open = stub or unknown or _has_metaclass(node) or node.name in _classes_extended(library, module)
    snapshot.classes[origin] = Class(() if stub else tuple(sorted(names)), bases, is_open)
    for base in bases:
        _class(library, base, snapshot)


def _classes_extended(library: Library, module: str) -> set[str]:
    """The classes to which `setattr(SomeClass, name, ...)` adds members that are not spelled out."""
    return {
        node.args[0].id
        for node in ast.walk(library.tree(module))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "setattr"
        if node.args and isinstance(node.args[0], ast.Name)
    }


def _has_metaclass(node: ast.ClassDef) -> bool:
    """Whether a metaclass may add members; these add none."""
    names = [keyword.value.id if isinstance(keyword.value, ast.Name) else "" for keyword in node.keywords]
    return any(name not in ("ABCMeta", "_TensorMeta", "FunctionMeta") for name in names)


def _bases(library: Library, module: str, node: ast.ClassDef) -> tuple[tuple[str, ...], bool]:
    bases: list[str] = []
    unknown = False
    for expression in node.bases:
        base = expression.value if isinstance(expression, ast.Subscript) else expression
        found = library.follow(module, base)
        leaf = base.id if isinstance(base, ast.Name) else getattr(base, "attr", "")
        if found is not None and found[1].kind == "class" and isinstance(found[1].node, ast.ClassDef):
            bases.append(found[1].origin)
        elif leaf not in _PLAIN_BASES:
            unknown = True
    return tuple(bases), unknown


def _of_callable(library: Library, binding: Binding, depth: int = 0) -> str | None:
    """The parameters of a function, or of a class's `__init__` or `__new__`, wherever that is inherited from."""
    node = binding.node
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        return _parameters([node.args])
    if isinstance(node, ast.Module):  # the overloads of one function
        return _parameters([part.args for part in node.body if isinstance(part, ast.FunctionDef)])
    if not isinstance(node, ast.ClassDef) or depth > 8:
        return None
    for constructor in ("__init__", "__new__"):
        made = [part for part in node.body if isinstance(part, ast.FunctionDef) and part.name == constructor]
        if made:
            return _parameters([part.args for part in made], bound=True)
    if any("dataclass" in ast.dump(decorator) for decorator in node.decorator_list):
        return None  # its fields may be inherited, renamed or left out of `__init__`
    module = binding.origin.rpartition(".")[0]
    bases, unknown = _bases(library, module, node)
    if unknown or _has_metaclass(node) or not bases:
        return None
    base = _binding(library, bases[0])
    return _of_callable(library, base, depth + 1) if base is not None else None


def _parameters(signatures: list[ast.arguments], *, bound: bool = False) -> str | None:
    """Names in order; `*` stands before keyword-only ones, `*args` and `**` for open ends. Overloads are merged."""
    rows = []
    for arguments in signatures:
        positional = [argument.arg for argument in (*arguments.posonlyargs, *arguments.args)]
        if bound and positional:
            positional = positional[1:]
        rows.append((positional, arguments))
    if not rows:
        return None
    longest = max((positional for positional, _ in rows), key=len)
    # With overloads that disagree about the order, a position means nothing: all of it is keyword-only.
    agree = all(positional == longest[: len(positional)] for positional, _ in rows)
    ordered = list(longest) if agree else []
    keywords: list[str] = []
    for positional, arguments in rows:
        for name in (*positional, *(argument.arg for argument in arguments.kwonlyargs)):
            if name not in ordered and name not in keywords:
                keywords.append(name)
    words = [name for name in ordered if not name.startswith("__")]
    if any(arguments.vararg for _, arguments in rows):
        words.append("*args")
    elif keywords:
        words.append("*")
    words += keywords
    if any(arguments.kwarg for _, arguments in rows):
        words.append("**")
    return " ".join(words)

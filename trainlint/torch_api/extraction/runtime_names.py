"""Names that a module of torch gets while it is imported, and that its text alone does not show.

Found by comparing what is read from the wheel of torch 2.13 with the names of the imported package; see
`tests/torch_api/test_live.py`, which repeats that comparison.
"""

from __future__ import annotations

from typing import cast

from trainlint.torch_api.extraction.library import Library
from trainlint.torch_api.extraction.namespace import Binding, Kind, Namespace, Reference
from trainlint.torch_api.versions import Version

# `torch/csrc/tensor/python_tensor.cpp` makes these classes when `torch._C._initExtension` runs.
_LEGACY_TYPES = (
    "BFloat16Tensor BoolTensor ByteTensor CharTensor DoubleTensor FloatTensor HalfTensor IntTensor LongTensor "
    "ShortTensor"
).split()
_LEGACY_MODULES = ("torch", "torch.cuda", "torch.sparse", "torch.cuda.sparse")

# Names of the extension that its stub file leaves out and `torch` shows all the same. Whether a release has one is read
# from the strings in its library; short ones are not stored there as strings, so the first release stands here
# (pytorch/pytorch#117208 for uint1 to uint7, pytorch/pytorch#136301 for int1 to int7).
_NOT_IN_STUBS = {
    "class": (
        "ArgumentSpec Capsule Code CompleteArgumentSpec DeepCopyMemoTable ExcludeDispatchKeyGuard ExecutionPlan "
        "FatalError Gradient OperatorInfo PyObjectType ScriptClass ScriptClassFunction ScriptDictIterator "
        "ScriptDictKeyIterator ScriptListIterator ScriptObjectProperty StaticModule"
    ),
    "function": (
        "get_autocast_ipu_dtype get_autocast_xla_dtype is_autocast_ipu_enabled is_autocast_xla_enabled "
        "set_autocast_ipu_dtype set_autocast_ipu_enabled set_autocast_xla_dtype set_autocast_xla_enabled"
    ),
}
_SHORT_NAMES: dict[str, Version] = {
    "AVG": (1, 7),
    "SUM": (1, 7),
    "bit": (2, 1),
    **{f"uint{bits}": (2, 3) for bits in range(1, 8)},
    **{f"int{bits}": (2, 6) for bits in range(1, 8)},
}

# `PRIVATE_OPS` of `torch/__init__.py`: left out when the native functions are copied into `torch`.
_PRIVATE_OPERATIONS = frozenset({"unique_dim"})

# What the stub declares for its own use, or places in the wrong module.
_STUB_ONLY = frozenset(
    (
        "AliasInfo BatchNormBackend CONV_BN_FUSION CapturedTraceback ClassDef ConvBackend Decl Def FUSE_ADD_RELU "
        "HOIST_CONV_PACKED_PARAMS INSERT_FOLD_PREPACK_OPS IValue Ident JitType JitTypeT K Module P R REMOVE_DROPOUT "
        "ResolutionCallback S SourceRange Stack T T_co TensorBase TreeView VULKAN_AUTOMATIC_GPU_TRANSFER "
        "gather_traceback get_num_thread symbolize_tracebacks"
    ).split()
)


def add_runtime_names(library: Library, space: Namespace) -> None:
    """Bind in `space` what the import of its module adds."""
    if space.module in _LEGACY_MODULES:
        for name in _LEGACY_TYPES:
            if name == "BoolTensor" and "sparse" in space.module:
                continue
            space.names.setdefault(name, Binding("class", f"{space.module}.{name}"))
    if space.module == "torch":
        _add_native_functions(library, space)


def _add_native_functions(library: Library, space: Namespace) -> None:
    """`torch/__init__.py` copies the public names of `torch._C` and `torch._C._VariableFunctions` with loops."""
    for extension in ("torch._C", "torch._C._VariableFunctions"):
        if extension not in library.modules:
            continue
        functions = extension.endswith("_VariableFunctions")
        for name, bound in library.namespace(extension).names.items():
            if name.startswith("__") or name in _STUB_ONLY or isinstance(bound, Reference):
                continue
            hidden = name in _PRIVATE_OPERATIONS if functions else name.startswith("_")
            if not hidden:
                space.names.setdefault(name, Reference(extension, name))
    # Its `__getattr__` gives lazily imported submodules, which are known, and four names that were deprecated in 2.0.
    for name in ("has_cuda", "has_cudnn", "has_mkldnn", "has_mps"):
        space.names.setdefault(name, Binding("value", f"torch.{name}"))
    space.open = False
    for kind, names in _NOT_IN_STUBS.items():
        for name in names.split():
            if library.has_string(name):
                space.names.setdefault(name, Binding(cast(Kind, kind), f"torch._C.{name}"))
    for name, since in _SHORT_NAMES.items():
        if library.release >= since:
            space.names.setdefault(name, Binding("value", f"torch._C.{name}"))
    space.names.setdefault("cpp", Binding("module", "torch._C.cpp"))
    space.names.setdefault("Storage", Binding("class", "torch.Storage"))

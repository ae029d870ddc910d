"""Work in a dataset or collate function that is the same for every item."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainlint.semantic.contexts import is_self
from trainlint.semantic.facts import (
    Assign,
    Attribute,
    Call,
    Constant,
    Expr,
    Function,
    Keyword,
    Name,
    Operator,
    Record,
    Walrus,
)
from trainlint.semantic.values import External, Object, each

if TYPE_CHECKING:
    from trainlint.semantic.script import Script

_TABLES = frozenset(
    f"pandas.read_{kind}" for kind in "csv excel parquet json feather hdf pickle table sql stata".split()
) | frozenset({"json.load", "pickle.load", "scipy.io.loadmat", "numpy.loadtxt", "numpy.genfromtxt", "yaml.safe_load"})
_FILES = frozenset({"torch.load", "numpy.load", "joblib.load"})
_ARCHIVES = frozenset({"h5py.File", "tables.open_file", "zipfile.ZipFile", "tarfile.open", "lmdb.open"})
_PIPELINES = ("torchvision.transforms.Compose", "torchvision.transforms.v2.Compose", "albumentations.Compose")
_MODELS = ("torchvision.models.", "timm.", "segmentation_models_pytorch.")


def heavy(script: Script, call: Call, function: Function) -> str | None:
    """What a call does again for each item though it could be done once, None for anything else."""
    if is_conditional(call) or _is_kept(call):
        return None
    for value in each(script.value(call.callee)):
        if not isinstance(value, External):
            continue
        name = value.name
        if name in _TABLES or name in _FILES:
            if name.rpartition(".")[2] == "load" and name not in _FILES:
                return None  # reads from a handle: what was opened decides
            return "reads a whole file" if call.args and _is_fixed(script, call.args[0], function) else None
        if name in _ARCHIVES:
            return "opens the same archive" if call.args and _is_fixed(script, call.args[0], function) else None
        if name in _PIPELINES:
            return "builds a transform pipeline"
        if name.startswith(_MODELS) or name.endswith(".from_pretrained") or name == "torch.hub.load":
            built = script.value(call)
            if any(isinstance(v, Object) and v.role == "module" for v in each(built)):
                return "builds a model"
    return None


def is_conditional(call: Call) -> bool:
    """Under an `if`, or the second operand of `or`: `self.file or self.open()`."""
    if any(f.kind in ("branch", "except", "case") for f in call.context.local_frames()):
        return True
    stack: list[Record] = [call.statement]
    while stack:
        current = stack.pop()
        if (
            isinstance(current, Operator)
            and current.op in ("or", "and")
            and any(_holds(o, call) for o in current.operands[1:])
        ):
            return True
        for part in current.parts:
            child = getattr(current, part)
            stack.extend(c for c in (child if isinstance(child, tuple) else (child,)) if isinstance(c, (Expr, Keyword)))
    return False


def _holds(expr: Expr, wanted: Call) -> bool:
    stack: list[Record] = [expr]
    while stack:
        current = stack.pop()
        if current is wanted:
            return True
        for part in current.parts:
            child = getattr(current, part)
            stack.extend(c for c in (child if isinstance(child, tuple) else (child,)) if isinstance(c, (Expr, Keyword)))
    return False


def _is_kept(call: Call) -> bool:
    """`self.file = h5py.File(...)`: kept for the next items."""
    statement = call.statement
    return isinstance(statement, Assign) and any(
        isinstance(t, Attribute) and is_self(t.value, t.context) for t in statement.targets
    )


def _is_fixed(script: Script, path: Expr, function: Function) -> bool:
    """Whether a path is the same for every item: made of attributes of the dataset and constants."""
    stack: list[Record] = [path]
    seen: set[int] = set()
    while stack:
        current = stack.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        if isinstance(current, Constant):
            continue
        if isinstance(current, Name):
            bindings = function.locals.get(current.id)
            if bindings is None:
                if current.context.function is not None and current.context.function is not function:
                    return False
                continue
            for binding in bindings:
                if binding.how == "parameter" and is_self(current, current.context):
                    continue
                if binding.how not in ("assign", "define", "import") or binding.path:
                    return False
                if binding.value is not None:
                    stack.append(binding.value)
            continue
        if isinstance(current, Walrus):
            return False
        for part in current.parts:
            child = getattr(current, part)
            stack.extend(c for c in (child if isinstance(child, tuple) else (child,)) if isinstance(c, (Expr, Keyword)))
    return True

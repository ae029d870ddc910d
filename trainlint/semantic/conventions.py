"""What the field's habits say where nothing else does: a parameter `criterion` that is called, a `loss` that backward is
called on. A guess needs the use as well as the name, unless the use alone is proof."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from trainlint.patterns_on_use import Pattern
from trainlint.semantic import external, known
from trainlint.semantic.bindings import lookup
from trainlint.semantic.contexts import dotted_name, is_self
from trainlint.semantic.facts import (
    Attribute,
    Binding,
    Call,
    Constant,
    Context,
    Expr,
    For,
    Function,
    Module,
    Name,
    Parameter,
    Subscript,
)
from trainlint.semantic.values import UNKNOWN, Batch, Object, Tensor, Unknown, Value, each, join

if TYPE_CHECKING:
    from trainlint.semantic.inference import Inference

MODULE_NAME = Pattern(
    r"(?:^|_)(?:model|net|network|encoder|decoder|backbone|discriminator|generator|classifier|module|unet|vae|critic|actor|policy|student|teacher|net[dg]|ema)(?:_?[a-z0-9]{1,3})?$"
    r"|^(?:model|net|discriminator|generator|encoder|decoder)_\w{1,8}$|Model$|Net$|^[DG](?:_[A-Za-z]+)?$",
    re.I,
)
_DOES_WITH_MODULE = Pattern(
    r"^_*(?:load|save|log|get|set|make|build|create|init|initiali[sz]e|export|register|watch|download|upload|push|publish"
    r"|wrap|unwrap|prepare|setup|compile|freeze|unfreeze|reset|update|sync|copy|clone|convert|find|list|delete|remove|add"
    r"|instantiate|construct|define|deploy|restore|resume|store|write|read|print|summari[sz]e|plot|count|check"
    r"|import|fetch|select|choose|parse|is|has|use|from|to|dump|quanti[sz]e|prune|broadcast|transfer|configure)_",
    re.I,
)
LOSS_NAME = Pattern(
    r"(?:^|_)(?:criterion|criteria|loss_?fn|loss_?func|loss_?function|lossfn|crit|objective)(?:_\w+)?$|^(?:loss_f|losser|get_loss|calc_loss|compute_loss)$|criterion",
    re.I,
)
OPTIMIZER_NAME = Pattern(r"(?:^|_)(?:optim|optimizer|optimiser|opt)(?:_\w+)?$|^optimizer", re.I)
SCALER_NAME = Pattern(r"(?:^|_)(?:grad_?)?scaler$", re.I)
SCHEDULER_NAME = Pattern(r"scheduler|(?:^|_)sched$", re.I)
LOADER_NAME = Pattern(r"(?:^|_)(?:data_?)?loaders?(?:_\w+)?$|dataloader|(?:^|_)dl$|loader$", re.I)
DEVICE_NAME = Pattern(r"(?:^|_)(?:device|dev)$", re.I)
OPTIONS_NAME = Pattern(r"^(?:args?|opts?|options|cfg|config|conf|hparams|flags|params|hp|hyp|settings)$", re.I)


def names_module(name: str) -> bool:
    """Whether this is what a module is called: `teacher`, `ema_model`; not `log_model`, which says what is done with one."""
    return MODULE_NAME.search(name) is not None and _DOES_WITH_MODULE.match(name) is None


def by_use(inference: Inference, name: str, expr: Expr) -> Value:
    """A guess for a name or attribute whose value cannot be followed."""
    uses = _uses(expr)
    if uses & _MODULE_ONLY and "__call__" in uses:
        return Object("module", "")
    if uses & {"parameters", "named_parameters"} and not re.search(r"sig", name):
        return Object("module", "")
    if uses & _MOVED and _is_drawn(expr) and not uses & (known.MODULE_METHODS | {"__call__", "train"}):
        return Batch(part=_is_part(expr))
    if _parts_have_parameters(expr):
        return Object("module", "")
    if (
        uses & {"parameters", "named_parameters"}
        and uses & {"__call__", "train", "eval", "zero_grad"}
        and not _HOLDS_MODULES.search(name)
    ):
        return Object("module", "")  # it has parameters and runs
    if {"zero_grad", "step"} <= uses and not uses & {"backward", "__call__", "parameters"}:
        return Object("optimizer", "")  # nothing else has both
    if "item" in uses and isinstance(expr, Name) and _comes_from_tensors(inference, expr):
        return Tensor(None, None, "tensor")
    if "backward" in uses and not OPTIMIZER_NAME.search(name) and not _is_framework(name):
        return Tensor(None, True, "loss")
    if names_module(name) and (uses & known.MODULE_METHODS or "__call__" in uses or "train" in uses):
        return Object("module", "")
    if LOSS_NAME.search(name) and "__call__" in uses:
        return Object("loss", "")
    if OPTIMIZER_NAME.search(name) and uses & {"zero_grad", "step", "param_groups"}:
        return Object("optimizer", "")
    if SCALER_NAME.search(name) and uses & {"scale", "update", "unscale_"}:
        return Object("scaler", "")
    if SCHEDULER_NAME.search(name) and "step" in uses:
        return Object("scheduler", "")
    if LOADER_NAME.search(name):
        return Object("loader", "")
    if name in inference.loader_names:
        return Object("loader", "")
    if DEVICE_NAME.search(name):
        return Object("device", "")
    if OPTIONS_NAME.search(name) and not isinstance(expr, Attribute):
        return Object("options", "")
    if (
        uses & known.TENSOR_ONLY_METHODS
        and not names_module(name)
        and "__call__" not in uses
        and not uses & known.MODULE_METHODS - {"eval"}
    ):
        if uses & (
            known.TENSOR_ONLY_METHODS
            - {"cuda", "cpu", "float", "half", "double", "long", "gather", "add", "backward", "chunk", "copy_", "zero_"}
        ):
            return Tensor(None, None, "tensor")
    return UNKNOWN


_MODULE_ONLY = frozenset({"parameters", "named_parameters", "eval", "train", "state_dict", "load_state_dict"})
_MOVED = frozenset({"to", "cuda", "[].to", "[].cuda", "(moved)", "{}.to", "{}.cuda"})
_UNDRAWN = frozenset(
    {"parameters", "named_parameters", "buffers", "modules", "named_modules", "children", "state_dict"}
)


_HOST_LIBRARIES = ("numpy", "sklearn", "scipy", "pandas", "cv2", "math", "statistics")


def _comes_from_tensors(inference: Inference, expr: Name) -> bool:
    """What a function outside the project made of tensors, and `.item()` is called on: `accuracy(output, target)`."""
    bindings = lookup(expr, expr.id)[0]
    for binding in bindings:
        made = binding.value
        if binding.how != "assign" or not isinstance(made, Call):
            return False
        name = inference.name_of(made.callee)
        if name is None or "." not in name or name.startswith(_HOST_LIBRARIES):
            return False
        if not any(t.device != "host" for t in external._tensor_arguments(inference, made)):
            return False
    return bool(bindings)


def _is_drawn(expr: Expr) -> bool:
    """The name is the target of a `for` statement over something that is not known to be anything else, or of next()."""
    if not isinstance(expr, Name):
        return False
    for binding in lookup(expr, expr.id)[0]:
        if binding.how == "for" and isinstance(binding.statement, For):
            iterated = binding.value
            if isinstance(iterated, Call) and iterated.attr in _UNDRAWN | {"items", "values", "keys", "state_dict"}:
                return False
            return True
        if binding.how == "assign" and isinstance(binding.value, Call) and binding.value.attr == "next":
            return True
    return False


def _is_part(expr: Expr) -> bool:
    assert isinstance(expr, Name)
    return any(
        (b.path and b.path != (1,)) or (b.path == (1,) and not _is_enumerate(b.value)) for b in lookup(expr, expr.id)[0]
    )


def _is_enumerate(expr: Expr | None) -> bool:
    return isinstance(expr, Call) and expr.attr == "enumerate"


def narrowed(expr: Name, value: Value) -> Value:
    """`if isinstance(value, torch.Tensor):`, `if torch.is_tensor(value):` leave only the tensors of several alternatives."""
    for frame in expr.context.local_frames():
        if _asks_for_tensor(frame, expr.id):
            kept = [v for v in each(value) if isinstance(v, (Tensor, Batch)) != frame.negated]
            if kept and len(kept) < len(list(each(value))):
                return join(kept)
    return value


def without_replaced(expr: Name, pairs: list[tuple[Binding, Value]]) -> list[tuple[Binding, Value]]:
    """After `if isinstance(x, torch.Tensor): x = x.item()` x is none of the tensors that it was before."""
    for replacing, _ in pairs:
        frame = replacing.context
        if frame.kind != "branch" or frame.negated or expr.context.within(frame) or replacing.how != "assign":
            continue
        if expr.order < replacing.order or not _asks_for_tensor(frame, expr.id):
            continue
        kept: list[tuple[Binding, Value]] = []
        for binding, value in pairs:
            others: list[Value] = [v for v in each(value) if not isinstance(v, (Tensor, Batch))]
            if binding.order > frame.record.order:
                kept.append((binding, value))
            elif others:
                kept.append((binding, join(others)))
        return kept
    return pairs


def _asks_for_tensor(frame: Context, name: str) -> bool:
    """A branch that runs where `isinstance(name, torch.Tensor)`, `torch.is_tensor(name)` or `hasattr(name, "item")`."""
    test = frame.test if frame.kind == "branch" else None
    if not isinstance(test, Call) or not test.args:
        return False
    first, last = test.args[0], test.args[-1]
    if not (isinstance(first, Name) and first.id == name):
        return False
    if test.attr == "hasattr":
        return isinstance(last, Constant) and last.value in ("item", "detach", "cpu")
    return test.attr == "is_tensor" or (test.attr == "isinstance" and (dotted_name(last) or "").endswith("Tensor"))


_HOLDS_MODULES = Pattern(
    r"^(?:self|cls|args|cfg|config|ctx|state)$|trainer|runner|engine|solver|algo|system|accelerator|manager|experiment",
    re.I,
)


def _parts_have_parameters(expr: Expr) -> bool:
    """`agent.body.parameters()`: what has parts with parameters is a module."""
    dotted = dotted_name(expr)
    if dotted is None or _HOLDS_MODULES.search(dotted) or "parameters" not in expr.context.module.attributes:
        return False
    function = expr.context.function
    for whole, users in _use_index(expr.context.module).items():
        if whole.startswith(dotted + ".") and "." not in whole[len(dotted) + 1 :]:
            if any(_what(use) == "parameters" and _user(use).context.function is function for use in users):
                return True
    return False


def _is_framework(name: str) -> bool:
    return bool(re.search(r"accelerator|fabric|engine|trainer|manager|scaler", name, re.I))


def _uses(expr: Expr) -> set[str]:
    """Attributes read from, and "__call__" where calls are made on, the same name in the same function (or class)."""
    module = expr.context.module
    dotted = dotted_name(expr)
    if dotted is None:
        return set()
    index = _use_index(module)
    function = expr.context.function
    found: set[str] = set()
    own = isinstance(expr, Attribute) and is_self(expr.value, expr.context)
    for use in index.get(dotted, ()):
        user = _user(use).context
        if user.cls is expr.context.cls if own else user.function is function or function is None:
            found.add(_what(use))
    return found


# A call of a name, an attribute access on it, or what is done with it otherwise.
_Use = Attribute | Call | tuple[Expr, str]


def _user(use: _Use) -> Expr:
    return use[0] if isinstance(use, tuple) else use


def _what(use: _Use) -> str:
    if isinstance(use, tuple):
        return use[1]
    return "__call__" if isinstance(use, Call) else _root(use.value)[1] + use.attr


def _use_index(module: Module) -> dict[str, list[_Use]]:
    known: dict[str, list[_Use]] | None = module.memo.get("uses")
    if known is not None:
        return known
    index: dict[str, list[_Use]] = {}
    for accesses in module.attributes.values():
        for access in accesses:
            dotted, _ = _root(access.value)
            if dotted is not None:
                index.setdefault(dotted, []).append(access)
    movers = {attr for attr in module.calls_by_attr if external.MOVERS.search(attr)}
    for call in module.calls:
        dotted = dotted_name(call.callee)
        if dotted is not None:
            index.setdefault(dotted, []).append(call)
        if movers and call.attr in movers:
            for argument in call.args:
                moved = dotted_name(argument)
                if moved is not None:
                    index.setdefault(moved, []).append((call, "(moved)"))
    for comprehension in module.comprehensions:
        # `{k: v.to(device) for k, v in batch.items()}`
        source = comprehension.generators[0].iter
        owner = (
            dotted_name(source.receiver)
            if isinstance(source, Call) and source.receiver is not None
            else dotted_name(source)
        )
        element = comprehension.element
        if owner is not None and isinstance(element, Call) and element.attr in ("to", "cuda"):
            index.setdefault(owner, []).append((element, "{}." + element.attr))
    module.memo["uses"] = index
    return index


_SAME = frozenset("to cuda cpu train eval float half double bfloat16 requires_grad_".split())


def _root(expr: Expr) -> tuple[str | None, str]:
    """The name that an attribute is asked of, through `x.to(device)` and the like, and "[]." for an item of it."""
    while isinstance(expr, Call) and isinstance(expr.callee, Attribute) and expr.callee.attr in _SAME:
        expr = expr.callee.value
    if isinstance(expr, Subscript):
        return dotted_name(expr.value), "[]."
    return dotted_name(expr), ""


def refine(inference: Inference, expr: Name, value: Value) -> Value:
    """`for k in batch: batch[k] = batch[k].to(device)`: the batch has moved, item by item."""
    if isinstance(value, Batch) and value.device == "host":
        for binding in expr.context.module.stores.get(expr.id + "[]", ()):
            if (
                binding.context.function is expr.context.function
                and binding.value is not None
                and binding.order < expr.order
            ):
                if isinstance(binding.value, Call) and binding.value.attr in ("to", "cuda"):
                    return Batch("device")
    return value


def parameter(inference: Inference, function: Function, parameter: Parameter) -> Value:
    """A guess for a parameter without known callers: inputs of a module's `forward` are tensors when used like ones."""
    named = _named_like_class(inference, function, parameter)
    if named is not None:
        return named
    if function.cls is None or function.name not in ("forward", "training_step", "validation_step", "test_step"):
        return UNKNOWN
    role = inference.role(function.cls)
    if role not in ("module", "loss"):
        return UNKNOWN
    if function.name != "forward":
        return Batch("device") if parameter.name in ("batch", "train_batch", "val_batch", "data") else UNKNOWN
    probe = _first_use(function, parameter.name)
    if probe is None:
        return UNKNOWN
    uses = _uses(probe)
    if uses & known.TENSOR_ONLY_METHODS or uses & {
        "shape",
        "size",
        "device",
        "dtype",
        "view",
        "reshape",
        "transpose",
        "flatten",
        "sum",
        "mean",
    }:
        return Tensor(None, None, "input")
    if is_fed_to_layer(inference, function, parameter.name):
        return Tensor(None, None, "input")
    return UNKNOWN


def _named_like_class(inference: Inference, function: Function, parameter: Parameter) -> Value | None:
    """`mask_net`, which is called, in a file that defines one `class Mask(nn.Module)` or `MaskNet`."""
    name = parameter.name.replace("_", "").lower()
    probe = _first_use(function, parameter.name)
    if probe is None or len(name) < 3 or (function.cls is not None and function.name == "forward"):
        return None
    if not _uses(probe) & (known.MODULE_METHODS | {"__call__", "train", "to"}):
        return None
    for cls in function.module.classes:
        plain = cls.name.lower()
        if name in (plain, plain + "net", plain + "model") and inference.role(cls) == "module":
            return inference.instance(cls)
    return None


def _first_use(function: Function, name: str) -> Name | None:
    for call in function.calls:
        for part in [call.callee, *call.args]:
            while isinstance(part, (Attribute,)):
                part = part.value
            if isinstance(part, Name) and part.id == name:
                return part
    return None


def is_fed_to_layer(inference: Inference, function: Function, name: str) -> bool:
    """Whether the parameter is handed, as it is, to a layer or a torch function."""
    for call in function.calls:
        if call.args and isinstance(call.args[0], Name) and call.args[0].id == name:
            for callee in each(inference.value(call.callee)):
                if isinstance(callee, Object) and callee.role == "module":
                    return True
                if getattr(callee, "name", "").startswith("torch.nn.functional."):
                    return True
    return False


def result_of_call(inference: Inference, call: Call) -> Value:
    """A guess for a call that cannot be followed: `self.criterion(output, target)` gives a loss."""
    name = call.attr
    if name is None:
        return UNKNOWN
    callee = inference.value(call.callee)
    if not isinstance(callee, Unknown):
        return UNKNOWN
    if (
        name == "to"
        and call.keyword("non_blocking") is not None
        and external.device_of(inference, call.argument(0, "device")) == "device"
    ):
        return Tensor("device", False, "batch")  # modules take it too, but nobody writes it for one
    device = external.device_of_arguments(inference, call)
    if device is None and not call.args:
        return UNKNOWN
    if LOSS_NAME.search(name):
        return Tensor(device, True, "loss")
    if names_module(name) and external._tensor_arguments(inference, call):
        return Tensor(device, True, "module")
    if external.MOVERS.search(name) and call.args:
        moved = inference.value(call.args[0])
        if isinstance(moved, (Batch, Tensor)):
            return moved._replace(device="device")
    return UNKNOWN


def annotation_text(text: str) -> Value:
    """A quoted annotation: `"torch.Tensor"`."""
    return external.annotated(text) if text.startswith("torch.") else UNKNOWN

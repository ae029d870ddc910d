"""What things outside the project give: torch, torchvision, numpy, the standard library, the training frameworks."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from trainlint.patterns_on_use import Pattern
from trainlint.semantic import growth, known
from trainlint.semantic.facts import Call, Expr, Starred
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

if TYPE_CHECKING:
    from trainlint.semantic.inference import Inference

FOREIGN_ROOTS = frozenset(
    "torch torchvision numpy np os sys math random time json re collections functools itertools".split()
)
ARRAY_METHODS = frozenset(
    "item tolist mean sum max min std copy astype reshape transpose argmax argmin any all flatten".split()
)
MOVERS = Pattern(
    r"(?:^|_)(?:to|move|put|send)_?(?:to_?)?(?:device|cuda|gpu)|cuda_?batch|batch_?to|^to_var$|^to_cuda", re.I
)
LOSS_CLASS = Pattern(r"Loss(?:es)?$|Criterion$")
_DEVICE_NAME = Pattern(r"(?:^|_)(?:device|dev|gpu|gpu_id|local_rank|rank|cuda)s?$", re.I)


# ------------------------------------------------------------------------------------------------------------ roles


def role_of_class(name: str) -> str | None:
    """The role of an instance of an outside class, by its full name."""
    last = name.rpartition(".")[2]
    if name in known.LOADERS or last.endswith("DataLoader"):
        return "loader"
    if name in known.LIGHTNING_MODULES or last == "LightningModule":
        return "module"
    if name.endswith("LightningDataModule"):
        return "datamodule"
    if name.startswith(("torch.nn.", "torch.nn.modules.")):
        if last[:1].isupper() and last not in ("Parameter", "ParameterList", "Buffer", "UninitializedParameter"):
            return "loss" if LOSS_CLASS.search(last) else "module"
        return None
    if name == "torch.jit.ScriptModule":
        return "module"
    if name.startswith(("torch.optim.lr_scheduler.", "timm.scheduler.")) and last.lstrip("_")[:1].isupper():
        return "scheduler"
    if name.startswith("torch.optim.swa_utils."):
        return "scheduler" if last == "SWALR" else "module"
    if name.startswith(("torch.optim.", "torch_optimizer.", "apex.optimizers.", "bitsandbytes.optim.", "timm.optim.")):
        return "optimizer" if last[:1].isupper() else None
    if name in ("transformers.AdamW", "transformers.Adafactor", "transformers.optimization.AdamW", "lion_pytorch.Lion"):
        return "optimizer"
    if name.startswith("torch.distributed.optim.") and last[:1].isupper():
        return "optimizer"
    if name in known.SCALERS:
        return "scaler"
    if name in known.ACCELERATORS:
        return "accelerator"
    if name in known.FABRICS:
        return "fabric"
    if name in known.LIGHTNING_TRAINERS:
        return "lightning-trainer"
    if name in known.HF_TRAINERS or (name.startswith(("transformers.", "trl.")) and last.endswith("Trainer")):
        return "hf-trainer"
    if name in known.IGNITE_ENGINES:
        return "ignite-engine"
    if name.startswith("torch.utils.data.") and last.endswith("Sampler"):
        return "sampler"
    if name in known.DATASETS or (name.startswith("torchvision.datasets.") and last[:1].isupper()):
        return "dataset"
    if name.startswith(("torchvision.models.", "segmentation_models_pytorch.")) and last[:1].isupper():
        return "module"
    if name.startswith("transformers.") and re.search(r"Model$|For[A-Z]\w+$|LMHeadModel", last):
        return "module"
    if name.startswith("diffusers.") and re.search(r"Model(?:2D|3D)?$|UNet|Autoencoder|Transformer|ControlNet", last):
        return "module"
    if name in ("torch.Generator",):
        return "generator"
    if name.startswith("torch.distributions.") and last[:1].isupper():
        return "distribution"
    if last in ("SummaryWriter",):
        return "writer"
    if name in ("argparse.ArgumentParser",) or last in ("ArgumentParser", "HfArgumentParser"):
        return "parser"
    if name in known.NO_GRAD or name in known.ENABLE_GRAD or name in known.SET_GRAD or name in known.AUTOCASTS:
        return "mode"
    return None


def annotated(name: str) -> Value:
    """A parameter with an outside class as its annotation."""
    if name in ("torch.Tensor", "torch.FloatTensor", "torch.LongTensor", "torch.nn.Parameter", "Tensor"):
        return Tensor(None, None, "tensor")
    if name == "torch.device":
        return Object("device")
    if name in ("int", "float", "bool"):
        return Number(name)
    if name == "str":
        return Text()
    if name == "numpy.ndarray":
        return Array()
    if name in ("argparse.Namespace", "omegaconf.DictConfig", "omegaconf.dictconfig.DictConfig"):
        return Object("options", name)
    role = role_of_class(name)
    return Object(role, name) if role is not None else UNKNOWN


def attribute(full: str) -> Value:
    if full in ("sys.argv",):
        return Items("list", None, Text())
    if full in ("os.environ",):
        return Table((), Text())
    if full in ("math.pi", "math.inf", "numpy.pi", "numpy.inf", "torch.inf", "torch.pi"):
        return Number("float")
    return External(full)


# ------------------------------------------------------------------------------------------------------------ calls


def call(inference: Inference, name: str, call: Call) -> Value:
    """What calling the outside thing `name` gives."""
    builtin = _BUILTIN_CALLS.get(name)
    if builtin is not None:
        return builtin(inference, call)
    if name in known.PROGRESS or name.rpartition(".")[2].lower() == "tqdm":
        return _first(inference, call, fallback=Items("iterator", None, Number("int")))
    if name in known.WRAPPERS or name.endswith((".convert_sync_batchnorm", ".get_peft_model")):
        return _wrapped(inference, name, call)
    if name in known.DATA_PARALLEL:
        return Tensor("device", True, "module")
    role = role_of_class(name)
    if role is not None:
        return Object(role, name, None, call, _held(inference, role, name, call))
    root = name.partition(".")[0]
    if root == "torch":
        return _torch(inference, name, call)
    if root == "torchvision":
        return _torchvision(inference, name, call)
    if root in ("numpy", "np", "cupy", "scipy", "cv2"):
        return Array()
    if root in ("math", "cmath", "statistics"):
        return Number("float")
    if root in ("time", "random"):
        return Number("float")
    if name.endswith((".from_pretrained", ".from_config")):
        owner = name.rpartition(".")[0]
        inner = role_of_class(owner)
        if inner is not None:
            return Object(inner, owner, None, call)
        return Object("pretrained", owner, None, call)
    if name in (
        "timm.create_model",
        "timm.models.create_model",
        "segmentation_models_pytorch.create_model",
        "open_clip.create_model",
    ):
        return Object("module", name, None, call)
    if name in ("timm.data.create_loader",):
        return Object("loader", name, None, call)
    if name == "timm.optim.create_optimizer" or name.endswith(".create_optimizer_v2"):
        return Object("optimizer", name, None, call)
    if name in known.DEEPSPEED_INIT:
        model = call.keyword("model") or call.argument(1)
        wrapped = (inference.value(model),) if model is not None else ()
        engine = Object("engine", name, None, call, wrapped)
        loader = Object("loader", name, None, call)
        return Items("tuple", (engine, Object("optimizer", name), loader, Object("scheduler", name)), UNKNOWN)
    if name.startswith("einops."):
        return _first(inference, call)
    if name == "transformers.get_scheduler" or re.search(r"get_\w+_schedule(?:_with_\w+)?$", name):
        return Object("scheduler", name, None, call)
    return UNKNOWN


def _torch(inference: Inference, name: str, call: Call) -> Value:
    if name == "torch.device":
        text = inference.constant(call.argument(0, "type"))
        return Object("device", text if isinstance(text, str) else "", None, call)
    if name in ("torch.from_numpy", "torch.frombuffer"):
        return Tensor("host", False, "numpy")
    if name in known.FACTORIES:
        return _factory(inference, call)
    if name.startswith("torch.cuda.") and name.endswith("Tensor"):
        return Tensor("device", False, "factory")
    if name in (
        "torch.autograd.Variable",
        "torch.nn.Parameter",
        "torch.nn.parameter.Parameter",
        "torch.autograd.variable.Variable",
    ):
        held = inference.value(call.args[0]) if call.args else UNKNOWN
        device = held.device if isinstance(held, (Tensor, Batch)) else None
        graph = True if "Parameter" in name else held.graph if isinstance(held, Tensor) else False
        return Tensor(device, graph, "parameter" if "Parameter" in name else "tensor")
    if name == "torch.utils.data.random_split":
        return Items("list", None, Object("dataset", "torch.utils.data.Subset", None, call))
    if name in ("torch.distributed.get_rank", "torch.distributed.get_world_size", "torch.cuda.device_count"):
        return Number("int")
    if name in (
        "torch.cuda.is_available",
        "torch.distributed.is_initialized",
        "torch.is_tensor",
        "torch.equal",
        "torch.allclose",
    ):
        return Number("bool")
    if name in ("torch.cuda.current_device", "torch.accelerator.current_accelerator"):
        return Object("device", "cuda")
    if name == "torch.hub.load":
        return Object("module", name, None, call)
    if name == "torch.linalg.norm" or name in known.TENSOR_AFTER_ALL:
        return _operation(inference, call)
    if _matches(name, known.NO_TENSOR):
        if name.startswith(("torch.cuda.", "torch.mps.")):
            return Number("number")
        return UNKNOWN
    last = name.rpartition(".")[2]
    if last[:1].isupper():
        return UNKNOWN
    return _operation(inference, call)


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(name == p or (p.endswith(".") and name.startswith(p)) for p in patterns)


def _factory(inference: Inference, call: Call) -> Tensor:
    device = call.keyword("device")
    where = device_of(inference, device) if device is not None else "host"
    graph = inference.constant(call.keyword("requires_grad")) is True
    if device is None and call.args and call.attr in ("as_tensor", "tensor"):
        held = inference.value(call.args[0])
        if isinstance(held, Tensor):
            where = held.device
    return Tensor(where, graph, "factory")


def _operation(inference: Inference, call: Call) -> Tensor:
    """A torch function: its result lies where its tensor arguments lie and hangs on their graph."""
    tensors = list(_tensor_arguments(inference, call))
    device = call.keyword("device")
    if not tensors:
        return Tensor(device_of(inference, device) if device is not None else None, None, "torch")
    merged = elementwise(tensors)
    if device is not None:
        merged = merged._replace(device=device_of(inference, device))
    if call.attr in (
        "argmax",
        "argmin",
        "argsort",
        "eq",
        "ne",
        "isnan",
        "isinf",
        "isfinite",
        "zeros_like",
        "ones_like",
        "rand_like",
        "randn_like",
        "bincount",
        "histc",
        "nonzero",
        "unique",
    ):
        merged = merged._replace(graph=False)
    if call.attr in (
        "nll_loss",
        "cross_entropy",
        "mse_loss",
        "l1_loss",
        "binary_cross_entropy",
        "binary_cross_entropy_with_logits",
        "kl_div",
        "smooth_l1_loss",
        "huber_loss",
        "triplet_margin_loss",
        "ctc_loss",
        "gaussian_nll_loss",
        "margin_ranking_loss",
        "hinge_embedding_loss",
        "cosine_embedding_loss",
    ):
        merged = merged._replace(origin="loss")
    return merged


def _tensor_arguments(inference: Inference, call: Call) -> list[Tensor]:
    found: list[Tensor] = []
    for argument in [*call.args, *(k.value for k in call.keywords)]:
        value = inference.value(argument.value if isinstance(argument, Starred) else argument)
        for one in each(value):
            if isinstance(one, Tensor):
                found.append(one)
            elif isinstance(one, Batch):
                found.append(Tensor(one.device, False, "batch"))
            elif isinstance(one, Items):
                parts = one.elements if one.elements is not None else (one.element,)
                found.extend(p for part in parts for p in each(part) if isinstance(p, Tensor))
    return found


def elementwise(tensors: list[Tensor]) -> Tensor:
    """The result of an operation: on the device if any operand is, with a graph if any has one."""
    devices = {t.device for t in tensors}
    device = "device" if "device" in devices else None if None in devices else "host"
    graphs = {t.graph for t in tensors}
    graph = True if True in graphs else None if None in graphs else False
    origin = next((t.origin for t in tensors if t.origin in ("loss", "module")), "tensor")
    return Tensor(device, graph, origin, any(t.sure for t in tensors))


def _torchvision(inference: Inference, name: str, call: Call) -> Value:
    last = name.rpartition(".")[2]
    if name.startswith("torchvision.models."):
        return Object("module", name, None, call)
    if name.startswith("torchvision.ops.") and not last[:1].isupper():
        return _operation(inference, call)
    if name.startswith(("torchvision.transforms.functional.", "torchvision.transforms.v2.functional.")):
        return UNKNOWN
    if name == "torchvision.utils.make_grid":
        return _operation(inference, call)
    return UNKNOWN


def _held(inference: Inference, role: str, name: str, call: Call) -> tuple[Value, ...]:
    """What a container or wrapper holds: the layers of a Sequential, the dataset of a loader."""
    if name in known.CONTAINERS:
        parts: list[Value] = []
        for argument in call.args:
            held = argument.value if isinstance(argument, Starred) else argument
            grown = growth.added(inference, held)
            if isinstance(argument, Starred):
                value = inference.value(held)
                if not (grown and isinstance(inference.element(value), Unknown)):
                    parts.append(inference.element(value))
                parts.extend(grown)
                continue
            value = inference.value(argument)
            if isinstance(value, Items):
                parts.extend(value.elements if value.elements is not None else (value.element,))
            elif isinstance(value, Table):
                parts.extend(v for _, v in value.items)
            else:
                parts.append(value)
            parts.extend(grown)
        return tuple(parts)
    if role == "loader":
        dataset = call.argument(0, "dataset")
        return (inference.value(dataset),) if dataset is not None else ()
    return ()


def _wrapped(inference: Inference, name: str, call: Call) -> Value:
    first = call.argument(0) or (
        call.keywords[0].value if call.keywords and call.keywords[0].name is not None else None
    )
    if first is None:
        return External(name) if name == "torch.compile" else UNKNOWN
    held = inference.value(first)
    if isinstance(held, Routine) and name in ("torch.compile", "torch.jit.script"):
        return held
    if isinstance(held, Object) and held.role in ("module", "loss"):
        return Object(held.role, name, None, call, (held,))
    if name.startswith("copy."):
        return held
    return Object("module", name, None, call, (held,) if not isinstance(held, Unknown) else ())


def module_output(inference: Inference, callee: Object, call: Call) -> Value:
    """The result of calling an outside module: a tensor, or a structure of tensors that answers to tensor questions."""
    device = device_of_arguments(inference, call)
    if callee.role == "loss":
        return Tensor(device, True, "loss")
    return Tensor(device, True, "module")


def device_of_arguments(inference: Inference, call: Call) -> str | None:
    tensors = _tensor_arguments(inference, call)
    if not tensors:
        return None
    devices = {t.device for t in tensors}
    return "device" if "device" in devices else None if None in devices else "host"


def device_of(inference: Inference, expr: Expr | None) -> str | None:
    """Where a device argument points: "host", "device" (may be an accelerator), None when it is no device."""
    if expr is None:
        return None
    kinds: set[str | None] = set()
    for one in each(inference.value(expr)):
        kinds.add(_device_kind(one))
    if "device" in kinds:
        return "device"
    if kinds == {"host"}:
        return "host"
    if None in kinds:
        from trainlint.semantic.contexts import dotted_name

        dotted = dotted_name(expr)
        if dotted is not None and _DEVICE_NAME.search(dotted.rpartition(".")[2]):
            return "device"
    return None


def _device_kind(value: Value) -> str | None:
    if isinstance(value, Const):
        if isinstance(value.value, str):
            if value.value.startswith("cpu"):
                return "device" if value.settable else "host"
            return "device" if value.value.split(":")[0] in ("cuda", "mps", "xpu", "npu", "hpu", "xla", "gpu") else None
        return "device" if isinstance(value.value, int) and not isinstance(value.value, bool) else None
    if isinstance(value, Object) and value.role == "device":
        if value.name == "cpu":
            return "host"
        return "device"
    if isinstance(value, Number):
        return "device"
    if isinstance(value, Tensor):
        return value.device
    return None


# ---------------------------------------------------------------------------------------------------------- methods


def method(inference: Inference, owner: Value, name: str, call: Call) -> Value:
    """What calling a method of something outside the project gives."""
    if isinstance(owner, Tensor):
        return _tensor_method(inference, owner, name, call)
    if isinstance(owner, Batch):
        return _batch_method(inference, owner, name, call)
    if isinstance(owner, Array):
        return Number() if name == "item" else Items("list", None, Number()) if name == "tolist" else Array()
    if isinstance(owner, Object):
        return object_method(inference, owner, name, call)
    if isinstance(owner, Table):
        return _table_method(inference, owner, name, call)
    if isinstance(owner, Items):
        if name in ("copy",):
            return owner
        if name in ("pop",):
            return inference.element(owner)
        return Number("int") if name in ("index", "count") else NONE
    if isinstance(owner, (Text, Const)):
        return Text() if name in ("format", "join", "strip", "lower", "upper", "replace", "split") else UNKNOWN
    return UNKNOWN


def _tensor_method(inference: Inference, owner: Tensor, name: str, call: Call) -> Value:
    if name == "item":
        return Number()
    if name == "tolist":
        return Items("list", None, Number())
    if name == "numpy":
        return Array()
    if name in ("size", "shape"):
        return Number("int") if call.args else Items("tuple", None, Number("int"))
    if name == "stride":
        return Items("tuple", None, Number("int"))
    if name == "items":  # of a model's output that is a dict
        return Items("list", None, Items("tuple", (Text(), owner), UNKNOWN))
    if name == "keys":
        return Items("list", None, Text())
    if name in known.NUMBER_METHODS:
        return Number("int")
    if name in known.NO_VALUE_METHODS:
        return NONE
    if name == "cpu":
        return owner._replace(device="host")
    if name == "cuda":
        return owner._replace(device="device")
    if name in ("detach", "detach_"):
        return owner._replace(graph=False)
    if name in ("to", "type"):
        return _moved(inference, owner, call)
    if name in (
        "argmax",
        "argmin",
        "argsort",
        "eq",
        "ne",
        "gt",
        "ge",
        "lt",
        "le",
        "isnan",
        "isinf",
        "bool",
        "int",
        "long",
        "any",
        "all",
        "nonzero",
        "new_zeros",
        "new_ones",
        "new_tensor",
        "new_full",
        "new_empty",
        "bernoulli",
        "sign",
    ):
        return owner._replace(graph=False)
    if name in ("shape", "names"):
        return UNKNOWN
    if name == "requires_grad_":
        off = inference.constant(call.argument(0, "requires_grad")) is False
        return owner._replace(graph=not off)
    others = _tensor_arguments(inference, call)
    return elementwise([owner, *others])._replace(origin=owner.origin) if others else owner


def _moved(inference: Inference, owner: Tensor, call: Call) -> Tensor:
    target = call.keyword("device") or call.argument(0) or call.keyword("other")
    if target is None:
        return owner
    held = inference.value(target)
    if isinstance(held, External) and held.name.startswith("torch.") and not held.name.endswith("Tensor"):
        second = call.argument(1)
        return owner._replace(device=device_of(inference, second)) if second is not None else owner  # a dtype
    if isinstance(held, External) and held.name.startswith("torch.cuda."):
        return owner._replace(device="device")
    where = device_of(inference, target)
    return owner._replace(device=where)


def _batch_method(inference: Inference, owner: Batch, name: str, call: Call) -> Value:
    if name in ("to", "cuda"):
        device = "device" if name == "cuda" else device_of(inference, call.argument(0, "device"))
        return Tensor(device, False, "batch") if owner.part else Batch(device)
    if name in ("items",):
        return Items("list", None, Items("tuple", (Text(), Tensor(owner.device, False, "batch")), UNKNOWN))
    if name in ("values",):
        return Items("list", None, Tensor(owner.device, False, "batch"))
    if name in ("keys",):
        return Items("list", None, Text())
    if name in ("get", "pop"):
        return owner
    return _tensor_method(inference, Tensor(owner.device, False, "batch"), name, call)


def _table_method(inference: Inference, owner: Table, name: str, call: Call) -> Value:
    if name in ("get", "pop", "setdefault"):
        key = inference.constant(call.argument(0))
        found = owner.get(key)
        if len(call.args) > 1:
            return join([found, inference.value(call.args[1])])
        return found
    if name == "items":
        pairs = [Items("tuple", (Const(k), v), UNKNOWN) for k, v in owner.items]
        if pairs:
            return Items("list", tuple(pairs), UNKNOWN)
        return Items("list", None, Items("tuple", (Text(), owner.rest), UNKNOWN))
    if name == "values":
        if owner.items:
            return Items("list", tuple(v for _, v in owner.items), UNKNOWN)
        return Items("list", None, owner.rest)
    if name == "keys":
        return Items("list", None, Text())
    if name == "copy":
        return owner
    return UNKNOWN


def object_method(inference: Inference, owner: Object, name: str, call: Call) -> Value:
    """Methods of outside objects, and those that project classes inherit from outside."""
    role = owner.role
    if role in ("module", "loss"):
        if name in (
            "to",
            "cuda",
            "cpu",
            "train",
            "eval",
            "half",
            "float",
            "double",
            "bfloat16",
            "requires_grad_",
            "apply",
            "share_memory",
            "type",
            "to_empty",
            "compile",
        ):
            return owner
        if name in ("parameters", "buffers"):
            return Items("iterator", None, Tensor(None, True, "parameter"))
        if name in ("named_parameters", "named_buffers"):
            return Items("iterator", None, Items("tuple", (Text(), Tensor(None, True, "parameter")), UNKNOWN))
        if name == "state_dict":
            return Table((), Tensor(None, False, "parameter"))
        if name in ("modules", "children"):
            return Items("iterator", None, Object("module", "torch.nn.Module"))
        if name in ("named_modules", "named_children"):
            return Items("iterator", None, Items("tuple", (Text(), Object("module", "torch.nn.Module")), UNKNOWN))
        if name == "forward":
            return inference.called(owner, call)
        if name in ("values",):
            return Items("list", owner.inner or None, Object("module", "torch.nn.Module"))
        if name in ("items",):
            return Items(
                "list", None, Items("tuple", (Text(), join(list(owner.inner)) if owner.inner else UNKNOWN), UNKNOWN)
            )
        for inner in owner.inner:
            if isinstance(inner, Object):
                held = inference.attribute(inner, name)
                if isinstance(held, Routine):
                    return inference.called(held, call)
        if name == "encode" or name == "decode" or name == "generate":
            return Tensor(device_of_arguments(inference, call), True, "module")
        return UNKNOWN
    if role == "optimizer":
        return UNKNOWN if name == "step" else NONE
    if role == "scaler":
        if name == "scale":
            held = inference.value(call.args[0]) if call.args else UNKNOWN
            return held if isinstance(held, Tensor) else Tensor("device", True, "loss")
        return Number("float") if name == "get_scale" else UNKNOWN
    if role == "scheduler":
        return Items("list", None, Number("float")) if name == "get_last_lr" else UNKNOWN
    if role == "parser":
        if name == "parse_known_args":
            return Items("tuple", (Object("options", "", None, owner.call), UNKNOWN), UNKNOWN)
        if name in ("parse_args", "parse_args_into_dataclasses"):
            return Object("options", "", None, owner.call)
        return UNKNOWN
    if role in ("accelerator", "fabric"):
        return _framework_method(inference, owner, name, call)
    if role == "dataset":
        if name in ("map", "shuffle", "select", "filter", "with_format", "with_transform", "repeat", "batched"):
            return owner
        return UNKNOWN
    if role == "loader":
        return owner if name in ("shuffle", "repeat", "with_length", "with_epoch", "unbatched", "batched") else UNKNOWN
    if role == "pretrained":
        if name in ("to", "cuda", "eval", "train", "half"):
            return owner
        return UNKNOWN
    if role == "options":
        return UNKNOWN
    if role == "generator":
        return owner
    if role == "distribution":
        if name in ("sample", "rsample", "log_prob", "entropy", "cdf", "icdf", "sample_n"):
            return Tensor(None, name != "sample", "tensor")
        return UNKNOWN
    if role == "mode":
        return owner
    return UNKNOWN


def _framework_method(inference: Inference, owner: Object, name: str, call: Call) -> Value:
    if name in (
        "prepare",
        "setup",
        "setup_dataloaders",
        "setup_module",
        "setup_optimizers",
        "prepare_data_loader",
        "prepare_model",
        "prepare_optimizer",
    ):
        values = [inference.value(a) for a in call.args]
        prepared: list[Value] = []
        if name == "setup_dataloaders":
            values = [Object("loader") if isinstance(v, Unknown) else v for v in values]
        for value in values:
            if isinstance(value, Object) and value.role in ("module", "loader", "optimizer"):
                prepared.append(value._replace(name=f"{owner.role}:{value.name}"))
            else:
                prepared.append(value)
        return prepared[0] if len(prepared) == 1 else Items("tuple", tuple(prepared), UNKNOWN)
    if name in (
        "gather",
        "gather_for_metrics",
        "reduce",
        "pad_across_processes",
        "all_gather",
        "all_reduce",
        "to_device",
    ):
        values = [inference.value(a) for a in call.args[:1]]
        if values and isinstance(values[0], Batch):
            return Batch("device")
        if values and isinstance(values[0], Tensor) and values[0].device is None:
            return values[0]._replace(device="device")  # collectives run on the device of the process
        return values[0] if values and not isinstance(values[0], Unknown) else Tensor("device", None, "tensor")
    if name == "unwrap_model":
        return inference.value(call.args[0]) if call.args else UNKNOWN
    if name in ("autocast", "accumulate", "no_sync"):
        return Object("mode", f"{owner.role}.{name}")
    if name == "clip_grad_norm_":
        return Tensor("device", None, "tensor")
    return UNKNOWN


# ------------------------------------------------------------------------------------------------------- attributes


def tensor_attribute(owner: Tensor, name: str) -> Value:
    if name == "shape":
        return Items("tuple", None, Number("int"))
    if name in known.NUMBER_ATTRIBUTES:
        return Number("int")
    if name == "device":
        return Object("device", "cpu" if owner.device == "host" else "")
    if name in ("dtype", "layout", "names", "grad_fn"):
        return UNKNOWN
    if name == "data":
        return owner._replace(graph=False)
    if name in ("grad", "T", "mT", "H", "real", "imag", "values", "indices", "loss", "logits"):
        if name == "values" or name == "indices":
            return owner
        return (
            owner._replace(graph=False)
            if name == "grad"
            else owner._replace(origin="loss")
            if name == "loss"
            else owner
        )
    if owner.origin == "module" and name in (
        "sample",
        "last_hidden_state",
        "pooler_output",
        "hidden_states",
        "latent_dist",
        "prediction",
        "images",
        "text_embeds",
        "image_embeds",
        "logits_per_image",
        "logits_per_text",
        "past_key_values",
        "attentions",
        "out",
    ):
        return owner
    return Method(owner, name)


def batch_attribute(owner: Batch, name: str) -> Value:
    if name in ("shape", "device", "dtype"):
        return tensor_attribute(Tensor(owner.device, False, "batch"), name)
    if name in (
        "to",
        "cuda",
        "cpu",
        "items",
        "values",
        "keys",
        "get",
        "pop",
        "size",
        "view",
        "unsqueeze",
        "squeeze",
        "float",
        "long",
        "half",
        "double",
        "item",
        "numpy",
        "tolist",
        "permute",
        "reshape",
        "transpose",
        "flatten",
        "repeat",
        "expand",
        "clone",
        "detach",
        "contiguous",
        "type",
        "pin_memory",
        "mean",
        "sum",
        "max",
        "min",
        "dim",
        "argmax",
        "chunk",
        "split",
        "bool",
        "int",
        "mul",
        "div",
        "add",
        "sub",
        "requires_grad_",
        "t",
        "numel",
        "type_as",
        "copy_",
    ):
        return Method(owner, name)
    if name in ("update", "setdefault"):
        return Method(owner, name)
    # `batch.text`, `data.edge_index`: a field of the batch
    return Batch(owner.device)


def object_attribute(inference: Inference, owner: Object, name: str) -> Value:
    role = owner.role
    if role in ("module", "loss", "engine"):
        if name == "training":
            return Number("bool")
        if name == "module" and owner.inner:
            return owner.inner[0]
        if name == "device":
            return Object("device")
        if owner.inner and owner.cls is None:
            # attributes of a wrapped or compiled module are looked for in what it holds
            found = [inference.attribute(i, name) for i in owner.inner if isinstance(i, Object) and i.cls is not None]
            result = join(found) if found else UNKNOWN
            if not isinstance(result, Unknown):
                return result
        if name in ("weight", "bias"):
            return Tensor(None, True, "parameter")
        return Method(owner, name)
    if role == "optimizer" and name == "param_groups":
        weights = Items("list", None, Tensor(None, True, "parameter"))
        return Items("list", None, Table((("params", weights),), UNKNOWN))
    if role in ("accelerator", "fabric"):
        if name == "device":
            return Object("device")
        if name in ("is_main_process", "is_local_main_process", "sync_gradients", "is_global_zero"):
            return Number("bool")
        if name in ("num_processes", "process_index", "world_size", "global_rank"):
            return Number("int")
        return Method(owner, name)
    if role == "loader":
        if name == "dataset":
            return owner.inner[0] if owner.inner else Object("dataset")
        if name == "batch_size":
            return Number("int")
        return Method(owner, name)
    if role == "device":
        return Text() if name == "type" else Number("int") if name == "index" else UNKNOWN
    if role == "object":
        return UNKNOWN
    return Method(owner, name)


def arithmetic(op: str, values: list[Value]) -> Value:
    """`+`, `*`, unary minus ... and comparisons of numbers by name."""
    tensors = [v for value in values for v in each(value) if isinstance(v, Tensor)]
    if tensors:
        if any(isinstance(v, Array) for v in values) and len(values) > 1 and not tensors:
            return Array()
        return elementwise(tensors)._replace(origin=next((t.origin for t in tensors), "tensor"))
    if any(isinstance(v, Batch) for v in values):
        batch = next(v for v in values if isinstance(v, Batch))
        return Tensor(batch.device, False, "batch")
    if any(isinstance(v, Array) for v in values):
        return Array()
    constants = [constant(v) for v in values]
    if all(isinstance(c, (int, float)) and not isinstance(c, bool) for c in constants):
        folded = _fold(op, constants)
        if folded is not None:
            return Const(folded, any(isinstance(v, Const) and v.settable for v in values))
        return Number("float" if op == "/" else "number")
    if any(isinstance(c, str) for c in constants) or any(isinstance(v, Text) for v in values):
        return Text()
    if all(isinstance(one, (Number, Const)) for v in values for one in each(v)):
        return Number("float" if op == "/" else "number")
    lists = [v for v in values if isinstance(v, Items)]
    if lists and op == "+":
        if len(lists) == 2 and lists[0].elements is not None and lists[1].elements is not None:
            return Items("list", lists[0].elements + lists[1].elements, UNKNOWN)
        return Items("list", None, join([e for v in lists for e in (v.elements or (v.element,))]))
    if lists and op == "*":
        return lists[0]._replace(
            elements=None, element=join(list(lists[0].elements)) if lists[0].elements else lists[0].element
        )
    # a number and something unknown: a tensor would have to be the unknown one
    return UNKNOWN


def _fold(op: str, constants: list[object]) -> float | int | None:
    numbers = [c for c in constants if isinstance(c, (int, float))]
    try:
        if len(numbers) == 1:
            return -numbers[0] if op == "-" else numbers[0] if op == "+" else None
        a, b = numbers[0], numbers[1]
        if op == "+":
            return a + b
        if op == "-":
            return a - b
        if op == "*":
            return a * b
        if op == "/":
            return a / b
        if op == "//":
            return a // b
        if op == "%":
            return a % b
        if op == "**" and abs(a) < 1000 and abs(b) < 64:
            return a**b
    except (ZeroDivisionError, OverflowError):
        return None
    return None


# ----------------------------------------------------------------------------------------------------- plain Python


def _first(inference: Inference, call: Call, fallback: Value = UNKNOWN) -> Value:
    if call.args:
        first = call.args[0]
        return inference.value(first.value if isinstance(first, Starred) else first)
    for name in ("iterable", "sequence", "iterator"):
        given = call.keyword(name)
        if given is not None:
            return inference.value(given)
    return fallback


def _enumerate(inference: Inference, call: Call) -> Value:
    held = _first(inference, call)
    return Items("iterator", None, Items("tuple", (Number("int"), inference.element(held)), UNKNOWN))


def _zip(inference: Inference, call: Call) -> Value:
    elements: list[Value] = []
    kind = "list"  # of several lists; an iterator where one of them draws batches
    for argument in call.args:
        if isinstance(argument, Starred):
            return Items(
                kind,
                None,
                Items("tuple", None, inference.element(inference.element(inference.value(argument.value)))),
            )
        held = inference.value(argument)
        if not all(isinstance(v, Items) and v.kind in ("list", "tuple", "set") for v in each(held)):
            kind = "iterator"
        elements.append(inference.element(held))
    return Items(kind, None, Items("tuple", tuple(elements), UNKNOWN))


def _list(inference: Inference, call: Call) -> Value:
    if not call.args:
        return Items("list", (), UNKNOWN)
    held = _first(inference, call)
    if isinstance(held, Items):
        return held._replace(kind="list")
    return Items("list", None, inference.element(held))


def _iter(inference: Inference, call: Call) -> Value:
    return Object("iterator", "iter", None, call, (_first(inference, call),))


def _next(inference: Inference, call: Call) -> Value:
    return inference.element(_first(inference, call))


def _range(inference: Inference, call: Call) -> Value:
    return Items("range", None, Number("int"))


def _number(kind: str) -> Callable[[Inference, Call], Value]:
    def convert(inference: Inference, call: Call) -> Value:
        if call.args:
            held = constant(inference.value(call.args[0]))
            if isinstance(held, (int, float)) and not isinstance(held, bool):
                settable = getattr(inference.value(call.args[0]), "settable", False)
                return Const(
                    int(held) if kind == "int" and held == held and abs(held) < 1e18 else float(held), settable
                )
        return Number(kind)

    return convert


def _text(inference: Inference, call: Call) -> Value:
    return Text()


def _sum(inference: Inference, call: Call) -> Value:
    element = inference.element(_first(inference, call))
    return (
        element
        if isinstance(element, (Tensor, Array))
        else Number()
        if isinstance(element, (Number, Const))
        else UNKNOWN
    )


def _extreme(inference: Inference, call: Call) -> Value:
    if len(call.args) > 1:
        values = [inference.value(a) for a in call.args]
        if any(isinstance(v, Unknown) for v in values) and not any(isinstance(v, Tensor) for v in values):
            return UNKNOWN  # `max(0, n)` is not 0
        return join(values)
    return inference.element(_first(inference, call)) if call.args else UNKNOWN


def _default_dict(inference: Inference, call: Call) -> Value:
    """`defaultdict(AverageMeter)`: whatever the key, an object of the project's class."""
    made = inference.value(call.args[0]) if call.args else UNKNOWN
    if isinstance(made, Type):
        return Table((), inference.instance(made.cls))
    if isinstance(made, Routine):
        given = inference.returned(made.function)
        if isinstance(given, Object) and given.cls is not None:
            return Table((), given)
    return UNKNOWN


def _dict(inference: Inference, call: Call) -> Value:
    items: list[tuple[str, Value]] = []
    rest: list[Value] = []
    complete = True
    for argument in call.args:
        held = inference.value(argument)
        if isinstance(held, Table):
            items.extend(held.items)
            rest.append(held.rest)
            complete = complete and held.complete
        else:
            pair = inference.element(held)
            if isinstance(pair, Items) and pair.elements is not None and len(pair.elements) == 2:
                rest.append(pair.elements[1])  # `dict(model.named_parameters())`
            complete = False
    for keyword in call.keywords:
        if keyword.name is None:
            held = inference.value(keyword.value)
            if isinstance(held, Table):
                items.extend(held.items)
                complete = complete and held.complete
            else:
                complete = False
        else:
            items.append((keyword.name, inference.value(keyword.value)))
    return Table(tuple(dict(items).items()), rest[0] if len(rest) == 1 else UNKNOWN, complete)


def _getattr(inference: Inference, call: Call) -> Value:
    if len(call.args) >= 2:
        name = inference.constant(call.args[1])
        if isinstance(name, str):
            found = [inference.attribute(one, name) for one in each(inference.value(call.args[0]))]
            if len(call.args) > 2:
                found.append(inference.value(call.args[2]))
            return join(found)
        return join([member(one.name) for one in each(inference.value(call.args[0])) if isinstance(one, External)])
    return UNKNOWN


# What any one of the things in a package is, as far as it can be told without its name.
_MEMBERS = {
    "torch.optim": "torch.optim.Optimizer",
    "torch.optim.lr_scheduler": "torch.optim.lr_scheduler.LRScheduler",
    "torchvision.models": "torchvision.models.get_model",
}


def member(package: str) -> Value:
    """`getattr(torch.optim, config["optimizer"])`, `models.__dict__[args.arch]`: something that stands for it."""
    return External(_MEMBERS[package]) if package in _MEMBERS else UNKNOWN


def _map(inference: Inference, call: Call) -> Value:
    if len(call.args) == 2:
        function = inference.value(call.args[0])
        if isinstance(function, Routine):
            return Items("iterator", None, inference.returned(function.function))
        if isinstance(function, External) and function.name in ("int", "float", "bool"):
            return Items("iterator", None, Number(function.name))
    return Items("iterator", None, UNKNOWN)


def _filter(inference: Inference, call: Call) -> Value:
    return inference.value(call.args[1]) if len(call.args) == 2 else UNKNOWN


def _bool(inference: Inference, call: Call) -> Value:
    return Number("bool")


def _cycle(inference: Inference, call: Call) -> Value:
    return Object("iterator", "cycle", None, call, (_first(inference, call),))


def _open(inference: Inference, call: Call) -> Value:
    return Object("file", "open", None, call)


def _environ(inference: Inference, call: Call) -> Value:
    if len(call.args) > 1:
        return join([Text(), inference.value(call.args[1])])
    return Text()


def _vars(inference: Inference, call: Call) -> Value:
    return Table((), UNKNOWN)


def _namespace(inference: Inference, call: Call) -> Value:
    return Object("options", "namespace", None, call)


def _none(inference: Inference, call: Call) -> Value:
    return NONE


_BUILTIN_CALLS: dict[str, Callable[[Inference, Call], Value]] = {
    "enumerate": _enumerate,
    "zip": _zip,
    "itertools.zip_longest": _zip,
    "list": _list,
    "tuple": _list,
    "set": _list,
    "sorted": _list,
    "reversed": _first,
    "itertools.islice": _first,
    "itertools.chain": _first,
    "itertools.cycle": _cycle,
    "iter": _iter,
    "next": _next,
    "range": _range,
    "len": _number("int"),
    "int": _number("int"),
    "float": _number("float"),
    "round": _number("number"),
    "abs": _extreme,
    "bool": _bool,
    "isinstance": _bool,
    "hasattr": _bool,
    "callable": _bool,
    "any": _bool,
    "all": _bool,
    "str": _text,
    "repr": _text,
    "format": _text,
    "sum": _sum,
    "max": _extreme,
    "min": _extreme,
    "dict": _dict,
    "collections.defaultdict": _default_dict,
    "collections.OrderedDict": _dict,
    "getattr": _getattr,
    "map": _map,
    "filter": _filter,
    "open": _open,
    "print": _none,
    "os.environ.get": _environ,
    "os.getenv": _environ,
    "os.cpu_count": _number("int"),
    "os.path.join": _text,
    "vars": _vars,
    "types.SimpleNamespace": _namespace,
    "argparse.Namespace": _namespace,
    "easydict.EasyDict": _dict,
    "omegaconf.OmegaConf.load": _namespace,
}

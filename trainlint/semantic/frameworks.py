"""Training frameworks known by name: which of the user's functions they call, and which duties they take over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainlint.semantic import known
from trainlint.semantic.contexts import dotted_name
from trainlint.semantic.facts import Call, Class, Function, Module
from trainlint.semantic.values import Object

if TYPE_CHECKING:
    from trainlint.semantic.inference import Inference

_LIGHTNING_TRAIN = frozenset(
    "training_step on_train_batch_start on_train_batch_end on_before_backward on_after_backward "
    "on_before_optimizer_step optimizer_step".split()
)
_LIGHTNING_EVAL = frozenset(
    "validation_step test_step predict_step on_validation_batch_end on_test_batch_end on_predict_batch_end "
    "on_validation_batch_start on_test_batch_start".split()
)
_HF_HOOKS = frozenset("compute_loss training_step prediction_step".split())
# of a `transformers.TrainerCallback`, once per step; the others come once per epoch, log or run
_HF_CALLBACK = frozenset(
    "on_step_begin on_step_end on_substep_end on_optimizer_step on_pre_optimizer_step on_prediction_step".split()
)


def hook_phase(inference: Inference, function: Function) -> str | None:
    """The phase of a function that a framework calls on every batch, None for others."""
    cls = function.cls
    if cls is not None:
        owner = class_framework(inference, cls)
        if owner == "lightning":
            if function.name in _LIGHTNING_TRAIN:
                return "train"
            if function.name in _LIGHTNING_EVAL:
                return "eval"
        if owner == "hf-trainer" and function.name in _HF_HOOKS:
            return "eval" if function.name == "prediction_step" else "train"
        if function.name in _HF_CALLBACK and _is_hf_callback(inference, cls):
            return "eval" if function.name == "on_prediction_step" else "train"
    return _ignite_phase(inference, function)


def hook_owner(inference: Inference, function: Function) -> str:
    if function.cls is not None:
        owner = class_framework(inference, function.cls)
        if owner == "lightning":
            return "Lightning"
        if owner == "hf-trainer" or _is_hf_callback(inference, function.cls):
            return "the Hugging Face Trainer"
    return "Ignite"


def _is_hf_callback(inference: Inference, cls: Class) -> bool:
    return any(
        isinstance(b, str) and b.startswith("transformers.") and b.endswith(".TrainerCallback")
        for b in inference.bases(cls)
    )


def class_framework(inference: Inference, cls: Class) -> str | None:
    """ "lightning" for a LightningModule or Callback, "hf-trainer" for a subclass of the Hugging Face Trainer."""
    for base in inference.bases(cls):
        if isinstance(base, str):
            if base in known.LIGHTNING_MODULES or base.endswith(".LightningModule"):
                return "lightning"
            if base.startswith(known.LIGHTNING_ROOTS) and base.endswith(".Callback"):
                return "lightning"
            if base in known.HF_TRAINERS or (base.startswith(("transformers.", "trl.")) and base.endswith("Trainer")):
                return "hf-trainer"
    return None


def _ignite_phase(inference: Inference, function: Function) -> str | None:
    module = function.module
    if not imports(module, "ignite"):
        return None
    for decorator in function.decorators:
        if isinstance(decorator, Call) and decorator.attr == "on" and decorator.args:
            event = decorator.args[0]
            if isinstance(event, Call):  # Events.ITERATION_COMPLETED(every=100)
                return None
            if (dotted_name(event) or "").rpartition(".")[2] in ("ITERATION_COMPLETED", "ITERATION_STARTED"):
                return "train"
    for call in module.calls_by_attr.get("Engine", ()):
        held = inference.value(call.args[0]) if call.args else None
        if getattr(held, "function", None) is function:
            return "train"
    return None


def imports(module: Module, root: str) -> bool:
    return any(m == root or m.startswith(root + ".") for statement in module.imports for m in statement.modules)


def in_lightning(inference: Inference, cls: Class | None) -> bool:
    return cls is not None and class_framework(inference, cls) == "lightning"


def is_prepared(value: object) -> bool:
    """An object that went through `accelerator.prepare` or `fabric.setup`."""
    return isinstance(value, Object) and value.name.startswith(("accelerator:", "fabric:"))

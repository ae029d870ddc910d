"""`--try NAME,...` -> candidates: what would be changed, how that is measured, or why it is not run here. Pure but for
reading sources.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from runtime_check.compare.records import Change, Design, Proposal
from runtime_check.evidence import Evidence
from runtime_check.what_if import edits, loaders
from runtime_check.what_if.parts import NO_CUDA, UNKNOWN, Parts, parts_of, share_of
from runtime_check.what_if.records import NAMES, Candidate, Edit, not_run

Maker = Callable[[Evidence, Parts], "list[Candidate]"]

FUSED = ("SGD", "Adam", "AdamW")
_AROUND = "# around the forward and the loss, not around backward()"


def names_of(text: str) -> tuple[str, ...]:
    """The names in `--try`'s argument, in the order of `NAMES`. Raises ValueError for one that there is not."""
    asked = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in asked if name not in (*NAMES, "all")]
    if unknown or not asked:
        known = ", ".join((*NAMES, "all"))
        raise ValueError(f"--try takes some of {known}; not {', '.join(unknown) or 'nothing'}")
    return tuple(name for name in NAMES if "all" in asked or name in asked)


def candidates(names: tuple[str, ...], evidence: Evidence) -> list[Candidate]:
    parts = parts_of(evidence)
    return [candidate for name in names for candidate in _MAKERS[name](evidence, parts)]


def _both(change: Change, design: Design, gain: float) -> tuple[Proposal, Proposal]:
    """Step time and peak memory of one change."""
    return (
        Proposal(change, design, "step_time", gain),
        Proposal(change, Design.MEMORY, "train_peak_bytes", max(gain, UNKNOWN)),
    )


# -- how the model runs


def _amp(evidence: Evidence, parts: Parts) -> list[Candidate]:
    model = parts.trained
    if model is None:
        return not_run("amp", "AMP", "no call of a model was seen in a training step")
    if model["autocast"] or parts.scaler:
        return not_run("amp", "AMP", "the script trains under autocast already")
    device, site = parts.device, model["site"]
    if parts.bfloat16:
        title = "AMP (bfloat16)"
        change = Change("autocast", title, parameters={"dtype": "bfloat16"})
        lines = edits.before(site, f'with torch.autocast("{device}", dtype=torch.bfloat16):  {_AROUND}')
    else:
        title = "AMP (float16 with GradScaler)"
        change = Change("scaled_float16", title, parameters={"dtype": "float16"})
        lines = edits.before(site, f'with torch.autocast("{device}", dtype=torch.float16):  {_AROUND}')
        for backward in parts.backwards[:1]:
            lines += edits.before(backward["site"], "scaler.scale(loss).backward()")
        lines += edits.before(
            site, f'scaler = torch.amp.GradScaler("{device}")  # once; scaler.step(optimizer), update()'
        )
    time, memory = _both(change, Design.TOGGLE, share_of(evidence, "forward", "backward"))
    return [Candidate("amp", title, time, memory, edits=lines)]


def _compile(evidence: Evidence, parts: Parts) -> list[Candidate]:
    model, title = parts.trained, "torch.compile"
    if model is None:
        return not_run("compile", title, "no call of a model was seen in a training step")
    if model["compiled"]:
        return not_run("compile", title, "the model is compiled already")
    time = Proposal(Change("compile", title), Design.PAIRS, "step_time", share_of(evidence, "forward", "backward"))
    lines = edits.before(model["site"], f"{edits.called(model['site'])}.compile()  # once, before the loop")
    remark = (
        "steps after the warm-up, so without the time that compiling takes; bytes cannot be counted in compiled code"
    )
    return [Candidate("compile", title, time, edits=lines, remark=remark)]


def _channels_last(evidence: Evidence, parts: Parts) -> list[Candidate]:
    model, title = parts.trained, "channels_last"
    if model is None:
        return not_run("channels-last", title, "no call of a model was seen in a training step")
    if model["dimensions"] != 4 or not model["convolutions"]:
        return not_run("channels-last", title, "only for two-dimensional convolutions, on inputs of four dimensions")
    if model["channels_last"]:
        return not_run("channels-last", title, "the parameters lie in that order already")
    change = Change("channels_last", title)
    time, memory = _both(change, Design.PAIRS, share_of(evidence, "forward", "backward"))
    name = edits.called(model["site"])
    lines = edits.before(
        model["site"],
        f"{name}.to(memory_format=torch.channels_last)  # once; and the inputs: "
        "x = x.to(memory_format=torch.channels_last)",
    )
    return [Candidate("channels-last", title, time, memory, edits=lines)]


def _checkpoint(evidence: Evidence, parts: Parts) -> list[Candidate]:
    model, title = parts.trained, "checkpointing"
    if model is None:
        return not_run("checkpoint", title, "no call of a model was seen in a training step")
    blocks = model["blocks"]
    if blocks is None:
        return not_run("checkpoint", title, "the model has no Sequential or ModuleList of several elements")
    whole = ".".join(part for part in (model["class"], blocks["name"]) if part)
    title = f"checkpointing the {blocks['count']} elements of {whole}"
    change = Change("checkpoint", title)
    time, memory = _both(change, Design.TOGGLE, 1.0)
    at = [blocks["file"], blocks["line"], ""] if blocks["file"] else model["site"]
    text = f"for each element of {whole}: x = checkpoint(element, x, use_reentrant=False)"
    return [Candidate("checkpoint", title, replace(time, gain=UNKNOWN), memory, edits=edits.before(at, text))]


def _no_grad(evidence: Evidence, parts: Parts) -> list[Candidate]:
    title = "evaluation under no_grad"
    memory = evidence.first(evidence.memory)
    if memory is None or "eval" not in memory["memory"]["phases"]:
        return not_run("no-grad", title, "no evaluation was reached in the steps that ran")
    keeping = [model for model in parts.evaluated if model["grad"]]
    if parts.evaluated and not keeping:
        return not_run("no-grad", title, "the evaluation runs without a graph already")
    proposal = Proposal(Change("eval_no_grad", title), Design.MEMORY, "eval_peak_bytes", 1.0)
    lines = _around_evaluation(keeping[0], parts) if keeping else ()
    return [Candidate("no-grad", title, memory=proposal, edits=lines)]


def _around_evaluation(model: dict[str, Any], parts: Parts) -> tuple[Edit, ...]:
    """At the call of the model; where training calls it on the same line, at the evaluation's loader."""
    shared = parts.trained is not None and parts.trained["site"][:2] == model["site"][:2]
    loader = parts.evaluation_loader
    if not shared:
        return edits.before(model["site"], "with torch.no_grad():  # around the evaluation's loop")
    if loader is None:
        return ()
    return edits.before(loader["site"], "with torch.no_grad():  # around the evaluation's loop over this loader")


# -- settings


def _fused(evidence: Evidence, parts: Parts) -> list[Candidate]:
    title = "fused optimizer"
    able = [one for one in parts.optimizers if one["type"] in FUSED and one["knows_fused"] and one["floating"]]
    if not able:
        kinds = ", ".join(sorted({one["type"] for one in parts.optimizers})) or "none of torch's"
        return not_run("fused", title, f"only for {', '.join(FUSED)}; the script's is {kinds}")
    if all(one["fused"] for one in able):
        return not_run("fused", title, "the optimizer is fused already")
    title = f"fused {able[0]['type']}"
    change = Change("optimizer", title, parameters={"options": {"fused": True, "foreach": False}})
    time, memory = _both(change, Design.TOGGLE, share_of(evidence, "optimizer"))
    lines = edits.call_with(able[0]["site"], FUSED, {"fused": "True"})
    return [Candidate("fused", title, time, memory, edits=lines)]


def _flag(name: str, title: str, flags: dict[str, object], statement: str) -> Maker:
    def make(evidence: Evidence, parts: Parts) -> list[Candidate]:
        if not evidence.cuda:
            return not_run(name, title, NO_CUDA)
        change = Change("flag", title, parameters={"flags": flags})
        gain = share_of(evidence, "forward", "backward")
        lines = edits.before(parts.trained["site"], statement) if parts.trained is not None else ()
        return [Candidate(name, title, Proposal(change, Design.TOGGLE, "step_time", gain), edits=lines)]

    return make


# -- several ranks


def _no_sync(evidence: Evidence, parts: Parts) -> list[Candidate]:
    title = "no_sync on all micro-batches but the last"
    wrapped = [model for model in parts.models if model["wrapper"] == "DistributedDataParallel"]
    if parts.world < 2 or not wrapped:
        return not_run("no-sync", title, "only for DistributedDataParallel on several ranks")
    micro = round(parts.backwards_per_step)
    if micro < 2:
        return not_run("no-sync", title, "each step has one backward: there is nothing to leave out")
    change = Change("no_sync", title, parameters={"micro_batches": micro})
    header = f"with {edits.called(wrapped[0]['site'])}.no_sync():  # around forward and backward, but for the last"
    lines = edits.before(wrapped[0]["site"], header)
    return [Candidate("no-sync", title, Proposal(change, Design.TOGGLE, "step_time", UNKNOWN), edits=lines)]


def _ddp(evidence: Evidence, parts: Parts) -> list[Candidate]:
    title = "DistributedDataParallel in place of DataParallel"
    wrapped = [model for model in parts.models if model["wrapper"] == "DataParallel"]
    if not wrapped:
        return not_run("ddp", title, "the script uses no DataParallel")
    if parts.devices < 2:
        return not_run("ddp", title, f"needs two CUDA devices, and there {_are(parts.devices)} here")
    lines = edits.before(
        wrapped[0]["site"], "one process for each device (torchrun), DistributedDataParallel, a sampler"
    )
    remark = "per sample, all ranks together; the batch is divided among them"
    return [Candidate("ddp", title, ddp_proposal(parts.devices), edits=lines, remark=remark)]


def ddp_proposal(devices: int) -> Proposal:
    title = f"DistributedDataParallel on {devices} processes"
    launcher = f"torchrun --standalone --nproc_per_node={devices}"
    change = Change("distributed", title, parameters={"launcher": launcher})
    return Proposal(change, Design.SEQUENTIAL, "sample_time", UNKNOWN)


def _are(count: int) -> str:
    return {0: "is none", 1: "is one"}.get(count, f"are {count}")


_MAKERS: dict[str, Maker] = {
    "amp": _amp,
    "workers": loaders.workers,
    "persistent-workers": loaders.persistent,
    "prefetch-factor": loaders.prefetch,
    "pin-memory": loaders.pinned,
    "compile": _compile,
    "channels-last": _channels_last,
    "fused": _fused,
    "tf32": _flag(
        "tf32",
        "TF32",
        {"backends.cuda.matmul.allow_tf32": True, "backends.cudnn.allow_tf32": True},
        'torch.set_float32_matmul_precision("high")  # once, at the start',
    ),
    "batch-size": loaders.batch_size,
    "checkpoint": _checkpoint,
    "cudnn-benchmark": _flag(
        "cudnn-benchmark",
        "cudnn.benchmark",
        {"backends.cudnn.benchmark": True},
        "torch.backends.cudnn.benchmark = True  # once, at the start",
    ),
    "no-grad": _no_grad,
    "no-sync": _no_sync,
    "ddp": _ddp,
}

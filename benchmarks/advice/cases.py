"""Which advice is tried on which script. One case is one run of `verify` that answers several pieces of advice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from runtime_check.compare.proposals import PREFETCH
from runtime_check.compare.records import Change, Design, Proposal
from runtime_check.what_if.records import Candidate

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "verify"


@dataclass(frozen=True)
class Case:
    """`tried`: names of `--try`. `more`: changes that `--try` has no name for."""

    name: str
    script: str
    arguments: tuple[str, ...] = ()
    tried: tuple[str, ...] = ()
    more: tuple[Callable[[], Candidate], ...] = ()
    launcher: str | None = None
    limit_eval_batches: int = 8
    budget_s: float = 1200.0  # of comparing, at most
    devices: int = 0  # CUDA devices that it takes
    note: str = ""  # what a reader has to know of the script as it is run here


def marked(script: str, mark: str) -> tuple[str, int]:
    """The script's text, and the row (from 1) that ends in the comment `# advice: <mark>`."""
    text = (FIXTURES / script).read_text(encoding="utf-8")
    row = next(n for n, line in enumerate(text.splitlines(), 1) if line.endswith(f"# advice: {mark}"))
    return text, row


def source_change(script: str, mark: str, instead: str, title: str) -> Change:
    """The script with another statement on the marked line, served by the overlay."""
    text, row = marked(script, mark)
    lines = text.splitlines(keepends=True)
    indent = lines[row - 1][: len(lines[row - 1]) - len(lines[row - 1].lstrip())]
    lines[row - 1] = f"{indent}{instead}\n"
    path = str(FIXTURES / script)
    return Change("source", title, path, (row, row), overlay={path: "".join(lines)})


def two_workers(script: str) -> Callable[[], Candidate]:
    """What `--try workers` tries, with this count alone."""

    def make() -> Candidate:
        _, row = marked(script, "workers")
        title, options = "num_workers=2", {"num_workers": 2}
        change = Change("loader", title, str(FIXTURES / script), (row, row), {"options": options})
        return Candidate("workers", title, Proposal(change, Design.PAIRS, "step_time", 1.0, block=2 * PREFETCH + 1))

    return make


def set_to_none() -> Candidate:
    title = "zero_grad(set_to_none=True)"
    change = Change("set_to_none", title)
    return Candidate(
        "set-to-none",
        title,
        Proposal(change, Design.TOGGLE, "step_time", 0.5),
        Proposal(change, Design.MEMORY, "train_peak_bytes", 0.5),
    )


def accumulation() -> Candidate:
    title = "4 micro-batches of 4 in place of a batch of 16"
    change = source_change("resnet.py", "accumulation", "micro_batches = 4", title)
    return Candidate(
        "accumulation",
        title,
        Proposal(change, Design.PAIRS, "step_time", 0.5, computes=True),
        Proposal(change, Design.MEMORY, "train_peak_bytes", 0.5),
    )


def sequential() -> Candidate:
    title = "blocks in an nn.Sequential"
    change = source_change("resnet.py", "sequential", "Block = SequentialBlock", title)
    return Candidate("sequential", title, Proposal(change, Design.PAIRS, "step_time", 0.5, computes=True))


def two_ranks() -> Candidate:
    title = "2 ranks (DistributedDataParallel, gloo)"
    parameters = {"launcher": "torchrun --nproc_per_node=2"}
    change = Change("source", title, parameters=parameters)  # no other text: only another launcher
    return Candidate("ranks", title, Proposal(change, Design.SEQUENTIAL, "sample_time", 0.5))


def at(script: str, mark: str, kind: str, title: str) -> Callable[[], Candidate]:
    """A change that is toggled at the marked line."""

    def make() -> Candidate:
        _, row = marked(script, mark)
        change = Change(kind, title, str(FIXTURES / script), (row, row))
        return Candidate(mark, title, Proposal(change, Design.TOGGLE, "step_time", 0.5))

    return make


def float16() -> Candidate:
    title = "AMP (float16 with GradScaler)"
    change = Change("scaled_float16", title, parameters={"dtype": "float16"})
    return Candidate(
        "float16",
        title,
        Proposal(change, Design.TOGGLE, "step_time", 0.5),
        Proposal(change, Design.MEMORY, "train_peak_bytes", 0.5),
    )


READING = ("--reading", "0.003", "--batch-size", "8")

CASES = (
    Case("gpt", "gpt.py", tried=("amp", "checkpoint", "no-grad"), more=(set_to_none,)),
    Case("resnet", "resnet.py", tried=("amp", "no-grad"), more=(accumulation,)),
    Case(
        "workers-reading",
        "resnet.py",
        READING,
        more=(two_workers("resnet.py"),),
        note="each picture waits 3 ms for a slow disk",
    ),
    Case(
        "persistent",
        "resnet.py",
        ("--pictures", "128", "--workers", "2"),
        ("persistent-workers",),
        limit_eval_batches=1,
        note="epochs of 8 batches, 2 workers",
    ),
    Case(
        "prefetch",
        "resnet.py",
        (*READING, "--workers", "2"),
        ("prefetch-factor",),
        note="each picture waits 3 ms for a slow disk, 2 workers",
    ),
    Case("sequential", "resnet.py", ("--plain",), more=(sequential,), note="without augmentation"),
    Case("ranks", "gpt.py", more=(two_ranks,)),
    Case("detector", "detector.py", tried=("amp", "checkpoint", "no-grad")),
    Case("workers-decoding", "detector.py", more=(two_workers("detector.py"),), note="pictures are decoded"),
    Case(
        "no-sync",
        "gpt.py",
        ("--micro-batches", "4"),
        ("no-sync",),
        launcher="torchrun --nproc_per_node=2",
        note="2 ranks, gloo, 4 micro-batches a step",
    ),
    Case("batch-size", "resnet.py", ("--batch-size", "12"), ("batch-size",), note="a batch of 12"),
    Case("compile-gpt", "gpt.py", tried=("compile",)),
    Case("compile-resnet", "resnet.py", tried=("compile",)),
)

_ON_CUDA = ("--device", "cuda", "--size", "256", "--width", "32", "--batch-size", "32", "--workers", "4")

#: Run by `--gpu`, and by the tests marked `gpu`.
GPU_CASES = (
    Case(
        "gpu-detector",
        "detector.py",
        _ON_CUDA,
        ("amp", "pin-memory", "tf32", "cudnn-benchmark", "compile"),
        more=(float16, at("detector.py", "item", "elide_sync", "without loss.item()")),
        devices=1,
    ),
    Case(
        "gpu-non-blocking",
        "detector.py",
        (*_ON_CUDA, "--pin-memory"),
        more=(at("detector.py", "non_blocking", "non_blocking", "non_blocking=True"),),
        devices=1,
        note="pinned memory",
    ),
    Case(
        "gpu-ranks",
        "gpt.py",
        ("--device", "cuda", "--width", "512", "--depth", "8", "--context", "256"),
        more=(two_ranks,),
        devices=2,
        note="NCCL",
    ),
    Case("gpu-data-parallel", "data_parallel.py", tried=("ddp",), devices=2),
)

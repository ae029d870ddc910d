"""The one bottleneck that is named, and what is said when memory ran out: on results made by hand, some of a GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from test_verify_measures import result

from runtime_check import messages
from runtime_check.card import read_card, side_by_side_fails
from runtime_check.diagnosis import diagnose
from runtime_check.evidence import Evidence, Verdict
from runtime_check.experiments.loader import loader_start, loader_wait
from runtime_check.findings import Finding
from runtime_check.launch import Outcome, Pass
from runtime_check.machine import Utilisation


def outcome(*results: dict[str, Any], name: str = "timing") -> Outcome:
    return Outcome(Pass(name), list(results), 0, "script", 1.0, "")


def evidence(wait: float = 0.0, cuda: bool = False, syncs: float = 0.0, reserved: float | None = None) -> Evidence:
    sums = {
        str(n): {"loader_ns": wait * 10e6, "forward_ns": 2e6, "backward_ns": 4e6, "optimizer_ns": 1e6}
        for n in range(20)
    }
    loaders = [
        {
            "site": ["train.py", 7, "main"], "role": "train", "workers": 0, "wait_ns": int(wait * 80e6), "batches": 9, "start_ns": [1],
            "iterators": 1, "length": 100, "batch_size": 4, "ended_early": 0,
        }
    ]  # fmt: skip
    timed = result([10.0] * 12, sums=sums, loaders=loaders, cpu_ns=[0] * 13)
    site = {
        "file": "train.py", "line": 9, "function": "f", "what": "item", "calls": int(syncs * 10), "steps": 10,
        "eval_calls": 0, "eval_batches": 0,
    }  # fmt: skip
    memory = result([10.0] * 12)
    if reserved is not None:
        memory["cuda_memory"] = {"steps": [{"reserved": int(reserved * 1000)}], "total": 1000, "by_line": []}
    return Evidence(
        min_effect=0.02,
        cuda=cuda,
        observed=outcome(result([10.0] * 12, syncs=[site] if syncs else [])),
        memory=outcome(memory),
        broken_down=outcome(result([10.0] * 12, sums=sums)),
        timed=outcome(timed),
    )


def test_waiting_for_data_comes_before_compute() -> None:
    found = diagnose(evidence(wait=0.4), None)
    assert found.bound == "input-bound"
    assert "40%" in found.because
    assert "train.py:7" in found.next_step


def test_a_stall_that_only_one_launch_saw_is_no_wait_for_data() -> None:
    """Under load a stall of the machine falls into a batch now and then."""
    seen, unseen = evidence(wait=0.4), evidence(wait=0.02)
    mixed = replace(seen, broken_down=unseen.broken_down)
    assert diagnose(mixed, None).bound == "unknown"
    assert "waits 2% of its time for data, in another 40%" in diagnose(mixed, None).because
    near = replace(evidence(wait=0.16), broken_down=evidence(wait=0.1).broken_down)
    assert diagnose(near, None).bound == "compute-bound"
    assert "waiting for data takes 10% to 16%" in diagnose(near, None).because
    found = Finding("TL303", "", "train.py", "train.py", 7, 7, "loader")
    assert loader_wait(found, seen).verdict is Verdict.CONFIRMED
    answer = loader_wait(found, replace(mixed, min_effect=0.03))
    assert answer.verdict is Verdict.INCONCLUSIVE
    assert "the launches disagree" in answer.why
    assert loader_wait(found, evidence(wait=0.001)).verdict is Verdict.REFUTED


def test_a_wait_shorter_than_the_hand_over_of_a_worker_is_no_reason_for_workers() -> None:
    """Half of a step of 0.4 ms: a worker would take longer."""
    seen = evidence(wait=0.4)
    assert seen.timed is not None
    loader = seen.timed.results[0]["loaders"][0]
    found = Finding("TL303", "", "train.py", "train.py", 7, 7, "loader")
    assert "num_workers=2" in diagnose(seen, None).next_step
    loader["wait_ns"] = 8 * 200_000  # eight batches after the first
    answer = loader_wait(found, seen)
    assert answer.verdict is Verdict.INCONCLUSIVE
    assert "0.20 ms a batch" in answer.why
    assert diagnose(seen, None).bound == "input-bound"
    assert "num_workers" not in diagnose(seen, None).next_step
    assert "larger batches" in diagnose(seen, None).next_step


@pytest.mark.parametrize(
    ("cores", "busy", "cuda", "verdict"),
    [
        (1, 1.0, False, Verdict.INCONCLUSIVE),
        (1, 0.6, False, Verdict.CONFIRMED),  # it sleeps, as on a slow disk
        (2, 1.0, False, Verdict.CONFIRMED),
        (2, 1.9, False, Verdict.INCONCLUSIVE),
        (1, 1.0, True, Verdict.CONFIRMED),
    ],
)
def test_workers_need_a_core_to_work_on(
    cores: int, busy: float, cuda: bool, verdict: Verdict, monkeypatch: pytest.MonkeyPatch
) -> None:
    from runtime_check.experiments import loader

    monkeypatch.setattr(loader, "usable_cpus", lambda: cores)
    seen = evidence(wait=0.4, cuda=cuda)
    assert seen.timed is not None
    made = seen.timed.results[0]
    made["cpu_ns"] = [busy * boundary for boundary in made["boundaries_ns"]]
    answer = loader_wait(Finding("TL303", "", "train.py", "train.py", 7, 7, "loader"), seen)
    assert answer.verdict is verdict
    assert ("busy all the time" in answer.why) is (verdict is Verdict.INCONCLUSIVE)
    assert ("less work per item" in diagnose(seen, None).next_step) is (verdict is Verdict.INCONCLUSIVE)


def test_the_hand_over_itself_is_no_reason_for_more_workers() -> None:
    seen = evidence(wait=0.4)
    assert seen.timed is not None
    seen.timed.results[0]["loaders"][0].update(workers=2, wait_ns=8 * 850_000)
    assert "larger batches, or num_workers=0 at train.py:7" in diagnose(seen, None).next_step
    seen.timed.results[0]["loaders"][0]["wait_ns"] = 8 * 4_000_000
    assert "more than num_workers=2" in diagnose(seen, None).next_step


@pytest.mark.parametrize(
    ("micro", "verdict", "said"),
    [(1, Verdict.REFUTED, "100 batches of 10.0 ms: 1.5%"), (4, Verdict.CONFIRMED, "100 batches of 2.5 ms: 6% of")],
)
def test_a_start_is_compared_with_batches_not_with_steps_of_several(micro: int, verdict: Verdict, said: str) -> None:
    """Under gradient accumulation an epoch of 100 batches is 25 steps."""
    seen = evidence()
    assert seen.timed is not None
    loader = {**seen.timed.results[0]["loaders"][0], "start_ns": [15_000_000] * 2, "iterators": 2}
    loader.update(batches=13 * micro, length=100)
    seen.timed.results[0]["loaders"] = [loader]
    found = Finding("TL305", "", "train.py", "train.py", 7, 7, "loader")
    answer = loader_start(found, replace(seen, min_effect=0.03))
    assert said in answer.why
    assert answer.verdict is verdict
    loader["role"] = "eval"
    answer = loader_start(found, replace(seen, min_effect=0.03))
    assert answer.verdict is Verdict.INCONCLUSIVE
    assert "not the one that is trained on" in answer.why


def test_the_wait_for_a_training_loader_says_nothing_of_another_ones() -> None:
    waiting = evidence(wait=0.4)
    assert waiting.timed is not None
    waiting.timed.results[0]["loaders"][0]["role"] = "eval"
    found = Finding("TL303", "", "train.py", "train.py", 7, 7, "loader")
    assert loader_wait(found, waiting).verdict is Verdict.INCONCLUSIVE


def test_otherwise_it_is_compute_and_the_largest_part_is_named() -> None:
    found = diagnose(evidence(), None)
    assert found.bound == "compute-bound"
    assert "backward takes 40%" in found.because


def test_a_step_that_is_mostly_in_no_known_part_is_not_called_computing() -> None:
    """It may only wait: for a disk, a service, `time.sleep`."""
    seen = evidence()
    assert diagnose(seen, None).bound == "compute-bound"  # 30 % in no known part
    assert seen.broken_down is not None
    for sums in seen.broken_down.results[0]["sums"].values():
        sums.update(forward_ns=1e6, backward_ns=1e6, optimizer_ns=1e6)
    found = diagnose(seen, None)
    assert found.bound == "unknown"
    assert "other takes 70%" in found.because
    assert "look at what the loop does between them" in found.next_step
    assert diagnose(replace(seen, cuda=True), None).bound == "compute-bound"  # there the host waits for the device


def test_an_optimizer_with_a_closure_is_not_told_to_become_a_fused_one() -> None:
    seen = evidence()
    assert seen.timed is not None
    assert seen.broken_down is not None
    for sums in seen.broken_down.results[0]["sums"].values():
        sums["optimizer_ns"] = 8e6
        sums["forward_ns"] = sums["backward_ns"] = 1e6
    assert "a fused or foreach optimizer" in diagnose(seen, None).next_step
    seen.timed.results[0].update(anchor=0, optimizers=[{"type": "LBFGS", "steps": 12}])
    assert "fused" not in diagnose(seen, None).next_step
    assert "max_iter" in diagnose(seen, None).next_step


def test_waits_of_the_host_count_only_where_a_gpu_is_idle_meanwhile() -> None:
    busy, idle = Utilisation(gpu=0.95), Utilisation(gpu=0.3)
    assert diagnose(evidence(cuda=True, syncs=2), idle).bound == "sync-bound"
    assert diagnose(evidence(cuda=True, syncs=2), busy).bound == "compute-bound"
    assert diagnose(evidence(cuda=False, syncs=2), None).bound == "compute-bound"


def test_an_idle_gpu_without_waits_asks_for_larger_pieces() -> None:
    found = diagnose(evidence(cuda=True), Utilisation(gpu=0.2))
    assert found.bound == "compute-bound"
    assert "the GPU is busy 20% of the time" in found.next_step


def test_a_card_that_is_nearly_full_comes_first() -> None:
    found = diagnose(evidence(wait=0.4, cuda=True, reserved=0.95), None)
    assert found.bound == "memory-bound"
    assert "95%" in found.because


def test_out_of_memory_says_where_what_and_which_remedy() -> None:
    error = {
        "type": "OutOfMemoryError",
        "message": "CUDA out of memory. Tried to allocate 2.00 GiB.\nmore",
        "site": ["train.py", 12, "main"],
        "out_of_memory": True,
        "memory": {
            "alive": {
                "bytes": 3 * 2**30,
                "by_category": {"activations": 2 * 2**30, "parameters": 2**30},
                "by_line": [{"file": "model.py", "line": 5, "bytes": 2 * 2**30, "category": "activations"}],
            }
        },
    }
    lines = messages.out_of_memory(error, cuda=True)
    assert "at train.py:12: CUDA out of memory. Tried to allocate 2.00 GiB." in lines[0]
    assert "activations 2.0 GiB" in lines[1]
    assert "model.py:5" in lines[2]
    assert "activation checkpointing" in lines[-1]


TEXT = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.00 GiB of which 1.00 GiB is free. "
    "{processes}Of the allocated memory 37.00 GiB is allocated by PyTorch, and 512.00 MiB is reserved by PyTorch but "
    "unallocated. If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF"
)
BESIDE = "Process 77 has 39.00 GiB memory in use. "
OURS = "Including non-PyTorch memory, this process has 38.00 GiB memory in use. "


def test_the_card_is_read_from_cudas_own_words() -> None:
    card = read_card(TEXT.format(processes=BESIDE + OURS))
    assert card is not None
    assert (card.tried, card.total, card.free) == (2 * 2**30, 79 * 2**30, 2**30)
    assert (card.ours, card.others) == (38 * 2**30, {77: 39 * 2**30})
    assert read_card("CUDA out of memory. Tried to allocate 2.00 GiB") is None
    assert read_card("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes") is None


def test_in_a_container_the_process_does_not_know_itself_by_its_number() -> None:
    """Of the two that are named, the smaller one that still holds what torch has allocated is this one."""
    card = read_card(TEXT.format(processes=BESIDE + "Process 78 has 38.00 GiB memory in use. "))
    assert card is not None
    assert (card.ours, card.others) == (38 * 2**30, {77: 39 * 2**30})
    alone = read_card(TEXT.format(processes="Process 78 has 38.00 GiB memory in use. "))
    assert alone is not None
    assert alone.others == {}


def test_out_of_memory_on_a_shared_card_names_who_holds_it() -> None:
    error = {"type": "OutOfMemoryError", "message": TEXT.format(processes=BESIDE + OURS), "site": ["train.py", 12, "f"]}
    text = "\n".join(messages.out_of_memory(error, cuda=True))
    assert "process 77 holds 39.0 GiB of its 79.0 GiB" in text
    assert "--device cuda:N" in text
    alone = {**error, "message": TEXT.format(processes=OURS)}
    assert "the card is shared" not in "\n".join(messages.out_of_memory(alone, cuda=True))
    small = {**error, "message": TEXT.format(processes="Process 77 has 500.00 MiB memory in use. " + OURS)}
    assert "the card is shared" not in "\n".join(messages.out_of_memory(small, cuda=True))  # would not fit either


def test_two_runs_that_do_not_fit_side_by_side_go_one_after_the_other() -> None:
    shared, alone = TEXT.format(processes=BESIDE + OURS), TEXT.format(processes=OURS)
    said = side_by_side_fails([shared], one_alone_fits=True)
    assert said is not None
    assert "38.0 GiB and 39.0 GiB of 79.0 GiB" in said
    assert "one after the other" in said
    assert side_by_side_fails([shared], one_alone_fits=False) is None
    assert side_by_side_fails([alone], one_alone_fits=True) is None
    assert side_by_side_fails([], one_alone_fits=True) is None


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("OutOfMemoryError", "CUDA out of memory. Tried to allocate 20.00 MiB", True),
        ("RuntimeError", "[enforce fail at alloc_cpu.cpp:115] . DefaultCPUAllocator: can't allocate memory", True),
        ("MemoryError", "", True),
        ("RuntimeError", "mat1 and mat2 shapes cannot be multiplied", False),
    ],
)
def test_out_of_memory_is_told_from_other_errors(probe_module: Any, kind: str, text: str, expected: bool) -> None:
    assert probe_module("script_end").is_out_of_memory(kind, text) is expected


def test_missing_ranks_are_named() -> None:
    two = [result([1.0] * 9, rank=rank, world=4) for rank in (0, 1)]
    assert messages.missing_ranks(outcome(*two)) == "2 of 4 ranks reported; missing ranks 2, 3."
    assert messages.missing_ranks(outcome(result([1.0] * 9))) is None


def test_a_busy_machine_is_said() -> None:
    assert "load 5.1 on 2 cores" in (messages.busy_machine(5.1, 2) or "")
    assert "--threads 1" in (messages.busy_machine(5.1, 2) or "")
    assert "--threads" not in (messages.busy_machine(5.1, 2, threads=1) or "")
    assert messages.busy_machine(1.0, 2) is None


@pytest.mark.parametrize(
    "text",
    [
        "AssertionError: Torch not compiled with CUDA enabled",
        "RuntimeError: Found no NVIDIA driver on your system.",
        "ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!",
        "RuntimeError: Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False",
    ],
)
def test_scripts_that_need_cuda_are_known_by_what_torch_says(text: str) -> None:
    failed = Outcome(Pass("observe"), [], 1, "script", 1.0, text)
    assert messages.needs_cuda(failed)
    assert not messages.needs_cuda(Outcome(Pass("observe"), [], 1, "script", 1.0, "KeyError: 'lr'"))


@pytest.mark.parametrize(("micro_batches", "late"), [(1, False), (4, True)])
def test_a_delay_of_each_micro_batch_is_told_by_what_one_of_them_takes(micro_batches: int, late: bool) -> None:
    """10 ms of a step of 100 ms are no straggler, but of one that is made of four of them they are."""

    def rank(number: int, to_backward_ms: float) -> dict[str, Any]:
        sums = {str(n): {"to_backward_ns": to_backward_ms * 1e6} for n in range(20)}
        optimizers = [{"type": "SGD", "steps": 12}]
        turns = {"optimizers": optimizers, "anchor": 0, "backwards": 12 * micro_batches}
        return result([100.0] * 12, sums=sums, rank=number, world=2, **turns)

    ranks = outcome(rank(0, 1.5), rank(1, 11.5))
    found = diagnose(replace(evidence(), timed=ranks), None)
    assert any("rank 1 is a straggler" in note for note in found.notes) is late


@pytest.mark.parametrize(
    ("steps", "slow", "late"),
    [(12, [9.0], True), (12, [0.5, 9.0, 0.5, 9.0, 9.0], False), (4, [9.0], False)],
)
def test_a_straggler_is_late_on_most_steps(steps: int, slow: list[float], late: bool) -> None:
    """Ranks that share a core come late by turns: a step in which the other one ran first says nothing."""

    def rank(number: int, ms: list[float]) -> dict[str, Any]:
        sums = {str(n): {"to_backward_ns": ms[n % len(ms)] * 1e6} for n in range(20)}
        return result([20.0] * steps, sums=sums, rank=number, world=2)

    found = diagnose(replace(evidence(), timed=outcome(rank(0, [1.0]), rank(1, slow))), None)
    assert any("rank 1 is a straggler" in note for note in found.notes) is late

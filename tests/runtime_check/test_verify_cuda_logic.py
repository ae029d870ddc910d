"""What only runs on CUDA, as far as it can be tried without: its logic on recorded input. The rest is marked `gpu`."""

from __future__ import annotations

import types
import warnings
from typing import Any

import pytest


def event(action: str, address: int, size: int, line: int, file: str = "train.py") -> dict[str, Any]:
    frames = [{"filename": "/lib/torch/nn/functional.py", "line": 1}, {"filename": file, "line": line}]
    return {"action": action, "addr": address, "size": size, "frames": frames}


def test_the_allocators_history_is_replayed_to_its_peak(probe_module: Any) -> None:
    trace = [
        event("alloc", 1, 100, 10),
        event("alloc", 2, 300, 20),
        event("free_requested", 2, 300, 20),
        event("free_completed", 2, 300, 20),
        event("alloc", 3, 250, 30),
        event("alloc", 4, 100, 30),
        event("free_completed", 4, 100, 30),
    ]
    found = probe_module("memory_cuda").peak_by_line({"device_traces": [trace]}, "/lib/torch")
    assert found == [
        {"file": "train.py", "line": 30, "bytes": 350},
        {"file": "train.py", "line": 10, "bytes": 100},
    ]


def test_torch_s_warnings_of_waits_are_counted_and_not_shown(
    probe_module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs, clock = probe_module("syncs"), probe_module("clock")
    import sys

    probe = sys.modules["_trainlint_probe"]
    monkeypatch.setattr(probe.STATE, "active", True)
    monkeypatch.setattr(clock.CLOCK, "warmup", 1)
    monkeypatch.setattr(clock.CLOCK, "boundaries", [1, 2, 3])
    monkeypatch.setattr(clock.CLOCK, "on_boundary", [])
    monkeypatch.setattr(syncs, "SITES", {})
    monkeypatch.setattr(probe.STATE, "torch", types.SimpleNamespace(__file__="/lib/torch/__init__.py"))
    modes: list[str] = []
    shown: list[str] = []
    fake = types.SimpleNamespace(cuda=types.SimpleNamespace(set_sync_debug_mode=modes.append))
    with warnings.catch_warnings():
        monkeypatch.setattr(warnings, "showwarning", lambda message, *rest, **more: shown.append(str(message)))
        syncs.watch_cuda(fake)
        (arm,) = clock.CLOCK.on_boundary
        arm(0)
        assert modes == []
        arm(1)
        assert modes == ["warn"]
        warnings.filterwarnings("ignore")  # the script does so in between
        arm(2)
        warnings.warn(f"{syncs.SYNC_WARNING} (Triggered internally)", UserWarning, stacklevel=1)
        warnings.filterwarnings("always")
        warnings.warn("something of the script's own", UserWarning, stacklevel=1)
    assert shown == ["something of the script's own"]
    ((key, count),) = syncs.SITES.items()
    assert key[0] == __file__
    assert key[3] == "sync"
    assert count.calls == 1


@pytest.mark.gpu
@pytest.mark.torch
def test_waits_for_a_real_device_are_found_at_their_lines(launch: Any) -> None:
    from verify_runs import SCRIPTS

    (result,) = launch("hard_coded_cuda.py", "syncs").results
    lines = (SCRIPTS / "hard_coded_cuda.py").read_text().splitlines()
    found = {(lines[site["line"] - 1].strip().split("(")[0], site["what"]) for site in result["syncs"]}
    assert ("print", "item") in found
    assert ("torch.cuda.synchronize", "torch.cuda.synchronize") in found
    assert result["syncs_kind"] == "cuda"


@pytest.mark.gpu
@pytest.mark.torch
def test_each_kind_of_wait_is_counted_once_a_step_at_its_line(launch: Any) -> None:
    from verify_runs import SCRIPTS

    (result,) = launch("waits_for_device.py", "syncs").results
    lines = (SCRIPTS / "waits_for_device.py").read_text().splitlines()
    waiting = {n for n, line in enumerate(lines, 1) if "# waits:" in line}
    steps = len(result["boundaries_ns"]) - 1 - result["warmup"]
    counted = {site["line"]: site["calls"] for site in result["syncs"]}
    assert set(counted) == waiting
    assert all(abs(calls - steps) <= 1 for calls in counted.values()), counted


@pytest.mark.gpu
@pytest.mark.torch
def test_the_allocators_peak_and_the_counted_bytes_are_near_each_other(launch: Any) -> None:
    """PyTorch's own test of its tracker allows ten percent."""
    (result,) = launch("hard_coded_cuda.py", "memory").results
    counted = result["memory"]["peak"]
    allocated = max(step["allocated"] for step in result["cuda_memory"]["steps"])
    assert counted == pytest.approx(allocated, rel=0.25)


@pytest.mark.gpu
@pytest.mark.torch
def test_the_replayed_history_comes_to_the_allocators_peak(launch: Any) -> None:
    """What was alive before the history began is not in it: the replay holds no more than the peak."""
    memory = launch("hard_coded_cuda.py", "memory").results[0]["cuda_memory"]
    peak = max(step["allocated"] for step in memory["steps"])
    assert memory["by_line"]
    assert 0 < sum(entry["bytes"] for entry in memory["by_line"]) <= peak


@pytest.mark.gpu
@pytest.mark.torch
def test_step_times_on_the_device_are_taken_from_its_events(launch: Any) -> None:
    (result,) = launch("hard_coded_cuda.py").results
    assert result["device"]
    assert len(result["cuda_ms"]) == len(result["boundaries_ns"]) - 1
    wall_ms = (result["boundaries_ns"][-1] - result["boundaries_ns"][0]) / 1e6
    assert sum(result["cuda_ms"]) == pytest.approx(wall_ms, rel=0.2)  # both clocks span the same steps

"""What only a GPU can settle, each as a test that runs where there is one (`-s` shows the figures).

Waits of each kind at their lines, and step times from events against the wall, are in test_verify_cuda_logic.py.
"""

from __future__ import annotations

import itertools
import json
import math
import statistics
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from verify_runs import SCRIPTS, Launcher

from runtime_check.compare.intervals import t_interval
from runtime_check.compare.pairs import run_pair
from runtime_check.compare.records import Change, Design, Proposal
from runtime_check.compare.replicates import toggle_rounds
from runtime_check.compare.sizes import Size
from runtime_check.compare.toggle import Toggles
from runtime_check.launch import Outcome, Pass, Session
from runtime_check.what_if.predict import predict

pytestmark = [pytest.mark.gpu, pytest.mark.torch]

SCRIPT = "on_a_card.py"
RESNET, GPT = ("--model", "resnet"), ("--model", "gpt", "--side", "256", "--width", "256")
MODELS = pytest.mark.parametrize("arguments", [RESNET, GPT], ids=["resnet", "gpt"])
PROCESSES = 5


def row(text: str) -> int:
    return next(n for n, line in enumerate((SCRIPTS / SCRIPT).read_text().splitlines(), 1) if text in line)


def at(kind: str, text: str, **parameters: Any) -> Change:
    line = row(text)
    return Change(kind, f"{kind} at line {line}", str(SCRIPTS / SCRIPT), (line, line), parameters)


def only(outcome: Outcome) -> dict[str, Any]:
    assert outcome.stepped, (outcome.why, outcome.exit_code, outcome.log_tail)
    assert outcome.probe_errors == []
    return outcome.results[0]


@pytest.fixture
def session(launch: Launcher, request: pytest.FixtureRequest) -> Any:
    made: list[Session] = []

    def make(arguments: tuple[str, ...], **changes: Any) -> Session:
        made.append(Session(launch.options(SCRIPT, arguments=arguments, **changes)))
        return made[-1]

    yield make
    for one in made:
        one.close()


def run(program: str) -> dict[str, float]:
    """In a process of its own, since it changes torch for good."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    print(found)
    return found


STEP = """
import json, statistics, time, torch
from torch import nn
model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
inputs = torch.randn(256, 512, device="cuda")
def step():
    optimizer.zero_grad()
    model(inputs).square().mean().backward()
    optimizer.step()
def step_ms(steps=100):
    times = []
    for _ in range(steps):
        torch.cuda.synchronize()
        begun = time.perf_counter_ns()
        step()
        torch.cuda.synchronize()
        times.append((time.perf_counter_ns() - begun) / 1e6)
    return statistics.median(times)
step_ms()
"""


def test_the_callback_of_device_synchronize_is_called_and_cheap() -> None:
    """It closes the gap that sync debug mode leaves: waits for the whole device, also from C++."""
    found = run(
        STEP
        + """
plain = step_ms()
from torch.cuda import _gpu_trace
calls = []
_gpu_trace.register_callback_for_device_synchronization(lambda: calls.append(1))
torch._C._activate_gpu_trace()
for _ in range(3):
    torch.cuda.synchronize()
called = len(calls)
print(json.dumps({"calls": called, "plain_ms": plain, "traced_ms": step_ms()}))
"""
    )
    assert found["calls"] == 3
    assert found["traced_ms"] < 2 * found["plain_ms"]


def test_the_cost_of_the_allocators_history_is_known() -> None:
    """The memory pass pays it; no step time is taken from there."""
    found = run(
        STEP
        + """
plain = step_ms()
torch.cuda.memory._record_memory_history(max_entries=200_000, stacks="python")
recorded = step_ms()
events = sum(len(trace) for trace in torch.cuda.memory._snapshot()["device_traces"])
torch.cuda.memory._record_memory_history(enabled=None)
print(json.dumps({"plain_ms": plain, "recorded_ms": recorded, "again_ms": step_ms(), "events": events}))
"""
    )
    assert found["events"] > 0
    assert found["recorded_ms"] < 5 * found["plain_ms"]
    assert found["again_ms"] < 1.5 * found["plain_ms"]


@MODELS
def test_a_read_on_each_step_is_left_out_and_put_back(session: Any, arguments: tuple[str, ...]) -> None:
    """What leaving `.item()` out gains, and by how much nothing at all moves the same measure."""
    proposal = Proposal(at("elide_sync", "total += loss.item()"), Design.TOGGLE, "step_time")
    toggles = Toggles(session(arguments), [proposal], Size(block=20, rounds=10, seconds=120.0, slots=2), "wall")
    for _ in range(PROCESSES):
        toggles.replicate()
        only(toggles.outcomes[-1])
    (elided,), null = toggles.samples(), toggles.null()
    assert elided.failure is None
    assert len(elided.log_ratios) == len(null.log_ratios) == PROCESSES
    effect, nothing = t_interval(elided.log_ratios), t_interval(null.log_ratios)
    print(f"elided {effect}, nothing {nothing}, sd of nothing {statistics.stdev(null.log_ratios):.4f}")
    assert nothing.low - 0.02 <= 0 <= nothing.high + 0.02
    assert effect.low < 0.02  # it does not make the step slower


@MODELS
def test_moves_that_do_not_wait_are_switched(session: Any, arguments: tuple[str, ...]) -> None:
    proposal = Proposal(at("non_blocking", "inputs.to(device), labels.to(device)"), Design.TOGGLE, "step_time")
    toggles = Toggles(session(arguments), [proposal], Size(block=20, rounds=6, seconds=60.0, slots=2), "wall")
    toggles.replicate()
    (moved,) = toggles.samples()
    print(moved.log_ratios, toggles.null().log_ratios)
    assert moved.failure is None
    result = only(toggles.outcomes[0])
    rounds = len(toggle_rounds(result, 1))
    assert rounds >= 3
    # Two moves a step, two blocks of each round and of the prelude.
    assert result["toggle"]["slots"][1]["used"] == 2 * 2 * 20 * (rounds + 1)


def test_two_processes_share_a_card_in_turns(session: Any) -> None:
    """Pinned memory in one arm: both keep their memory while stopped, and neither spoils the other's blocks."""
    change = at("loader", "train_loader = DataLoader", options={"pin_memory": True})
    pair = run_pair(session(RESNET), change, Size(block=20, rounds=4, seconds=120.0), swapped=False)
    assert pair.ended is None
    assert len(pair.rounds) == 4
    assert pair.a is not None
    assert pair.b is not None
    assert only(pair.b)["changes"] == [{"kind": "loader", "used": 1, "failure": None}]
    assert only(pair.b)["loaders"][0]["pin_memory"]
    assert not only(pair.a)["loaders"][0]["pin_memory"]
    alone = only(session(RESNET).launch(Pass("timing")))
    times = alone["boundaries_ns"][alone["warmup"] :]
    alone_ns = statistics.median(b - a for a, b in itertools.pairwise(times))
    beside = [block.wall_ns / block.steps for blocks in pair.rounds for block in blocks if not block.on]
    print(f"alone {alone_ns / 1e6:.2f} ms, beside a stopped process {statistics.median(beside) / 1e6:.2f} ms")
    assert statistics.median(beside) < 1.5 * alone_ns


@MODELS
def test_counted_bytes_are_those_of_the_allocator(launch: Launcher, arguments: tuple[str, ...]) -> None:
    """PyTorch's own test of its tracker allows ten percent; models this large leave no room for workspaces."""
    result = only(launch(SCRIPT, "memory", arguments=arguments))
    counted = max(result["memory"]["phases"][name]["peak"] for name in ("start", "train"))
    allocated = max(step["allocated"] for step in result["cuda_memory"]["steps"])
    print(f"counted {counted / 2**20:.1f} MiB, allocated {allocated / 2**20:.1f} MiB")
    assert counted == pytest.approx(allocated, rel=0.1)


@MODELS
def test_the_replayed_history_accounts_for_the_peak(launch: Launcher, arguments: tuple[str, ...]) -> None:
    """With what was there when the history began, the lines at the replayed peak come to max_memory_allocated."""
    result = only(launch(SCRIPT, "memory", arguments=arguments))
    steps, begun = result["cuda_memory"]["steps"], result["warmup"]
    before = steps[begun]["now"]
    replayed = sum(entry["bytes"] for entry in result["cuda_memory"]["by_line"])
    peak = max(step["allocated"] for step in steps[begun + 1 :])
    print(f"before {before / 2**20:.1f} MiB, replayed {replayed / 2**20:.1f} MiB, peak {peak / 2**20:.1f} MiB")
    assert replayed <= peak
    assert before + replayed == pytest.approx(peak, rel=0.1)


@MODELS
@pytest.mark.parametrize("options", [(), ("--amp",), ("--checkpoint",)], ids=["fp32", "amp", "checkpoint"])
def test_a_prediction_on_fake_tensors_holds_on_the_card(
    session: Any, arguments: tuple[str, ...], options: tuple[str, ...]
) -> None:
    """Made as on a machine without a GPU, and promised to within 35 percent of the activations."""
    here = session((*arguments, *options))
    result = only(here.launch(Pass("memory", ("memory",))))
    allocated = max(step["allocated"] for step in result["cuda_memory"]["steps"])
    away = session((*arguments, *options), device="cpu")
    away.shim = True
    outcomes: list[Outcome] = []
    made = predict(away, None, None, lambda *_: None, outcomes).as_it_is
    assert made is not None, outcomes[-1].log_tail
    print(
        f"predicted {made.peak / 2**20:.1f} MiB ({made.low / 2**20:.1f} to {made.high / 2**20:.1f}), "
        f"real {allocated / 2**20:.1f} MiB"
    )
    assert made.low <= allocated <= made.high


@MODELS
def test_evaluation_without_a_graph_saves_what_is_counted(session: Any, arguments: tuple[str, ...]) -> None:
    """The allocator's peak in evaluation falls by what the counted bytes say it falls by."""
    peaks = []
    for changes in ([], [{"kind": "eval_no_grad", "file": None, "rows": None}]):
        made = session(arguments)
        made.options = replace(made.options, steps=6)
        result = only(made.launch(Pass("memory", ("memory",), until_eval=True, extra={"changes": changes})))
        peaks.append((result["memory"]["phases"]["eval"]["peak"], result["cuda_memory"]["phases"]["eval"]))
    (counted, allocated), (counted_without, allocated_without) = peaks
    print(f"counted {counted_without / counted:.3f}, allocated {allocated_without / allocated:.3f} of the peak")
    assert counted_without < counted
    assert math.log(allocated_without / allocated) == pytest.approx(math.log(counted_without / counted), abs=0.15)
